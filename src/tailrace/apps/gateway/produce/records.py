"""Records as requests write them, and the bytes that go to the cluster.

    v3      {"partition_id", "headers": [{"name", "value"}], "key": {"type", "data"}, "value": ..., "timestamp"}
    plain   {"key", "value", "headers", "partition", "timestamp"}; key_base64, value_base64 for bytes

What is not asked for is refused, not passed over: a name that is mistyped would change where a record goes.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tailrace.apps.gateway.errors import GatewayError, bad_field, bad_request
from tailrace.client.producer import Headers

_INT64_MAX = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1


class Part(NamedTuple):
    """What the receipt says of a key or a value."""

    type: str
    size: int
    subject: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp: int | None
    key_part: Part | None = None
    value_part: Part | None = None


# --- values by type


def encode_binary(data: Any) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, str):
        try:
            return b64decode(data, validate=True)
        except ValueError:
            pass
    raise bad_request(f"data={_short(data)} is not a valid base64 string.")


def encode_json(data: Any) -> bytes | None:
    if data is None:
        return None
    try:
        return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half of a pair has no UTF-8, but an escape.
        return json.dumps(data, separators=(",", ":")).encode()


def encode_string(data: Any) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            pass
    raise bad_request(f"data={_short(data)} is not a string of Unicode characters.")


ENCODERS: Mapping[str, Callable[[Any], bytes | None]] = {
    "BINARY": encode_binary,
    "JSON": encode_json,
    "STRING": encode_string,
}
# In the plain form: by the latest schema of the subject.
SCHEMA = "SCHEMA"


def _short(data: Any) -> str:
    text = json.dumps(data)
    return text if len(text) <= 50 else text[:50] + "..."


# --- v3

_V3_FIELDS = frozenset({"partition_id", "headers", "key", "value", "timestamp", "original_size"})
_DATA_FIELDS = frozenset({"type", "data", "subject", "subject_name_strategy", "schema_id", "schema_version", "schema"})
_NEED_SCHEMA = frozenset({"AVRO", "JSONSCHEMA", "PROTOBUF"})
_NAME_AND_VALUE = frozenset({"name", "value"})

# Makes bytes of data with a schema: told the data's fields, and "key" or "value".
WithSchema = Callable[[Mapping[str, Any], str], tuple[bytes, Part]]


# Reads a record of v3 for a topic; it may ask a registry.
ReadV3 = Callable[[Mapping[str, Any]], Awaitable[NewRecord]]


def reader_of_records(headers_max: int, with_schema: WithSchema | None) -> ReadV3:
    """A registry is asked in a thread, so that the loop goes on: only where a record needs it."""

    async def read(document: Mapping[str, Any]) -> NewRecord:
        if with_schema is not None and any(_needs_schema(document.get(part)) for part in ("key", "value")):
            return await asyncio.to_thread(read_v3, document, headers_max, with_schema)
        return read_v3(document, headers_max, with_schema)

    return read


def _needs_schema(raw: Any) -> bool:
    return isinstance(raw, dict) and raw.get("type") not in tuple(ENCODERS)


def read_v3(document: Mapping[str, Any], headers_max: int, with_schema: WithSchema | None = None) -> NewRecord:
    """Raises GatewayError."""
    if not document.keys() <= _V3_FIELDS:
        raise _unknown_fields(document, _V3_FIELDS)
    key, key_part = _read_data(document.get("key"), "key", with_schema)
    value, value_part = _read_data(document.get("value"), "value", with_schema)
    timestamp = document.get("timestamp")
    raw_headers = document.get("headers")
    return NewRecord(
        key,
        value,
        () if not raw_headers else _v3_headers(raw_headers, headers_max),
        _partition(document.get("partition_id")),
        None if timestamp is None else _timestamp(timestamp),
        key_part,
        value_part,
    )


def _read_data(raw: Any, part: str, with_schema: WithSchema | None) -> tuple[bytes | None, Part | None]:
    if raw is None:
        return None, None
    if not isinstance(raw, dict):
        raise bad_field(f'{part} is an object such as {{"type": "STRING", "data": "text"}}')
    if not raw.keys() <= _DATA_FIELDS:
        raise _unknown_fields(raw, _DATA_FIELDS)
    kind = raw.get("type", "BINARY" if raw.keys() <= {"data"} else None)
    if isinstance(kind, str) and kind in ENCODERS:
        data = ENCODERS[kind](raw.get("data"))
        return data, Part(kind, 0 if data is None else len(data))
    if kind is not None and (not isinstance(kind, str) or kind not in _NEED_SCHEMA):
        raise bad_request(f"{part}.type is {_short(kind)}; it must be one of {', '.join((*ENCODERS, *_NEED_SCHEMA))}")
    if with_schema is None:
        raise GatewayError(
            422, 42207, f"Error serializing message. {part} needs a schema, and this gateway has no --schema-registry"
        )
    if raw.get("data") is None:
        return None, None
    return with_schema(raw, part)


def _v3_headers(raw: Any, headers_max: int) -> Headers:
    if not isinstance(raw, list) or len(raw) > headers_max:
        raise bad_field(f"headers is a list of at most {headers_max} objects")
    found: list[tuple[str, bytes | None]] = []
    for each in raw:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str) or not each.keys() <= _NAME_AND_VALUE:
            raise bad_field('a header is an object {"name": "text", "value": "base64"}')
        found.append((_name(each["name"]), encode_binary(each.get("value"))))
    return found


def _timestamp(text: Any) -> int:
    """ISO 8601, as Java's Instant; or milliseconds, as everything else in Kafka."""
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text <= _INT64_MAX:
        return text
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise bad_request(f"timestamp={_short(text)} is no time such as 2026-01-31T12:00:00.000Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    milliseconds = int(moment.timestamp() * 1000 + 0.5)
    if milliseconds < 0:
        raise bad_request(f"timestamp={_short(text)} is before 1970")
    return milliseconds


def _partition(number: Any) -> int | None:
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise bad_field("the partition is a whole number")
    if not 0 <= number <= _INT32_MAX:
        raise GatewayError(404, 40402, "Partition not found.")
    return number


def _name(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise bad_request(f"the name {_short(text)} of a header is not of Unicode characters") from None
    return text


def _unknown_fields(document: Mapping[str, Any], known: frozenset[str]) -> GatewayError:
    unknown = ", ".join(sorted(map(_short, document.keys() - known)))
    return bad_field(f"There are no fields {unknown} here, but {', '.join(sorted(known - {'original_size'}))}")


# --- plain

_PLAIN_FIELDS = frozenset({"key", "value", "key_base64", "value_base64", "headers", "partition", "timestamp"})
_PLAIN_HEADER_FIELDS = frozenset({"name", "value", "value_base64"})


class PlainFormat(NamedTuple):
    """How keys and values are written where they are not in base64. SCHEMA needs `with_schema`."""

    key: str = "STRING"
    value: str = "JSON"
    with_schema: WithSchema | None = None


def read_plain(document: Any, form: PlainFormat, headers_max: int) -> NewRecord:
    """Raises GatewayError."""
    if not isinstance(document, dict):
        raise bad_field('a record is an object such as {"key": "k", "value": {"any": "JSON"}}')
    if not document.keys() <= _PLAIN_FIELDS:
        raise _unknown_fields(document, _PLAIN_FIELDS)
    timestamp = document.get("timestamp")
    raw_headers = document.get("headers")
    return NewRecord(
        _plain_part(document, "key", form.key, form.with_schema),
        _plain_part(document, "value", form.value, form.with_schema),
        () if not raw_headers else _plain_headers(raw_headers, headers_max),
        _partition(document.get("partition")),
        None if timestamp is None else _timestamp(timestamp),
    )


def _plain_part(
    document: Mapping[str, Any], name: str, kind: str, with_schema: WithSchema | None = None
) -> bytes | None:
    if f"{name}_base64" in document:
        if name in document:
            raise bad_field(f"{name} and {name}_base64 cannot both be given")
        return encode_binary(document[f"{name}_base64"])
    data = document.get(name)
    if kind != SCHEMA:
        return ENCODERS[kind](data)
    assert with_schema is not None, "whoever asks for schemas has them"
    return None if data is None else with_schema({"data": data}, name)[0]


def _plain_headers(raw: Any, headers_max: int) -> Headers:
    """An object of texts, or a list as records have them when they are read."""
    if isinstance(raw, dict):
        raw = [{"name": name, "value": text} for name, text in raw.items()]
    if not isinstance(raw, list) or len(raw) > headers_max:
        raise bad_field(f"headers are an object of texts, or a list of at most {headers_max} objects")
    found: list[tuple[str, bytes | None]] = []
    for each in raw:
        if (
            not isinstance(each, dict)
            or not isinstance(each.get("name"), str)
            or not each.keys() <= _PLAIN_HEADER_FIELDS
        ):
            raise bad_field('a header is an object {"name": "text", "value": "text"}, or with value_base64')
        found.append((_name(each["name"]), _plain_part(each, "value", "STRING")))
    return found

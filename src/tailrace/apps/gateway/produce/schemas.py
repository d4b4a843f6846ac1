"""Data with a schema of a registry, as bytes in Confluent's framing: the registry is asked as the caller.

The schema is named by its id, by a version of its subject, by its own text (which is registered), or not at all: then
the latest of the subject counts. Subjects are `TOPIC-key` and `TOPIC-value` unless a record names another. Everything
here blocks, and runs in threads.
"""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from tailrace.apps.gateway.errors import GatewayError, bad_request, registry_away
from tailrace.apps.gateway.produce.records import Part, WithSchema
from tailrace.apps.opening import RecordOpener
from tailrace.client.security.settings import SaslSettings
from tailrace.real.registry.client import RegistryAddress, RegistryClient, RegistryError
from tailrace.schemas import ParsedSchema
from tailrace.schemas.codecs import CodecError, Encode, encoder
from tailrace.schemas.framing import write_prefix

_SCHEMA_TYPES = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}
_KINDS = {schema_type: kind for kind, schema_type in _SCHEMA_TYPES.items()}
_TOPIC_NAME = "TOPIC_NAME"
_ENCODERS_MAX = 1000
# How long the latest version of a subject counts as such.
_LATEST_S = 30.0
# How long a registry that is away is not asked again.
_AWAY_S = 5.0


class _Wanted(NamedTuple):
    """By what a schema is named."""

    subject: str
    schema_id: int | None
    version: int | None
    text: str | None
    kind: str | None


class _Known(NamedTuple):
    schema_id: int
    version: int | None
    kind: str
    encode: Encode
    ends: float  # Until when that counts.


class Schemas:
    """Of one caller. `opener` is for what they read."""

    def __init__(self, url: str, ca_file: str | None, sasl: SaslSettings | None) -> None:
        """Raises ValueError if that is no address of a registry."""
        user_info = f"{sasl.username}:{sasl.password}" if sasl is not None and sasl.username else None
        token = sasl.token.given if sasl is not None and sasl.token.given else None
        self._client = RegistryClient(RegistryAddress(url, user_info, token, ca_file))
        self.opener = RecordOpener(self._client)
        self._lock = threading.Lock()
        self._known: OrderedDict[_Wanted, _Known] = OrderedDict()
        # Why the registry is away, and until when it is not asked again: records of a stream must not wait for it one
        # after the other.
        self._away: tuple[str, float] = ("", 0.0)

    def of_topic(self, topic: str) -> WithSchema:
        return lambda raw, part: self._encode(raw, f"{topic}-{part}")

    def _encode(self, raw: Mapping[str, Any], usual_subject: str) -> tuple[bytes, Part]:
        wanted = _read_wanted(raw, usual_subject)
        try:
            known = self._find(wanted)
            data = write_prefix(known.schema_id) + known.encode(json.dumps(raw.get("data")))
        except RegistryError as error:
            raise (registry_away(str(error)) if error.is_away else _not_serialized(str(error))) from None
        except CodecError as error:
            raise _not_serialized(str(error)) from None
        except ImportError as error:
            raise _not_serialized(f"{error.name} is not installed: pip install 'tailrace[schemas]'") from None
        return data, Part(known.kind, len(data), wanted.subject, known.schema_id, known.version)

    def _find(self, wanted: _Wanted) -> _Known:
        with self._lock:
            known = self._known.get(wanted)
            if known is not None and known.ends >= time.monotonic():
                return known
            try:
                found = self._ask(wanted)
            except RegistryError as error:
                if error.is_away and known is not None:
                    return known  # What was the latest is still registered.
                raise
            self._known[wanted] = found
            while len(self._known) > _ENCODERS_MAX:
                self._known.popitem(last=False)
            return found

    def _ask(self, wanted: _Wanted) -> _Known:
        reason, ends = self._away
        if ends > time.monotonic():
            raise RegistryError(reason, is_away=True)
        try:
            schema_id, version, schema = self._look_up(wanted)
        except RegistryError as error:
            if error.is_away:
                self._away = (str(error), time.monotonic() + _AWAY_S)
            raise
        kind = _KINDS[schema.schema_type]
        if wanted.kind not in (None, kind):
            raise CodecError(f"schema {schema_id} is of type {kind}, and not {wanted.kind}")
        is_latest = (wanted.schema_id, wanted.version, wanted.text) == (None, None, None)
        counts_until = time.monotonic() + _LATEST_S if is_latest else float("inf")
        return _Known(schema_id, version, kind, encoder(schema), counts_until)

    def _look_up(self, wanted: _Wanted) -> tuple[int, int | None, ParsedSchema]:
        schema_id = wanted.schema_id
        if wanted.text is not None:
            schema_id = self._client.register(wanted.subject, _SCHEMA_TYPES[wanted.kind or "AVRO"], wanted.text)
        if schema_id is not None:
            return schema_id, None, self._client.schema(schema_id)
        return self._client.version(wanted.subject, "latest" if wanted.version is None else wanted.version)


def _not_serialized(reason: str) -> GatewayError:
    return GatewayError(422, 42207, f"Error serializing message. {reason}")


def _read_wanted(raw: Mapping[str, Any], usual_subject: str) -> _Wanted:
    """Raises GatewayError."""
    if raw.get("subject_name_strategy", _TOPIC_NAME) != _TOPIC_NAME:
        raise bad_request(f"subject_name_strategy: {_TOPIC_NAME} is the only one here; name the subject")
    names = ("schema_id", "schema_version", "schema", "type")
    wanted = _Wanted(raw.get("subject", usual_subject), *(raw.get(name) for name in names))
    if wanted.kind is None and wanted.text is not None:
        raise bad_request("a schema needs its type: AVRO, JSONSCHEMA or PROTOBUF")
    for name, found, kind in (
        ("subject", wanted.subject, str),
        ("schema", wanted.text, str),
        ("schema_id", wanted.schema_id, int),
        ("schema_version", wanted.version, int),
    ):
        if found is not None and (not isinstance(found, kind) or isinstance(found, bool)):
            raise bad_request(f"{name} is not a {'text' if kind is str else 'number'}")
    if sum(each is not None for each in (wanted.schema_id, wanted.version, wanted.text)) > 1:
        raise bad_request("a schema is named by one of schema, schema_id and schema_version")
    return wanted

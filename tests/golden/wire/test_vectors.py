"""Messages as Kafka 4.3.0's own classes serialised them: three of each declared message in each version.

`vectors.jsonl.gz` has a line per vector: name, version, bytes in hex, and the values that Kafka read back, without
tagged fields that have their default. Bytes, uuids and records are in hex. The values were picked at random, with a
taste for edges: nulls, empty and long strings, the limits of numbers, lengths around 127.
"""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tailrace.wire.apis import request_type, response_type, stored_records
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.codec.layout import layout
from tailrace.wire.compile import decode_from, encode
from tailrace.wire.frame import RequestHeader, ResponseHeader
from tailrace.wire.schema import Field, Message, Struct

# Records that Kafka does not have.
OWN_RECORD_TYPES = range(10_000, 11_000)

MESSAGES: dict[str, type[Message]] = {
    cls.__name__: cls
    for cls in (
        *(find(key) for key in ApiKey if not key.is_own for find in (request_type, response_type)),
        *(
            value
            for value in vars(stored_records).values()
            if isinstance(value, type)
            and value.__module__ == stored_records.__name__
            and getattr(value, "record_type", -1) not in OWN_RECORD_TYPES
        ),
        RequestHeader,
        ResponseHeader,
    )
    if issubclass(cls, Message)
}


def load_vectors() -> dict[str, list[tuple[int, bytes, Any]]]:
    vectors: dict[str, list[tuple[int, bytes, Any]]] = defaultdict(list)
    for line in gzip.decompress((Path(__file__).parent / "vectors.jsonl.gz").read_bytes()).splitlines():
        name, version, data, values = json.loads(line)
        vectors[name].append((version, bytes.fromhex(data), values))
    return vectors


VECTORS = load_vectors()


def rendered(value: Struct, version: int) -> dict[str, Any]:
    plain, tagged, _ = layout(type(value), version)
    sent = [field for field in tagged if getattr(value, field.name) != field.fresh_default()]
    return {field.name: rendered_field(field, getattr(value, field.name), version) for field in plain + sent}


def rendered_field(field: Field, value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return rendered(value, version)
    if isinstance(value, list):
        return [rendered_field(field, item, version) for item in value]
    return value.hex() if isinstance(value, bytes | memoryview) else value


@pytest.mark.parametrize("name", MESSAGES)
def test_bytes_and_values_are_kafkas(name: str) -> None:
    cls = MESSAGES[name]
    for version, data, values in VECTORS[name]:
        message, end = decode_from(cls, version, memoryview(data), 0)
        assert end == len(data)
        assert rendered(message, version) == values
        assert encode(message, version) == data


@pytest.mark.parametrize("name", MESSAGES)
def test_every_version_has_vectors(name: str) -> None:
    assert {version for version, _, _ in VECTORS[name]} == set(MESSAGES[name].versions)


def test_every_vector_has_a_message() -> None:
    assert set(VECTORS) == set(MESSAGES)

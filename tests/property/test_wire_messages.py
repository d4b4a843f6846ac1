"""Random instances of every declared message survive a round trip in every version."""

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.wire.apis import own, request_type, response_type, stored_records
from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.codec.layout import layout
from tailrace.wire.compile import decode_from, encode
from tailrace.wire.frame import RequestHeader, ResponseHeader
from tailrace.wire.schema import Field, Message, Struct

MESSAGES = [
    *(find(key) for key in ApiKey if not key.is_own for find in (request_type, response_type)),
    *(
        value
        for value in vars(stored_records).values()
        if isinstance(value, type) and value.__module__ == stored_records.__name__
    ),
    own.DescribeGroupHistoryRequest,
    own.DescribeGroupHistoryResponse,
    own.DescribeGroupLagRequest,
    own.DescribeGroupLagResponse,
    own.LocateOffsetsRequest,
    own.LocateOffsetsResponse,
    RequestHeader,
    ResponseHeader,
]

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(1 << 7), (1 << 7) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "uint32": st.integers(0, (1 << 32) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    # Lengths around 127, where a compact length grows to two bytes, are the interesting ones.
    "string": st.text(max_size=8) | st.text("aé", min_size=60, max_size=130),
    "bytes": st.binary(max_size=8) | st.binary(min_size=120, max_size=130),
    # Above 4096 bytes records are sent uncopied.
    "records": st.binary(max_size=8) | st.sampled_from([bytes(127), bytes(4095), bytes(4096), bytes(20000)]),
}


def values(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        strategy = instances(field.item, version)
    elif field.kind != "array":
        strategy = SCALARS[field.kind]
    elif field.struct is not None:
        strategy = st.lists(instances(field.struct, version), max_size=2)
    else:
        strategy = st.lists(SCALARS[field.item], max_size=3)
    return st.none() | strategy if version in field.nullable else strategy


@cache
def instances(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    plain, tagged, _ = layout(cls, version)
    here = {field.name: values(field, version) for field in plain}
    # Some tagged fields stay at their default, and are then not sent.
    maybe = {field.name: values(field, version) for field in tagged}
    return st.fixed_dictionaries(here, optional=maybe).map(lambda given: cls(**given))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
def test_round_trip(cls: type[Message], data: st.DataObject) -> None:
    for version in cls.versions:
        message = data.draw(instances(cls, version))
        encoded = encode(message, version)
        assert decode_from(cls, version, encoded, 0) == (message, len(encoded))
        # Position and kind of buffer make no difference.
        assert decode_from(cls, version, memoryview(b"12345" + encoded), 5) == (message, len(encoded) + 5)

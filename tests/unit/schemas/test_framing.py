"""How a record names its schema."""

import pytest

from tailrace.schemas.framing import FramingError, read_frame, read_indexes, write_indexes, write_prefix


def test_a_prefix_and_headers():
    assert read_frame(write_prefix(258) + b"x") == (258, 5)
    assert read_frame(b"x", "value", [("__value_schema_id", write_prefix(7))]) == (7, 0)
    assert read_frame(write_prefix(3), "key", [("__value_schema_id", write_prefix(7))]) == (3, 5)
    guid = b"\1" + bytes(range(16))
    assert read_frame(b"x", "key", [("__key_schema_id", guid)]) == ("00010203-0405-0607-0809-0a0b0c0d0e0f", 0)


@pytest.mark.parametrize(
    ("value", "headers", "why"),
    [
        (b"", [], "it has 0 bytes"),
        (b"\0\0\0\1", [], "it has 4 bytes"),
        (b'{"a":1}', [], "0x7b"),
        (b"x", [("__value_schema_id", b"\2abc")], "neither an id nor a guid"),
    ],
)
def test_what_names_no_schema(value, headers, why):
    with pytest.raises(FramingError, match=why):
        read_frame(value, "value", headers)


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (2, 5, 300)])
def test_indexes_of_messages(indexes):
    assert read_indexes(b"xx" + write_indexes(indexes) + b"data", 2) == (indexes, 2 + len(write_indexes(indexes)))


def test_the_first_message_is_one_byte_as_confluents_clients_write_it():
    assert write_indexes((0,)) == b"\0"
    assert write_indexes((1, 0)) == b"\x04\x02\x00"


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xff\xff\xff\xff\xff", b"\x04\x02", b"\x01"])
def test_broken_indexes_are_told(data):
    with pytest.raises(FramingError):
        read_indexes(data, 0)

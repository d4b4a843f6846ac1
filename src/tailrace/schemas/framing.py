"""How a record names its schema: Confluent's prefix of a zero and an id, or a header with an id or a guid.

    value:   00 | id, 4 bytes, big-endian | [Protobuf: which message] | data
    header:  __value_schema_id or __key_schema_id = 00 | id,  or  01 | guid, 16 bytes; the value is then data alone

Which message of a Protobuf file it is stands as a list of indexes, from the outermost message inwards: their number and
each of them as zigzag varints, or a single 00 for the first message of the file.
"""

from collections.abc import Iterable
from typing import NamedTuple

PREFIX_BYTES = 5
HEADERS = {"key": "__key_schema_id", "value": "__value_schema_id"}

MAGIC = 0

_BY_ID, _BY_GUID = MAGIC, 1
_GUID_BYTES = 16
# Deeper messages than this nobody nests.
_INDEXES_MAX = 100


class FramingError(ValueError):
    """The bytes do not name a schema; the message says why."""


class Framed(NamedTuple):
    """An id, or a guid as 32 hexadecimal digits in Confluent's grouping; and where the data begin."""

    schema: int | str
    start: int


def read_frame(value: bytes, part: str = "value", headers: Iterable[tuple[str, bytes | None]] = ()) -> Framed:
    """Raises FramingError."""
    for name, content in headers:
        if name == HEADERS[part] and content:
            return Framed(_named(content), 0)
    if len(value) < PREFIX_BYTES:
        raise FramingError(f"it has {len(value)} bytes, and a zero and the id of a schema alone are {PREFIX_BYTES}")
    if value[0] != _BY_ID:
        raise FramingError(f"it begins with the byte {value[0]:#04x}, not with 0x00 and the id of a schema")
    return Framed(int.from_bytes(value[1:PREFIX_BYTES]), PREFIX_BYTES)


def write_prefix(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4)


def read_indexes(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Which message of a Protobuf file, and where its bytes begin. Raises FramingError."""
    count, start = _zigzag(value, start)
    if count == 0:
        return (0,), start
    if not 0 < count <= _INDEXES_MAX:
        raise FramingError(f"it says that its message is nested {count} levels deep")
    indexes = []
    for _ in range(count):
        index, start = _zigzag(value, start)
        indexes.append(index)
    return tuple(indexes), start


def write_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    return b"".join(_written(each) for each in (len(indexes), *indexes))


def _named(content: bytes) -> int | str:
    if content[0] == _BY_GUID and len(content) == 1 + _GUID_BYTES:
        digits = content[1:].hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    if content[0] == _BY_ID and len(content) == PREFIX_BYTES:
        return int.from_bytes(content[1:])
    raise FramingError(f"its header with a schema has {len(content)} bytes that are neither an id nor a guid")


def _zigzag(value: bytes, start: int) -> tuple[int, int]:
    number = shift = 0
    for position in range(start, min(start + 5, len(value))):
        number |= (value[position] & 0x7F) << shift
        if value[position] < 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
    raise FramingError("it ends within the number of its message")


def _written(number: int) -> bytes:
    number <<= 1
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)

"""Reading DER, the bytes of which certificates are made. ValueError if it is none, or cut short."""

from __future__ import annotations

from typing import NamedTuple

SEQUENCE, SET, OBJECT_ID = 0x30, 0x31, 0x06
_SIZE_BYTES_MAX = 4


class Value(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def read_all(data: bytes) -> list[Value]:
    """The values that follow each other there."""
    values = []
    position = 0
    while position < len(data):
        tag, start, size = _read_head(data, position)
        end = start + size
        if end > len(data):
            raise ValueError("it is cut short")
        values.append(Value(tag, data[start:end], data[position:end]))
        position = end
    return values


def read_one(data: bytes, tag: int) -> Value:
    """The first of them, which has to be of that type."""
    values = read_all(data)
    if not values:
        raise ValueError("it is empty")
    return expect(values[0], tag)


def expect(value: Value, tag: int) -> Value:
    if value.tag != tag:
        raise ValueError(f"it has a value of type {value.tag}, where {tag} belongs")
    return value


def object_id(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise ValueError("the number of an attribute is cut short")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _read_head(data: bytes, position: int) -> tuple[int, int, int]:
    """The tag, where the content begins, and its size."""
    if position + 2 > len(data):
        raise ValueError("it is cut short")
    tag, size = data[position], data[position + 1]
    start = position + 2
    if size & 0x80:
        count = size & 0x7F
        if not 1 <= count <= _SIZE_BYTES_MAX or start + count > len(data):
            raise ValueError("a size in it cannot be read")
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    return tag, start, size

"""Where the records of a batch lie, for copying them without taking them apart.

A record's bytes depend on its batch only through the base offset and the base timestamp, so a record that stays in
its batch is copied as it is. Of each record only the deltas, the key and whether it has a value are read; value and
headers are skipped by the record's length. Blocks were validated when they were appended; what does not fit all the
same is a damaged file (StorageError), and nothing is allocated by a length that was read.
"""

from typing import NamedTuple

from tailrace.model.errors import KafkaError, StorageError
from tailrace.wire.varint import read_rest_of_varint, read_rest_of_varlong

_NULL = 1  # the zigzag varint of -1


class Span(NamedTuple):
    """One record in its block: [start, end) is all of it, `rest` is where it goes on after the timestamp delta."""

    start: int
    rest: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def scan_spans(block: bytes, position: int, count: int) -> tuple[list[Span], int]:
    """Up to `count` records from `position` on, and the position after them."""
    try:
        return _scan(block, position, count)
    except IndexError:
        raise StorageError(f"a batch ends amid a record, at byte {len(block)} of its records") from None
    except KafkaError as error:
        raise StorageError(f"a batch holds a record that does not decode: {error.message}") from None


def _scan(block: bytes, position: int, count: int) -> tuple[list[Span], int]:
    new_span = tuple.__new__
    spans: list[Span] = []
    size = len(block)
    while len(spans) < count and position < size:
        start = position
        raw = block[position]
        position += 1
        if raw > 127:
            raw, position = read_rest_of_varint(raw, block, position)
        end = position + (raw >> 1)

        raw = block[position + 1]  # behind the attributes
        position += 2
        if raw > 127:
            raw, position = read_rest_of_varlong(raw, block, position)
        timestamp_delta = (raw >> 1) ^ -(raw & 1)
        rest = position

        raw = block[position]
        position += 1
        if raw > 127:
            raw, position = read_rest_of_varint(raw, block, position)
        offset_delta = raw >> 1

        raw = block[position]
        position += 1
        if raw > 127:
            raw, position = read_rest_of_varint(raw, block, position)
        if raw == _NULL:
            key = None
        else:
            key_end = position + (raw >> 1)
            key = block[position:key_end]
            position = key_end
        if position >= end or end > size:
            raise StorageError(f"the record at byte {start} of its block runs past its end or the block's")
        spans.append(new_span(Span, (start, rest, end, timestamp_delta, offset_delta, key, block[position] != _NULL)))
        position = end
    return spans, position

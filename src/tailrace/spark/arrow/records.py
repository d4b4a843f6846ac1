"""The records of many batches at once, as arrays of positions in one buffer, by numpy.

`find_records` goes from record to record in Python, as each tells only where the next one begins; all else is done for
all records together, one byte of a varint at a time. Nothing is trusted: the fields of each record must fill it to the
byte, and since every step goes forward, none of them can then have left it. Reads beyond the buffer are kept inside it
until that check. What fails one raises OddRecordsError: whoever wants to know what is wrong, and with which record,
asks `wire.payload`, which reads one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.model.errors import KafkaError
from tailrace.model.ports import Bytes
from tailrace.wire.varint import read_rest_of_varint

Ints = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Octets = npt.NDArray[np.uint8]

_NULL = 1  # The varint of -1.
# A step of `read_headers` is worth its while for many records; one with more headers than this is odd.
_HEADERS_MAX = 32


class OddRecordsError(Exception):
    """The records are damaged, or such that they are better read one after the other. `is_odd` tells which, if that is
    known."""

    def __init__(self, is_odd: Booleans | None = None) -> None:
        super().__init__("odd records")
        self.is_odd = is_odd


class Blobs(NamedTuple):
    """Keys, values or names in the buffer, in rising order. The size of a null is 0."""

    start: Ints
    size: Ints
    is_null: Booleans | None  # None if none is


class Fields(NamedTuple):
    """One element a record."""

    timestamp_delta: Ints
    offset_delta: Ints
    key: Blobs
    value: Blobs
    header_count: Ints
    headers_start: Ints
    end: Ints


class Headers(NamedTuple):
    """One element a header, in the order of the records."""

    name: Blobs
    value: Blobs


# How far a record reaches from its first byte on, if its length has one byte; if it has two, 64 times the second has to
# be added.
_REACH = [1 + (first >> 1) for first in range(0x80)] + [2 + (first - 0x80 >> 1) for first in range(0x80, 0x100)]


def find_records(buffer: Bytes, starts: Sequence[int], ends: Sequence[int], counts: Ints) -> tuple[Ints, Ints]:
    """Where each record begins, with its length, and where it ends; given where the records of each batch start and
    end, and how many they are, one at least."""
    begins: list[int] = []
    append, reach = begins.append, _REACH
    count = 0
    try:
        for start, batch_end, batch_count in zip(starts, ends, counts.tolist(), strict=True):
            position = start
            while position < batch_end:
                append(position)
                first = buffer[position]
                if first < 0x80:
                    position += reach[first]
                elif (second := buffer[position + 1]) < 0x80:
                    position += reach[first] + (second << 6)
                else:  # 8 KB or more.
                    raw, position = read_rest_of_varint(first, buffer, position + 1)
                    position += raw >> 1
            count += batch_count
            if position != batch_end or len(begins) != count:
                raise OddRecordsError
    except (IndexError, KafkaError):
        raise OddRecordsError from None
    begin = np.fromiter(begins, np.int64, count)
    end = np.empty_like(begin)
    end[:-1] = begin[1:]
    end[np.cumsum(counts) - 1] = ends
    return begin, end


def read_fields(data: Octets, begin: Ints, end: Ints) -> Fields:
    length, position = read_varints(data, begin)
    _check(((length & 1) == 0) & (position + (length >> 1) == end))
    # Behind the attributes, which have no meaning yet.
    raw_timestamp, position = read_varints(data, position + 1, bits=64)
    raw_offset, position = read_varints(data, position)
    key, position = _read_blobs(data, position)
    value, position = _read_blobs(data, position)
    raw_count, position = read_varints(data, position)
    _check(((raw_offset | raw_count) & 1) == 0)
    _check(np.where(raw_count == 0, position == end, position < end))
    return Fields(without_zigzag(raw_timestamp), raw_offset >> 1, key, value, raw_count >> 1, position, end)


def read_headers(data: Octets, fields: Fields) -> Headers:
    """The first header of all records that have one, then the second of those that have two, and so on."""
    row = np.flatnonzero(fields.header_count)
    position, left, end = fields.headers_start[row], fields.header_count[row], fields.end[row]
    if left.max(initial=0) > _HEADERS_MAX:
        raise OddRecordsError
    names, values = [], []
    while position.size:
        name, position = _read_blobs(data, position)
        value, position = _read_blobs(data, position)
        if name.is_null is not None:
            raise OddRecordsError
        names.append(name)
        values.append(value)
        left = left - 1
        _check(np.where(left == 0, position == end, position < end))
        goes_on = left > 0
        position, left, end = position[goes_on], left[goes_on], end[goes_on]
    # A header stands behind those before it, so their places give the order of the records back.
    order = np.argsort(np.concatenate([name.start for name in names]))
    return Headers(_join(names, order), _join(values, order))


def _join(parts: list[Blobs], order: Ints) -> Blobs:
    is_null = [np.zeros(len(part.start), np.bool_) if part.is_null is None else part.is_null for part in parts]
    return Blobs(
        np.concatenate([part.start for part in parts])[order],
        np.concatenate([part.size for part in parts])[order],
        np.concatenate(is_null)[order],
    )


def _read_blobs(data: Octets, position: Ints) -> tuple[Blobs, Ints]:
    raw, position = read_varints(data, position)
    size = raw >> 1  # 0 for a null
    is_null = None
    if (raw & 1).any():
        is_null = raw == _NULL
        _check(((raw & 1) == 0) | is_null)
    return Blobs(position, size, is_null), position + size


def read_varints(data: Octets, position: Ints, *, bits: int = 32) -> tuple[Ints, Ints]:
    """Still zigzag, and the positions behind them."""
    byte = data.take(position, mode="clip")
    raw = byte.astype(np.int64)
    position = position + 1
    shift = 7
    while (goes_on := byte > 0x7F).any():
        byte = data.take(position, mode="clip") * goes_on
        if shift + 7 > bits:
            _check(byte >> (bits - shift) == 0)
        # Without the bit that said that this byte follows. What leaves the 64 bits comes back as the sign.
        raw += (byte.astype(np.int64) - goes_on) << shift
        position += goes_on
        shift += 7
    return raw, position


def without_zigzag(raw: Ints) -> Ints:
    return (raw.view(np.uint64) >> 1).view(np.int64) ^ -(raw & 1)


def _check(holds: Booleans) -> None:
    if not holds.all():
        raise OddRecordsError(~holds)

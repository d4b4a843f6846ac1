"""The records inside a batch, decompressed: a run of varints, keys, values and headers.

    record: length | attributes 1 (always 0) | timestamp delta | offset delta
            key length, key | value length, value | header count
            per header: name length, name | value length, value

All but the attributes are zigzag varints; a length of -1 means null. Owns these bytes and nothing of the batch
around them. Every lie in them is INVALID_RECORD, found before anything is allocated for it.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Bytes
from tailrace.wire.varint import SMALL_VARINTS, encode_varint, read_rest_of_varint, read_rest_of_varlong

_NULL = 1  # the varint of -1
_SMALL_MAX = len(SMALL_VARINTS)
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record, with its absolute offset; the timestamp is in milliseconds. A header's name that is not UTF-8
    carries surrogate escapes, so that it can be written back unchanged."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# Not a record, but a sign to those who only check that HEADERS_AT_ONCE headers were read: one record may hold
# millions, and they count as work.
MANY_HEADERS = Record(-1, -1, None, None)
HEADERS_AT_ONCE = 8

# What can be encoded: a Record, or a plain tuple in the same order.
RecordLike = tuple[int, int, Bytes | None, Bytes | None, Sequence[tuple[str, Bytes | None]]]


class Numbering(NamedTuple):
    """What a batch's header says of all its records: each has but the difference to it."""

    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_time: int | None  # if given, the timestamp of every record


def iterate_payload(data: bytes, count: int, numbering: Numbering, *, only_checks: bool = False) -> Iterator[Record]:
    """Offsets must rise up to `last_offset_delta` and may have gaps, which compaction leaves. With `only_checks`
    headers are read but not kept, so that they take no memory, and MANY_HEADERS may come before a record."""
    base_offset, last_offset_delta, base_timestamp, append_time = numbering
    # Varints are read in line: most have one byte, and a call for each would double the time.
    new_record = tuple.__new__
    size = len(data)
    timestamp = base_timestamp if append_time is None else append_time
    position, previous_delta = 0, -1
    try:
        for _ in range(count):
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_rest_of_varint(raw, data, position)
            end = position + (raw >> 1)
            if raw & 1 or end > size:
                raise _impossible_length(raw, "record", size - position)
            raw = data[position + 1]  # behind the attributes, which have no meaning yet
            position += 2
            if raw > 127:
                raw, position = read_rest_of_varlong(raw, data, position)
            if append_time is None:
                timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
                if not _INT64_MIN <= timestamp <= _INT64_MAX:
                    raise _invalid(f"a record has a timestamp of {timestamp}, more than 64 bits")
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_rest_of_varint(raw, data, position)
            delta = raw >> 1
            if raw & 1 or not previous_delta < delta <= last_offset_delta:
                raise _misplaced(raw, previous_delta, last_offset_delta)
            previous_delta = delta
            key = value = None
            raw = data[position]
            position += 1
            if raw != _NULL:
                if raw > 127:
                    raw, position = read_rest_of_varint(raw, data, position)
                start = position
                position += raw >> 1
                if raw & 1:
                    raise _impossible_length(raw, "key", end - start)
                key = data[start:position]
            raw = data[position]
            position += 1
            if raw != _NULL:
                if raw > 127:
                    raw, position = read_rest_of_varint(raw, data, position)
                start = position
                position += raw >> 1
                if raw & 1:
                    raise _impossible_length(raw, "value", end - start)
                value = data[start:position]
            headers: Headers = ()
            raw = data[position]
            position += 1
            if raw:
                if only_checks:
                    position = yield from _check_headers(raw, data, position)
                else:
                    headers, position = _read_headers(raw, data, position)
            if position != end:
                raise _invalid(f"a record of {end} bytes so far has fields up to {position}")
            yield new_record(Record, (base_offset + delta, timestamp, key, value, headers))
    except IndexError:
        raise _invalid(f"a batch of {count} records ends amid one of them") from None
    if position != size:
        raise _invalid(f"{size - position} bytes follow the {count} records of a batch")


def scan_keyed(data: bytes, position: int, deltas: range) -> tuple[int, int, int] | None:
    """Records with keys and just these offset deltas, from `position` on, in less than half the time of
    `iterate_payload`: where they end, and the least and the largest of their timestamp deltas. None for any others, be
    they allowed or not: that one can tell. Whoever scans the last of them looks whether they end with the data."""
    least, largest = _INT64_MAX, _INT64_MIN
    try:
        for delta in deltas:
            raw = data[position]
            position += 1
            if raw > 127:
                byte = data[position]
                if byte < 128:
                    raw = raw & 127 | byte << 7
                    position += 1
                else:
                    raw, position = read_rest_of_varint(raw, data, position)
            if raw & 1:
                return None
            end = position + (raw >> 1)
            raw = data[position + 1]
            position += 2
            if raw > 127:
                raw, position = read_rest_of_varlong(raw, data, position)
            timestamp_delta = (raw >> 1) ^ -(raw & 1)
            if timestamp_delta > largest:  # noqa: PLR1730 - calls of max() and min() would cost a fifth of the whole
                largest = timestamp_delta
            if timestamp_delta < least:  # noqa: PLR1730
                least = timestamp_delta
            raw = data[position]
            position += 1
            if raw > 127:
                byte = data[position]
                if byte < 128:
                    raw = raw & 127 | byte << 7
                    position += 1
                else:
                    raw, position = read_rest_of_varint(raw, data, position)
            if raw != delta << 1:
                return None
            raw = data[position]
            position += 1
            if raw > 127:
                raw, position = read_rest_of_varint(raw, data, position)
            if raw & 1:  # No key, or a length that cannot be.
                return None
            position += raw >> 1
            raw = data[position]
            position += 1
            if raw != _NULL:
                if raw > 127:
                    byte = data[position]
                    if byte < 128:
                        raw = raw & 127 | byte << 7
                        position += 1
                    else:
                        raw, position = read_rest_of_varint(raw, data, position)
                if raw & 1:
                    return None
                position += raw >> 1
            raw = data[position]
            position += 1
            if raw:
                if raw & 1 or raw >= 2 * HEADERS_AT_ONCE:
                    return None
                position = _add_headers([], raw >> 1, data, position)
            if position != end:
                return None
    except (IndexError, KafkaError):
        return None
    return position, least, largest


def _check_headers(raw: int, data: bytes, position: int) -> Generator[Record, None, int]:
    count, position = _read_header_count(raw, data, position)
    while count >= HEADERS_AT_ONCE:
        position = _add_headers([], HEADERS_AT_ONCE, data, position)
        count -= HEADERS_AT_ONCE
        yield MANY_HEADERS
    return _add_headers([], count, data, position)


def _read_headers(raw: int, data: bytes, position: int) -> tuple[Headers, int]:
    """`raw` is the first byte of their count."""
    count, position = _read_header_count(raw, data, position)
    headers: list[tuple[str, bytes | None]] = []
    position = _add_headers(headers, count, data, position)
    return tuple(headers), position


def _read_header_count(raw: int, data: bytes, position: int) -> tuple[int, int]:
    if raw > 127:
        raw, position = read_rest_of_varint(raw, data, position)
    if raw & 1:
        raise _impossible_length(raw, "list of headers", len(data) - position)
    return raw >> 1, position


def _add_headers(headers: list[tuple[str, bytes | None]], count: int, data: bytes, position: int) -> int:
    """Gives the position behind the last. A count that lies meets the end of the data, for each takes
    two bytes or more."""
    for _ in range(count):
        raw = data[position]
        position += 1
        if raw > 127:
            raw, position = read_rest_of_varint(raw, data, position)
        if raw & 1:
            raise _impossible_length(raw, "header name", len(data) - position)
        start = position
        position += raw >> 1
        name = data[start:position].decode("utf-8", "surrogateescape")
        value = None
        raw = data[position]
        position += 1
        if raw != _NULL:
            if raw > 127:
                raw, position = read_rest_of_varint(raw, data, position)
            if raw & 1:
                raise _impossible_length(raw, "header", len(data) - position)
            start = position
            position += raw >> 1
            value = data[start:position]
        headers.append((name, value))
    return position


def _invalid(lie: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, lie)


def _impossible_length(raw: int, what: str, room: int) -> KafkaError:
    return _invalid(f"a {what} claims a length of {(raw >> 1) ^ -(raw & 1)} where {room} bytes are left")


def _misplaced(raw: int, previous_delta: int, last_offset_delta: int) -> KafkaError:
    delta = (raw >> 1) ^ -(raw & 1)
    return _invalid(f"a record has offset delta {delta} after {previous_delta}, in a batch up to {last_offset_delta}")


def encode_payload(records: Sequence[RecordLike], *, base_offset: int, base_timestamp: int) -> bytes:
    """The offsets must rise from `base_offset` on."""
    parts: list[Bytes] = []
    previous_delta = -1
    for offset, timestamp, key, value, headers in records:
        delta = offset - base_offset
        assert delta > previous_delta, "the offsets of a batch rise from its base offset on"
        previous_delta = delta
        parts.append(encode_record(timestamp - base_timestamp, delta, key, value, headers))
    return b"".join(parts)


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: Bytes | None,
    value: Bytes | None,
    headers: Sequence[tuple[str, Bytes | None]],
) -> bytes:
    small = SMALL_VARINTS
    head = b"\x00"
    head += small[timestamp_delta] if 0 <= timestamp_delta < _SMALL_MAX else encode_varint(timestamp_delta)
    head += small[offset_delta] if 0 <= offset_delta < _SMALL_MAX else encode_varint(offset_delta)
    if key is None:
        head += b"\x01"
    else:
        size = len(key)
        head += small[size] if size < _SMALL_MAX else encode_varint(size)
        head += key
    tail = _encode_headers(headers) if headers else b"\x00"
    if value is None:
        return b"".join((encode_varint(len(head) + 1 + len(tail)), head, b"\x01", tail))
    size = len(value)
    head += small[size] if size < _SMALL_MAX else encode_varint(size)
    size += len(head) + len(tail)
    return b"".join((small[size] if size < _SMALL_MAX else encode_varint(size), head, value, tail))


def _encode_headers(headers: Sequence[tuple[str, Bytes | None]]) -> bytes:
    parts: list[Bytes] = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(encoded)), encoded)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)

"""The columns of a topic, as Spark's own Kafka connector names and types them, and how a chunk of batches fills them.

`open_together` reads all records of a chunk at once (`records`), and copies keys and values once, from the buffer into
their columns. `open_singly` reads one after the other by `wire.records`: it knows what is wrong with damaged ones, and
takes the few that numpy is not made for. Both give the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Bytes
from tailrace.spark.arrow.records import (
    Blobs,
    Booleans,
    Fields,
    Ints,
    Octets,
    OddRecordsError,
    find_records,
    read_fields,
    read_headers,
)
from tailrace.wire.records import LOG_APPEND_TIME_BIT, BatchHeader, Record, TimestampType, iterate_unpacked

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),  # null where a record has none
}
COLUMN_NAMES = tuple(_TYPES)

_MICROSECONDS_A_MILLISECOND = 1000
_TIMESTAMP_MS_MAX = ((1 << 63) - 1) // _MICROSECONDS_A_MILLISECOND


class Columns(NamedTuple):
    """Which columns, in which order."""

    names: tuple[str, ...] = COLUMN_NAMES


def arrow_schema(columns: Columns) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns.names])


class Chunk(NamedTuple):
    """Batches whose records, decompressed, are in one buffer, one batch behind the other. The records of each go from
    its start to its end."""

    headers: list[BatchHeader]
    starts: list[int]
    ends: list[int]
    buffer: Bytes


class Opened(NamedTuple):
    """The offsets of a chunk's records, and those of the other columns that were asked for."""

    offsets: Ints
    columns: dict[str, pa.Array]


class _Batches(NamedTuple):
    """What the headers of a chunk say, one element a batch."""

    base_offset: Ints
    last_offset: Ints
    timestamp: Ints  # the first one; with append time, the one of all records
    has_append_time: Booleans
    record_count: Ints


def open_together(chunk: Chunk, names: Collection[str]) -> Opened:
    """Raises OddRecordsError for what has to be read singly."""
    batches = _read_headers(chunk.headers)
    begin, end = find_records(chunk.buffer, chunk.starts, chunk.ends, batches.record_count)
    data = np.frombuffer(chunk.buffer, np.uint8)
    fields = read_fields(data, begin, end)
    offsets = _offsets(batches, fields.offset_delta)
    makers: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: binary_array(chunk.buffer, fields.key),
        "value": lambda: binary_array(chunk.buffer, fields.value),
        "timestampType": lambda: _timestamp_type_array(batches),
        "headers": lambda: _headers_array(chunk.buffer, data, fields),
        # Behind all that may be damaged: a time that Spark cannot hold is not.
        "timestamp": lambda: _timestamp_array(_timestamps(batches, fields.timestamp_delta), offsets),
    }
    return Opened(offsets, {name: make() for name, make in makers.items() if name in names})


def _read_headers(headers: list[BatchHeader]) -> _Batches:
    columns = dict(zip(BatchHeader._fields, zip(*headers, strict=True), strict=True))
    base_offset = np.array(columns["base_offset"], np.int64)
    has_append_time = np.array(columns["attributes"]) & LOG_APPEND_TIME_BIT != 0
    return _Batches(
        base_offset,
        base_offset + columns["last_offset_delta"],
        np.where(has_append_time, columns["max_timestamp"], columns["base_timestamp"]),
        has_append_time,
        np.array(columns["record_count"]),
    )


def _offsets(batches: _Batches, delta: Ints) -> Ints:
    offsets: Ints = np.repeat(batches.base_offset, batches.record_count) + delta
    last_in_batch = offsets[np.cumsum(batches.record_count) - 1]
    if (last_in_batch > batches.last_offset).any() or (offsets[1:] <= offsets[:-1]).any():
        raise OddRecordsError
    return offsets


def _timestamps(batches: _Batches, delta: Ints) -> Ints:
    if batches.has_append_time.any():
        delta = np.where(np.repeat(batches.has_append_time, batches.record_count), 0, delta)
    base = np.repeat(batches.timestamp, batches.record_count)
    timestamps: Ints = base + delta
    if ((timestamps ^ base) & (timestamps ^ delta) < 0).any():
        raise OddRecordsError  # The sum has left the 64 bits.
    return timestamps


def binary_array(buffer: Bytes, blobs: Blobs) -> pa.Array:
    """One array over the whole buffer has the blobs at its even places and what lies between them at the odd ones; to
    take the even ones is the one copy."""
    count = len(blobs.start)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = blobs.start
    bounds[1::2] = blobs.start + blobs.size
    parts = [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    interleaved = pa.Array.from_buffers(pa.binary(), 2 * count - 1, parts)
    even = np.arange(0, 2 * count, 2, dtype=np.int32)
    return interleaved.take(pa.array(even, mask=blobs.is_null))


def _headers_array(buffer: Bytes, data: Octets, fields: Fields) -> pa.Array:
    count = fields.header_count
    if not count.any():
        return pa.nulls(len(count), _TYPES["headers"])
    headers = read_headers(data, fields)
    try:
        names = binary_array(buffer, headers.name).cast(pa.string())
    except pa.ArrowInvalid:
        raise OddRecordsError from None  # A name that is not UTF-8.
    pairs = pa.StructArray.from_arrays([names, binary_array(buffer, headers.value)], fields=list(_HEADER))
    bounds = np.zeros(len(count) + 1, np.int32)
    np.cumsum(count, out=bounds[1:])
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=_TYPES["headers"], mask=pa.array(count == 0))


def open_singly(chunk: Chunk, names: Collection[str]) -> Opened:
    """Raises KafkaError for whatever lies."""
    rows: list[Record] = []
    for header, start, end in zip(chunk.headers, chunk.starts, chunk.ends, strict=True):
        rows += iterate_unpacked(header, bytes(chunk.buffer[start:end]))
    offsets = np.array([row.offset for row in rows], np.int64)
    makers: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: pa.array([row.key for row in rows], pa.binary()),
        "value": lambda: pa.array([row.value for row in rows], pa.binary()),
        "timestamp": lambda: _timestamp_array(np.array([row.timestamp for row in rows], np.int64), offsets),
        "timestampType": lambda: _timestamp_type_array(_read_headers(chunk.headers)),
        "headers": lambda: pa.array([_named_headers(row) for row in rows], _TYPES["headers"]),
    }
    return Opened(offsets, {name: make() for name, make in makers.items() if name in names})


def _named_headers(record: Record) -> list[dict[str, str | bytes | None]] | None:
    return [{"key": _readable(name), "value": value} for name, value in record.headers] or None


def _readable(name: str) -> str:
    """With the replacement character for what is not UTF-8, as Kafka's own client shows it."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# --- for both


def _timestamp_array(timestamps: Ints, offsets: Ints) -> pa.Array:
    is_too_far = (timestamps > _TIMESTAMP_MS_MAX) | (timestamps < -_TIMESTAMP_MS_MAX)
    if is_too_far.any():
        first = int(is_too_far.argmax())
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the record at offset {offsets[first]} has a timestamp of {timestamps[first]} ms, which Spark cannot "
            "hold: leave the column timestamp out",
        )
    microseconds = pa.py_buffer(timestamps * _MICROSECONDS_A_MILLISECOND)
    return pa.Array.from_buffers(_TYPES["timestamp"], len(timestamps), [None, microseconds])


def _timestamp_type_array(batches: _Batches) -> pa.Array:
    types = np.where(batches.has_append_time, TimestampType.LOG_APPEND_TIME, TimestampType.CREATE_TIME)
    return pa.array(np.repeat(types.astype(np.int32), batches.record_count))

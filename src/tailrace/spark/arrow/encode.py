"""Arrow columns -> record batches, without a Python step for each record.

    length | attributes 0 | timestamp delta 0 | offset delta | key length | key | value length | value | headers

numpy writes the numbers of all records, as one binary column for each run of them, and Arrow joins these columns with
those of keys and values row by row: the joined column's buffer is the payload. Records are put in the order of their
partitions first, so each batch is a piece of that buffer, with room for its header, and needs no copy.

All records of a call have one timestamp, the time of writing, as with Spark's own sink, which takes none either. What
depends on who writes (producer id, epoch, sequence) is added by `EncodedBatch.seal`, when the batch is about to leave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tailrace.client.lanes import ANONYMOUS, ProducerIdentity, ProducerOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_EPOCH, NO_SEQUENCE, TopicPartition
from tailrace.model.ports import Bytes
from tailrace.wire.compression import Compression, compress
from tailrace.wire.records import (
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Record,
    build_batch,
    iterate_records,
    stamp_header,
)

_Numbers = NDArray[np.int64]

_EMPTY = pa.scalar(b"", pa.binary())
_NO_HEADERS = pa.scalar(b"\0", pa.binary())
# Attributes and timestamp delta of a record, one byte each.
_FIXED_BYTES = 2
# What we have compressed ourselves needs no bound.
_OWN_BYTES_MAX = 2**31 - 1


class EncodedBatch(NamedTuple):
    """The records of one batch, before it is known under which identity they are written."""

    partition: TopicPartition
    batch: bytearray | memoryview  # room for the header, then the records, compressed where `compression` says so
    record_count: int
    compression: Compression
    timestamp: int

    def seal(self, identity: ProducerIdentity, base_sequence: int, *, transactional: bool) -> Bytes:
        """The whole batch with header and CRC, as it is sent, and sent again."""
        attributes = self.compression | (TRANSACTIONAL_BIT if transactional else 0)
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=self.record_count - 1,
            base_timestamp=self.timestamp,
            max_timestamp=self.timestamp,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        stamp_header(self.batch, header)
        return self.batch

    def split(self) -> tuple[EncodedBatch, EncodedBatch]:
        """Two batches of half the records each: record by record, for this is rare."""
        whole = self.seal(ANONYMOUS, NO_SEQUENCE, transactional=False)
        records = list(iterate_records(whole, max_decompressed_bytes=_OWN_BYTES_MAX))
        half = len(records) // 2
        return self._with(records[:half]), self._with(records[half:])

    def _with(self, records: Sequence[Record]) -> EncodedBatch:
        batch = bytearray(
            build_batch([(index, *each[1:]) for index, each in enumerate(records)], compression=self.compression)
        )
        return self._replace(batch=batch, record_count=len(records))


@dataclass(frozen=True, eq=False)
class Records:
    """The columns of records, all of the same length: made by `of`."""

    key: pa.BinaryArray | None
    value: pa.BinaryArray
    headers: pa.BinaryArray | None  # each record's, encoded; None: no record has one
    key_lengths: _Numbers  # -1 of a null
    value_lengths: _Numbers
    # What the length of each record counts, but for the offset delta, which is not known before batches are cut.
    body_sizes: _Numbers

    @classmethod
    def of(cls, *, key: pa.Array | None, value: pa.Array, headers: pa.ListArray | None) -> Records:
        """Keys and values are strings or bytes; headers are lists of (string, bytes). Raises KafkaError for a header
        without a name."""
        keys = None if key is None else _as_binary(key)
        values = _as_binary(value)
        key_lengths = np.full(len(values), -1) if keys is None else _lengths(keys)
        value_lengths = _lengths(values)
        encoded = None if headers is None else _encode_headers(headers)
        body_sizes = (
            _FIXED_BYTES
            + _varint_sizes(key_lengths)
            + np.maximum(key_lengths, 0)
            + _varint_sizes(value_lengths)
            + np.maximum(value_lengths, 0)
            + (1 if encoded is None else _lengths(encoded))
        )
        return cls(keys, values, encoded, key_lengths, value_lengths, body_sizes)

    def __len__(self) -> int:
        return len(self.value)

    def sizes_max(self) -> _Numbers:
        """What each record takes in a batch, at most."""
        with_offset = self.body_sizes + _varint_sizes(np.array([len(self)]))
        return with_offset + _varint_sizes(with_offset)

    def in_order(self, order: NDArray[np.intp]) -> Records:
        indexes = pa.array(order)
        return Records(
            None if self.key is None else self.key.take(indexes),
            self.value.take(indexes),
            None if self.headers is None else self.headers.take(indexes),
            self.key_lengths[order],
            self.value_lengths[order],
            self.body_sizes[order],
        )


def encode(
    records: Records,
    destinations: NDArray[np.intp],
    partitions: Sequence[TopicPartition],
    options: ProducerOptions,
    *,
    timestamp: int,
) -> Iterator[EncodedBatch]:
    """The batches of these records, of which the one at `i` goes to `partitions[destinations[i]]`. Records of one
    partition keep their order. A batch has at most `batch_bytes` before compression, or a single record."""
    if not len(records):
        return
    if np.any(destinations[1:] < destinations[:-1]):
        # Numbers this small are sorted by counting, ten times as fast.
        order = np.argsort(destinations.astype(np.min_scalar_type(len(partitions))), kind="stable")
        records, destinations = records.in_order(order), destinations[order]
    starts = _cut(records.sizes_max(), destinations, options.batch_bytes - HEADER_SIZE)
    ends = [*starts[1:], len(records)]
    joined = _join(records, np.array(starts))
    positions = _offsets(joined)
    data = memoryview(joined.buffers()[2])
    for start, end in zip(starts, ends, strict=True):
        batch: bytearray | memoryview = data[positions[start] : positions[end]]
        if options.compression is not Compression.NONE:
            payload = compress(options.compression, bytes(batch[HEADER_SIZE:]), options.level)
            batch = bytearray(HEADER_SIZE) + payload
        where = partitions[destinations[start]]
        yield EncodedBatch(where, batch, end - start, options.compression, timestamp)


def _cut(sizes: _Numbers, destinations: NDArray[np.intp], bytes_max: int) -> list[int]:
    """Where the batches begin; equal destinations stand together."""
    ends = np.cumsum(sizes)
    borders = [0, *(np.flatnonzero(np.diff(destinations)) + 1).tolist(), len(sizes)]
    starts = []
    for first, border in pairwise(borders):
        start = first
        while start < border:
            starts.append(start)
            full = int(np.searchsorted(ends, ends[start] - sizes[start] + bytes_max, side="right"))
            start = max(full, start + 1)
    return starts


def _join(records: Records, starts: _Numbers) -> pa.BinaryArray:
    """Each record as its bytes; before the first of a batch there is room for the header."""
    counts = np.diff(starts, append=len(records))
    offset_deltas = np.arange(len(records)) - np.repeat(starts, counts)
    bodies = records.body_sizes + _varint_sizes(offset_deltas)
    fixed = _Varints(np.zeros((len(records), _FIXED_BYTES), np.uint8), np.full(len(records), _FIXED_BYTES))
    numbers = [_varints(bodies), fixed, _varints(offset_deltas), _varints(records.key_lengths)]
    parts = [_room_for_headers(starts, len(records)), _column(numbers), *([] if records.key is None else [records.key])]
    parts += [_column([_varints(records.value_lengths)]), records.value]
    parts += [_NO_HEADERS if records.headers is None else records.headers]
    return _concatenate(parts)


def _room_for_headers(starts: _Numbers, count: int) -> pa.BinaryArray:
    borders = np.zeros(count + 1, np.int32)
    borders[starts + 1] = HEADER_SIZE
    return _binary(np.cumsum(borders, dtype=np.int32), pa.py_buffer(bytes(HEADER_SIZE * len(starts))))


def _encode_headers(headers: pa.ListArray) -> pa.BinaryArray:
    """What stands at the end of each record: the count of its headers, and these."""
    names, values = headers.flatten().flatten()
    if names.null_count:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            "column headers has an entry without a key, which Kafka does not take: fill it or filter it out",
        )
    names, values = _as_binary(names), _as_binary(values)
    each = _concatenate([_column([_varints(_lengths(names))]), names, _column([_varints(_lengths(values))]), values])
    counts = pc.list_value_length(headers).fill_null(0).to_numpy().astype(np.int64)
    borders = _offsets(each)[np.concatenate(([0], np.cumsum(counts)))].astype(np.int32)
    of_rows = _binary(borders, each.buffers()[2])
    return _concatenate([_column([_varints(counts)]), of_rows])


# --- numbers as zigzag varints


class _Varints(NamedTuple):
    bytes: NDArray[np.uint8]  # a row for each number, as wide as the longest
    sizes: _Numbers  # how much of its row each number takes


def _varint_sizes(numbers: _Numbers) -> _Numbers:
    zigzag = (numbers << 1) ^ (numbers >> 63)
    sizes = np.ones(len(numbers), np.int64)
    largest = int(zigzag.max(initial=0))
    for bits in range(7, 64, 7):
        if largest >> bits == 0:
            break
        sizes += zigzag >> bits != 0
    return sizes


def _varints(numbers: _Numbers) -> _Varints:
    sizes = _varint_sizes(numbers)
    width = int(sizes.max(initial=1))
    zigzag = (numbers << 1) ^ (numbers >> 63)
    encoded = np.empty((len(numbers), width), np.uint8)
    for index in range(width):
        more = (sizes > index + 1).astype(np.uint8) << 7
        encoded[:, index] = (zigzag >> 7 * index & 0x7F).astype(np.uint8) | more
    return _Varints(encoded, sizes)


def _column(numbers: Sequence[_Varints]) -> pa.BinaryArray:
    """The numbers of each row, one after the other."""
    sizes = np.sum([each.sizes for each in numbers], axis=0)
    rows = np.concatenate([each.bytes for each in numbers], axis=1)
    if np.any(sizes != rows.shape[1]):
        used = [np.arange(each.bytes.shape[1]) < each.sizes[:, None] for each in numbers]
        rows = rows[np.concatenate(used, axis=1)]
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return _binary(offsets, pa.py_buffer(np.ascontiguousarray(rows).reshape(-1)))


# --- Arrow's binary columns


def _binary(offsets: NDArray[np.int32], data: pa.Buffer) -> pa.BinaryArray:
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])


def _as_binary(column: pa.Array) -> pa.BinaryArray:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _lengths(column: pa.BinaryArray) -> _Numbers:
    """A null has length -1, as in a record."""
    lengths: _Numbers = pc.binary_length(column).fill_null(-1).to_numpy().astype(np.int64)
    return lengths


def _offsets(column: pa.BinaryArray) -> NDArray[np.int32]:
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _concatenate(columns: Sequence[pa.BinaryArray | pa.BinaryScalar]) -> pa.BinaryArray:
    """Row by row; a null adds nothing."""
    return pc.binary_join_element_wise(*columns, _EMPTY, null_handling="replace", null_replacement=b"")

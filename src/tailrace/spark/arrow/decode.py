"""Fetched batches in, Arrow record batches out: the rows of a range of one partition, in the order of their offsets.

Owns which batches are opened together, and how large an Arrow batch is; `columns` opens them. Batches are checked by
their CRC, control batches and what was aborted are left out, and nothing outside the range is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

import numpy as np
import pyarrow as pa

from tailrace.client.fetching import ConsumerOptions, iterate_batches
from tailrace.client.ranges import FetchedBatches
from tailrace.model.ids import TopicPartition
from tailrace.spark.arrow.columns import (
    COLUMN_NAMES,
    Chunk,
    Columns,
    Opened,
    arrow_schema,
    open_singly,
    open_together,
)
from tailrace.spark.arrow.records import OddRecordsError
from tailrace.wire.records import HEADER_SIZE, BatchHeader, unpack_records

__all__ = ["COLUMN_NAMES", "Columns", "Decoder", "arrow_schema"]

# How much is opened together: enough for numpy, and it stays in the processor's cache.
_TOGETHER_BYTES = 2 * 1024 * 1024
# Arrow's binary arrays have 32-bit offsets, and a batch comes behind those that wait.
_BATCH_BYTES_MAX = (1 << 31) - 1 - _TOGETHER_BYTES


class Decoder:
    """Opens what a RangeReader brings of [start, end) of one partition. An Arrow batch has at most `rows_max` rows, and
    at most about `bytes_max` bytes, unless a single row has more."""

    def __init__(
        self,
        partition: TopicPartition,
        start: int,
        end: int,
        columns: Columns,
        *,
        decompressed_bytes_max: int = ConsumerOptions().decompressed_bytes_max,
        rows_max: int = 10_000,
        bytes_max: int = 1024 * 1024,
    ) -> None:
        self._partition = partition
        self._start = start
        self._end = end
        self._schema = arrow_schema(columns)
        self._decompressed_bytes_max = min(decompressed_bytes_max, _BATCH_BYTES_MAX)
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def decode(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """Raises KafkaError for anything that is not as it must be."""
        position = max(self._start, fetched.position)
        pending = _Pending(position, fetched.records)
        batches = iterate_batches(
            fetched.records, self._partition, position, fetched.aborted, high_watermark=fetched.high_watermark
        )
        for start, header, is_visible in batches:
            if header.base_offset >= self._end:
                break
            if is_visible:
                # Only the first batch begins before the position, if the broker is sane; if not, no row comes twice.
                if pending.size_bytes >= _TOGETHER_BYTES or header.base_offset < position:
                    yield from self._open(pending)
                    pending = _Pending(position, fetched.records)
                pending.add(start, header, self._decompressed_bytes_max)
            position = header.next_offset
        yield from self._open(pending)

    def _open(self, pending: _Pending) -> Iterator[pa.RecordBatch]:
        chunk = pending.chunk()
        if not chunk.headers:
            return
        try:
            opened = open_together(chunk, self._schema.names)
        except OddRecordsError:
            opened = open_singly(chunk, self._schema.names)
        rows = self._arrow(opened)
        first, end = np.searchsorted(opened.offsets, (pending.floor, self._end)).tolist()
        parts = max(1, round(pending.size_bytes / self._bytes_max))
        rows_at_once = min(self._rows_max, -(-len(opened.offsets) // parts))
        for start in range(first, end, rows_at_once):
            yield rows.slice(start, min(rows_at_once, end - start))

    def _arrow(self, opened: Opened) -> pa.RecordBatch:
        count = len(opened.offsets)
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: pa.repeat(pa.scalar(self._partition.topic, pa.string()), count),
            "partition": lambda: pa.repeat(pa.scalar(self._partition.partition, pa.int32()), count),
            "offset": lambda: pa.array(opened.offsets),
        }
        arrays = [opened.columns[name] if name in opened.columns else makers[name]() for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Pending:
    """Batches that wait to be opened together. As long as none of them is compressed, they stay where they are."""

    def __init__(self, floor: int, records: memoryview) -> None:
        self.floor = floor  # Records with lower offsets are not for the reader.
        self.size_bytes = 0
        self._records = records
        self._headers: list[BatchHeader] = []
        # Where the records of each are.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._unpacked: dict[int, bytes] = {}  # by the index of the batch

    def add(self, start: int, header: BatchHeader, decompressed_bytes_max: int) -> None:
        end = start + header.size_bytes
        start += HEADER_SIZE
        size_bytes = end - start
        if header.is_compressed or header.record_count <= 0:
            payload = unpack_records(self._records[start - HEADER_SIZE : end], header, decompressed_bytes_max)
            if not payload and not header.record_count:
                return  # Compaction leaves empty batches.
            self._unpacked[len(self._headers)] = payload
            size_bytes = len(payload)
        self._headers.append(header)
        self._starts.append(start)
        self._ends.append(end)
        self.size_bytes += size_bytes

    def chunk(self) -> Chunk:
        if not self._unpacked:
            return Chunk(self._headers, self._starts, self._ends, self._records)
        places = zip(self._starts, self._ends, strict=True)
        payloads = [self._unpacked.get(index, self._records[start:end]) for index, (start, end) in enumerate(places)]
        ends = list(accumulate(map(len, payloads)))
        return Chunk(self._headers, [0, *ends[:-1]], ends, b"".join(payloads))

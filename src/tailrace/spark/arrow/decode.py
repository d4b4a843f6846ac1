"""Fetched batches in, Arrow record batches out: the rows of a range of one partition, in the order of their offsets.

Owns which batches are opened together, and how large an Arrow batch is; `columns` opens them. Batches are checked by
their CRC, control batches and what was aborted are left out, and nothing outside the range is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from tailrace.client.fetching import ConsumerOptions, iterate_batches
from tailrace.client.ranges import FetchedBatches
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Bytes
from tailrace.spark.arrow.columns import (
    COLUMN_NAMES,
    Chunk,
    Columns,
    Opened,
    arrow_schema,
    open_singly,
    open_together,
)
from tailrace.spark.arrow.records import OddRecordsError, Payload
from tailrace.wire.records import HEADER_SIZE, BatchHeader, unpack_records

__all__ = ["COLUMN_NAMES", "Columns", "Decoder", "arrow_schema"]

# How much is opened together: enough for numpy, and it stays in the processor's cache.
_TOGETHER_BYTES = 4 * 1024 * 1024
# Arrow's binary arrays have 32-bit offsets.
_BUFFER_BYTES_MAX = (1 << 31) - 1


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
        self._decompressed_bytes_max = min(decompressed_bytes_max, _BUFFER_BYTES_MAX)
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def decode(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """Raises KafkaError for anything that is not as it must be."""
        position = max(self._start, fetched.position)
        pending = _Pending(position)
        for header, batch in iterate_batches(fetched.records, self._partition, position, fetched.aborted):
            if header.base_offset >= self._end:
                break
            if batch is not None:
                payload = self._unpack(header, batch)
                # Only the first batch begins before the position, if the broker is sane; if not, no row comes twice.
                if pending.size_bytes + len(payload) > _TOGETHER_BYTES or header.base_offset < position:
                    yield from self._open(pending)
                    pending = _Pending(position)
                pending.add(header, payload)
            position = header.next_offset
        yield from self._open(pending)

    def _unpack(self, header: BatchHeader, batch: memoryview) -> Bytes:
        if header.record_count > 0 and not header.is_compressed:
            return batch[HEADER_SIZE:]  # Copied with the others of its chunk.
        return unpack_records(batch, header, self._decompressed_bytes_max)

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
        rows_at_once = min(self._rows_max, max(1, len(rows) * self._bytes_max // max(1, len(chunk.buffer))))
        for start in range(first, end, rows_at_once):
            yield rows.slice(start, min(rows_at_once, end - start))

    def _arrow(self, opened: Opened) -> pa.RecordBatch:
        count = len(opened.offsets)
        makers = {
            "topic": lambda: pa.repeat(pa.scalar(self._partition.topic, pa.string()), count),
            "partition": lambda: pa.repeat(pa.scalar(self._partition.partition, pa.int32()), count),
            "offset": lambda: pa.array(opened.offsets),
        }
        arrays = [opened.columns[name] if name in opened.columns else makers[name]() for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Pending:
    """Batches that wait to be opened together."""

    def __init__(self, floor: int) -> None:
        self.floor = floor  # Records before it are not for the reader.
        self.size_bytes = 0
        self._headers: list[BatchHeader] = []
        self._payloads: list[Bytes] = []

    def add(self, header: BatchHeader, payload: Bytes) -> None:
        if payload or header.record_count:  # Compaction leaves empty batches.
            self._headers.append(header)
            self._payloads.append(payload)
            self.size_bytes += len(payload)

    def chunk(self) -> Chunk:
        bounds = pairwise(accumulate(map(len, self._payloads), initial=0))
        places = [Payload(*bound, header.record_count) for bound, header in zip(bounds, self._headers, strict=True)]
        return Chunk(self._headers, places, b"".join(self._payloads))

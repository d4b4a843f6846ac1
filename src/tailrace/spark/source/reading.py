"""What a task does: reads its ranges from their leaders, one after the other, and gives them to Spark as Arrow batches.

While one range is decoded, the first fetches of the next ones are under way.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from tailrace.client.fetching import ConsumerOptions
from tailrace.client.ranges import OffsetsLostError, RangeReader
from tailrace.spark.arrow.decode import Columns, Decoder
from tailrace.spark.blocking import BlockingCluster, kept_cluster
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.filters import Interval
from tailrace.spark.source.loss import LossReport
from tailrace.spark.source.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.spark.tier.planning import Split
    from tailrace.spark.values import RecordFormat

# A broker answers a small fetch in less time than the worker takes to decode one: more would only wait.
_RANGES_AHEAD = 2


@dataclass(frozen=True)
class SplitReading:
    """How every task of a query reads its split, which an InputPartition has as its value."""

    options: ReadOptions
    record_format: RecordFormat | None
    # A filter that Spark pushed down: the query has the column then.
    timestamps_us: Interval | None = None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own if a batch query has none.
        return iter(()) if partition.value is None else self._read(partition.value)

    def _read(self, wanted: tuple[Split, ...]) -> Iterator[pa.RecordBatch]:
        columns = self.options.columns
        if self.record_format is not None:
            columns = self.record_format.raw_columns(columns)
        # Whoever decodes may fail in the middle: reading has to end before the connection does.
        with (
            kept_cluster(self.options.kafka) as blocking,
            closing(self._read_splits(wanted, columns, blocking)) as raw,
        ):
            batches: Iterator[pa.RecordBatch] = raw
            if self.timestamps_us is not None:
                batches = _keep_times(batches, self.timestamps_us)
            if self.record_format is not None:
                batches = self.record_format.decode(batches, self.options.columns, blocking, self.options.kafka)
            yield from batches

    def _read_splits(
        self, wanted: tuple[Split, ...], columns: tuple[str, ...], blocking: BlockingCluster
    ) -> Generator[pa.RecordBatch]:
        readers = _Readers(wanted, self._consumer, blocking)
        try:
            for split in wanted:
                if isinstance(split, OffsetRange):
                    yield from self._read_raw(split, columns, blocking, readers.next())
                    continue
                from tailrace.spark.tier.reading import TierReading

                rest = yield from TierReading(split, self.options, columns).read(blocking)
                if rest is not None:
                    yield from self._read_raw(rest, columns, blocking)
        finally:
            readers.close()

    def _read_raw(
        self,
        wanted: OffsetRange,
        columns: tuple[str, ...],
        blocking: BlockingCluster,
        reader: RangeReader | None = None,
    ) -> Generator[pa.RecordBatch]:
        partition, start, end = wanted
        losses = LossReport(fail_on_data_loss=self.options.fail_on_data_loss)
        settings = self._consumer
        decoder = Decoder(
            partition, start, end, Columns(columns), decompressed_bytes_max=settings.decompressed_bytes_max
        )
        while start < end:
            reader = reader or RangeReader(blocking.cluster, partition, start, end, settings)
            try:
                while (fetched := blocking.run(reader.next())) is not None:
                    yield from decoder.decode(fetched)
                return
            except OffsetsLostError as lost:
                losses.add(lost.message)
                start = lost.end
            finally:
                blocking.run(reader.close())
                reader = None

    @property
    def _consumer(self) -> ConsumerOptions:
        return self.options.kafka.consumer._replace(retry_timeout_ms=self.options.poll_timeout_ms)


class _Readers:
    """Of the ranges of a task, in their order; the first fetches of the next few are under way."""

    def __init__(self, wanted: Iterable[Split], options: ConsumerOptions, blocking: BlockingCluster) -> None:
        self._blocking = blocking
        self._coming = iter(
            [RangeReader(blocking.cluster, *each, options) for each in wanted if isinstance(each, OffsetRange)]
        )
        self._begun: deque[RangeReader] = deque()

    def next(self) -> RangeReader:
        """Whoever has it closes it."""
        begun = list(islice(self._coming, _RANGES_AHEAD + 1 - len(self._begun)))
        if len(begun) + len(self._begun) > 1:  # A range alone is begun by its first `next`.
            self._blocking.run(_begin(begun))
        self._begun += begun
        return self._begun.popleft()

    def close(self) -> None:
        for reader in self._begun:
            self._blocking.run(reader.close())


async def _begin(readers: Iterable[RangeReader]) -> None:
    for reader in readers:
        reader.begin()
    await asyncio.sleep(0)


def _keep_times(batches: Iterator[pa.RecordBatch], timestamps_us: Interval) -> Iterator[pa.RecordBatch]:
    import numpy as np
    import pyarrow as pa

    for batch in batches:
        times = batch.column("timestamp").cast(pa.int64()).to_numpy()
        kept = np.ones(len(times), dtype=bool)
        if timestamps_us.start > -math.inf:
            kept &= times >= int(timestamps_us.start)
        if timestamps_us.end < math.inf:
            kept &= times < int(timestamps_us.end)
        if kept.all():
            yield batch
        elif kept.any():
            yield batch.filter(pa.array(kept))

"""What a task does: reads its range from the partition's leader and gives it to Spark as Arrow batches."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from tailrace.client.ranges import OffsetsLostError, RangeReader
from tailrace.spark.arrow.decode import Columns, Decoder
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.filters import Interval
from tailrace.spark.source.loss import LossReport
from tailrace.spark.source.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.spark.tier.planning import Split
    from tailrace.spark.values import RecordFormat


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

    def _read(self, wanted: Split) -> Iterator[pa.RecordBatch]:
        columns = self.options.columns
        if self.record_format is not None:
            columns = self.record_format.raw_columns(columns)
        # Whoever decodes may fail in the middle: reading has to end before the connection does.
        with (
            BlockingCluster(self.options.kafka) as blocking,
            closing(self._read_split(wanted, columns, blocking)) as raw,
        ):
            batches: Iterator[pa.RecordBatch] = raw
            if self.timestamps_us is not None:
                batches = _keep_times(batches, self.timestamps_us)
            if self.record_format is not None:
                batches = self.record_format.decode(batches, self.options.columns, blocking, self.options.kafka)
            yield from batches

    def _read_split(
        self, wanted: Split, columns: tuple[str, ...], blocking: BlockingCluster
    ) -> Generator[pa.RecordBatch]:
        if isinstance(wanted, OffsetRange):
            yield from self._read_raw(wanted, columns, blocking)
            return
        from tailrace.spark.tier.reading import TierReading

        rest = yield from TierReading(wanted, self.options, columns).read(blocking)
        if rest is not None:
            yield from self._read_raw(rest, columns, blocking)

    def _read_raw(
        self, wanted: OffsetRange, columns: tuple[str, ...], blocking: BlockingCluster
    ) -> Generator[pa.RecordBatch]:
        partition, start, end = wanted
        losses = LossReport(fail_on_data_loss=self.options.fail_on_data_loss)
        settings = self.options.kafka.consumer._replace(retry_timeout_ms=self.options.poll_timeout_ms)
        decoder = Decoder(
            partition, start, end, Columns(columns), decompressed_bytes_max=settings.decompressed_bytes_max
        )
        while start < end:
            reader = RangeReader(blocking.cluster, partition, start, end, settings)
            try:
                while (fetched := blocking.run(reader.next())) is not None:
                    yield from decoder.decode(fetched)
                return
            except OffsetsLostError as lost:
                losses.add(lost.message)
                start = lost.end
            finally:
                blocking.run(reader.close())


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

"""What a task does: reads its ranges from their leaders, one after the other, and gives them to Spark as Arrow batches.

While one range is decoded, the first fetches of the next ones are under way.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import InputPartition

from tailrace.client.fetching import ConsumerOptions
from tailrace.client.ranges import OffsetsLostError, RangeReader
from tailrace.model.ids import Uuid
from tailrace.spark.arrow.decode import Columns, Decoder
from tailrace.spark.blocking import BlockingCluster, kept_cluster
from tailrace.spark.options.claims import NEEDED
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.filters import Interval
from tailrace.spark.source.loss import LossReport
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.source.splits import share_tasks

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.spark.tier.planning import Split
    from tailrace.spark.values import RecordFormat

# A broker answers a small fetch in less time than the worker takes to decode one: more would only wait.
_RANGES_AHEAD = 2


class TaskInput(NamedTuple):
    """What a task reads, one after the other, and of which topics: none else of the same names."""

    splits: tuple[Split, ...]
    topic_ids: Mapping[str, Uuid]


def task_inputs(splits: Iterable[Split], options: ReadOptions, topic_ids: Mapping[str, Uuid]) -> list[InputPartition]:
    inputs = []
    for shared in share_tasks(splits, options.records_per_task):
        topics = {each.partition.topic for each in shared if isinstance(each, OffsetRange)}
        topics |= {each.wanted.partition.topic for each in shared if not isinstance(each, OffsetRange)}
        inputs.append(InputPartition(TaskInput(shared, {name: topic_ids[name] for name in topics & topic_ids.keys()})))
    return inputs


@dataclass(frozen=True)
class SplitReading:
    """How every task of a query reads its split, which an InputPartition has as its value."""

    options: ReadOptions
    record_format: RecordFormat | None
    # A filter that Spark pushed down: the query has the column then.
    timestamps_us: Interval | None = None

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own if a batch query has none, and before 4.2 not even that.
        wanted = None if partition is None else partition.value
        return iter(()) if wanted is None else self._read(wanted)

    def _read(self, wanted: TaskInput) -> Iterator[pa.RecordBatch]:
        columns = self.options.columns
        if self.record_format is not None:
            columns = self.record_format.raw_columns(columns)
        claims, unresolved = self.options.claims, columns
        if claims is not None and "value" in columns:
            unresolved = tuple(dict.fromkeys((*columns, *NEEDED)))
        # Whoever decodes may fail in the middle: reading has to end before the connection does.
        with (
            kept_cluster(self.options.kafka) as blocking,
            closing(self._read_splits(wanted, unresolved, blocking)) as raw,
        ):
            batches: Iterator[pa.RecordBatch] = raw
            if self.timestamps_us is not None:
                batches = _keep_times(batches, self.timestamps_us)
            if claims is not None and "value" in columns:
                from tailrace.spark.values.claims import resolve_claims

                batches = resolve_claims(batches, columns, claims, blocking)
            if self.record_format is not None:
                batches = self.record_format.decode(batches, self.options.columns, blocking, self.options.kafka)
            yield from batches

    def _read_splits(
        self, wanted: TaskInput, columns: tuple[str, ...], blocking: BlockingCluster
    ) -> Generator[pa.RecordBatch]:
        readers = _Readers(wanted, self._consumer, blocking)
        try:
            for split in wanted.splits:
                if isinstance(split, OffsetRange):
                    yield from self._read_raw(split, columns, blocking, readers)
                    continue
                from tailrace.spark.tier.reading import TierReading

                rest = yield from TierReading(split, self.options, columns).read(blocking)
                if rest is not None:
                    yield from self._read_raw(rest, columns, blocking, readers)
        finally:
            readers.close()

    def _read_raw(
        self, wanted: OffsetRange, columns: tuple[str, ...], blocking: BlockingCluster, readers: _Readers
    ) -> Generator[pa.RecordBatch]:
        partition, start, end = wanted
        losses = LossReport(fail_on_data_loss=self.options.fail_on_data_loss)
        decompressed_bytes_max = self.options.kafka.consumer.decompressed_bytes_max
        decoder = Decoder(partition, start, end, Columns(columns), decompressed_bytes_max=decompressed_bytes_max)
        while start < end:
            reader = readers.of(OffsetRange(partition, start, end))
            try:
                while (fetched := blocking.run(reader.next())) is not None:
                    yield from decoder.decode(fetched)
                return
            except OffsetsLostError as lost:
                losses.add(lost.message)
                start = lost.end
            finally:
                blocking.run(reader.close())

    @property
    def _consumer(self) -> ConsumerOptions:
        return self.options.kafka.consumer._replace(retry_timeout_ms=self.options.poll_timeout_ms)


class _Readers:
    """Of the ranges of a task, in their order; the first fetches of the next few are under way."""

    def __init__(self, wanted: TaskInput, options: ConsumerOptions, blocking: BlockingCluster) -> None:
        self._options = options
        self._topic_ids = wanted.topic_ids
        self._blocking = blocking
        self._coming = deque(each for each in wanted.splits if isinstance(each, OffsetRange))
        self._begun: deque[tuple[OffsetRange, RangeReader]] = deque()

    def of(self, wanted: OffsetRange) -> RangeReader:
        """Whoever has it closes it."""
        begun: list[RangeReader] = []
        while self._coming and len(self._begun) <= _RANGES_AHEAD:
            coming = self._coming.popleft()
            begun.append(self._reader(coming))
            self._begun.append((coming, begun[-1]))
        if begun and len(self._begun) > 1:  # A range alone is begun by its first `next`.
            self._blocking.run(_begin(begun))
        if self._begun and self._begun[0][0] == wanted:
            return self._begun.popleft()[1]
        return self._reader(wanted)  # The rest of a range, of which some is lost or was in the tier.

    def close(self) -> None:
        for _, reader in self._begun:
            self._blocking.run(reader.close())

    def _reader(self, wanted: OffsetRange) -> RangeReader:
        topic_id = self._topic_ids.get(wanted.partition.topic)
        return RangeReader(self._blocking.cluster, *wanted, self._options, topic_id=topic_id)


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

"""How far behind a pipeline is: records that no finished batch has taken, and how old the oldest of them is.

Asked of the brokers, and never of the running query, which may hang. A number that nobody can tell is None. Of many
partitions that lag, only those that lag most are asked how old their next record is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from tailrace.client.consumer import Consumer
from tailrace.client.metadata import Cluster
from tailrace.client.offsets import EARLIEST, LATEST, list_offsets
from tailrace.model.ids import TopicPartition
from tailrace.spark.options.bounds import AtOffsets, EndOfLog
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.pipelines.declaration import Pipeline, TopicSource
from tailrace.spark.pipelines.rows import source_options
from tailrace.spark.source.lookup import OffsetLookup

_AGED_PARTITIONS_MAX = 32
_AGE_TIMEOUT_S = 5.0
# Of each partition a record or two are wanted.
_AGE_BYTES = 64 * 1024


class PartitionLag(NamedTuple):
    partition: TopicPartition
    done: int
    end: int
    seconds: float | None  # None if it was not found out; 0 if nothing is left to take.

    @property
    def records(self) -> int:
        return max(0, self.end - self.done)


class Lag(NamedTuple):
    partitions: tuple[PartitionLag, ...]

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def seconds(self) -> float | None:
        if not self.records:
            return 0.0
        return max(
            (each.seconds for each in self.partitions if each.records and each.seconds is not None), default=None
        )


class LagReader:
    """Of one pipeline; of one with a history, of its live half. `offsets` of a question are those up to which it is
    done; a partition that is not among them counts from where the pipeline begins."""

    def __init__(self, cluster: Cluster, pipeline: Pipeline) -> None:
        self._cluster = cluster
        self._sources = [_read_options(pipeline, source) for source in pipeline.sources.values()]
        self._begins_at_a_cut = pipeline.history is not None
        self._lookups = [OffsetLookup(cluster, source) for source in self._sources]

    async def read(self, offsets: Mapping[TopicPartition, int]) -> Lag | None:
        """None if the pipeline begins at the end of its topics, and has not begun. Raises KafkaError, OptionError."""
        kafka = self._sources[0].kafka
        ends: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = dict(offsets)
        for options, lookup in zip(self._sources, self._lookups, strict=True):
            found = await lookup.latest({})
            ends |= found
            new = [each for each in found if each not in offsets]
            if new and not offsets:
                if self._begins_at_a_cut or _begins_at_the_end(options):
                    return None
                starts |= await lookup.resolve(options.start, is_start=True)
            elif new:
                # Partitions that came later are read from their beginning.
                asked = dict.fromkeys(new, EARLIEST)
                starts |= await list_offsets(
                    self._cluster, asked, isolation=kafka.isolation, timeout_ms=kafka.consumer.retry_timeout_ms
                )
        lags = [PartitionLag(each, starts.get(each, 0), ends[each], 0.0) for each in sorted(ends)]
        ages = await self._ages(sorted((each for each in lags if each.records), key=lambda each: -each.records))
        return Lag(tuple(each._replace(seconds=ages.get(each.partition)) if each.records else each for each in lags))

    async def _ages(self, behind: list[PartitionLag]) -> dict[TopicPartition, float]:
        """By the timestamps of the next records; a partition without an answer in time is left out."""
        wanted = {each.partition: each.done for each in behind[:_AGED_PARTITIONS_MAX]}
        ages: dict[TopicPartition, float] = {}
        if not wanted:
            return ages
        options = self._sources[0].kafka.consumer._replace(
            isolation=self._sources[0].kafka.isolation, partition_max_bytes=_AGE_BYTES, fetch_max_bytes=1 << 20
        )
        consumer = Consumer(self._cluster, options)
        try:
            # What retention has taken meanwhile cannot be asked for.
            earliest = await consumer.offsets_at(wanted, EARLIEST)
            await consumer.assign({each: max(offset, earliest[each]) for each, offset in wanted.items()})
            deadline = time.monotonic() + _AGE_TIMEOUT_S
            while wanted.keys() - ages.keys() and (left_s := deadline - time.monotonic()) > 0:
                answered = await consumer.poll(min(1000.0, left_s * 1000))
                if not answered:
                    break
                for partition, records in answered.items():
                    ages.setdefault(partition, max(0.0, time.time() - records[0].timestamp / 1000))
                consumer.change(added={}, removed=list(answered))
                if not wanted.keys() - ages.keys():
                    break
        finally:
            await consumer.close()
        return ages


def _read_options(pipeline: Pipeline, source: TopicSource) -> ReadOptions:
    options = {"kafka.isolation.level": "read_committed", **pipeline.kafka_options, **source_options(source)}
    return ReadOptions.parse({name.lower(): value for name, value in options.items()}, is_stream=True)


def _begins_at_the_end(options: ReadOptions) -> bool:
    match options.start:
        case EndOfLog(end):
            return end == LATEST
        case AtOffsets(offsets):
            return LATEST in offsets.values()
        case _:
            return False

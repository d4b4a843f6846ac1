"""What a backfill, or the past of a pipeline, still has before it: records, bytes, tasks. Nothing is read but a
sample, and nothing written.

Bytes in a bucket are those that its manifests name. Of what comes from brokers a sample says how large a record is,
before compression.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.client.consumer import Consumer
from tailrace.model.ids import TopicPartition
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.read import ReadOptions
from tailrace.spark.source.limits import limit_end
from tailrace.spark.source.offsets import OffsetRange
from tailrace.spark.source.planning import Planning, plan_micro_batch
from tailrace.spark.source.splits import share_tasks

if TYPE_CHECKING:
    from tailrace.spark.tier.planning import Split
    from tailrace.wire.payload import Record

# A task asks the store for so much at a time.
REQUEST_BYTES = 8 << 20
_SAMPLED_PARTITIONS = 16
_SAMPLE_BYTES = 64 * 1024
_SAMPLE_S = 5.0


class Ahead(NamedTuple):
    ranges: tuple[OffsetRange, ...]
    batch_records: int
    first_batch_tasks: int
    tier_records: int
    tier_bytes: int
    tier_requests: int
    sampled: int  # So many records say how large one is.
    sampled_bytes: int

    @property
    def records(self) -> int:
        return sum(each.size for each in self.ranges)

    @property
    def batches(self) -> int:
        return -(-self.records // self.batch_records)

    @property
    def broker_bytes(self) -> int | None:
        """None if nobody can tell."""
        left = self.records - self.tier_records
        if not left:
            return 0
        return None if not self.sampled else left * self.sampled_bytes // self.sampled


def look_ahead(
    options: Mapping[str, str],
    *,
    done: Mapping[TopicPartition, int],
    until: Mapping[TopicPartition, int] | None,
    most: int,
) -> Ahead:
    """`options` are those of a stream, `done` what was taken of it, `most` of how many records a batch is. Without
    `until` it goes up to the ends of now. Raises OptionError and KafkaError."""
    parsed = ReadOptions.parse({name.lower(): text for name, text in options.items()}, is_stream=True)
    with BlockingCluster(parsed.kafka) as blocking:
        planning = Planning(blocking, parsed)
        try:
            starts = blocking.run(planning.lookup.resolve(parsed.start, is_start=True)) | dict(done)
            ends = dict(until) if until is not None else blocking.run(planning.lookup.latest({}))
            starts = {each: min(starts.get(each, 0), end) for each, end in ends.items()}
            ranges = tuple(OffsetRange(each, starts[each], ends[each]) for each in sorted(ends))
            if not any(each.size for each in ranges):
                return Ahead((), most, 0, 0, 0, 0, 0, 0)

            def plan(end: Mapping[TopicPartition, int]) -> list[Split]:
                return blocking.run(plan_micro_batch(planning.lookup, parsed, starts, end, planning.tier))

            tasks = len(share_tasks(plan(limit_end(starts, ends, most)), parsed.records_per_task))
            tier = _tier_use(plan(ends)) if planning.tier is not None else (0, 0, 0)
            sample = (0, 0)
            if parsed.kafka.bootstrap and tier[0] < sum(each.size for each in ranges):
                sample = blocking.run(_sample(blocking, parsed, ranges))
        finally:
            planning.close()
    return Ahead(ranges, most, tasks, *tier, *sample)


def _tier_use(splits: Sequence[Split]) -> tuple[int, int, int]:
    """Records, bytes and requests."""
    records, size_bytes, requests = 0, 0, 0
    for split in splits:
        if isinstance(split, OffsetRange):
            continue
        records += split.wanted.size
        share = 0.0
        for piece in split.pieces:
            count = min(piece.end_offset, split.wanted.end) - max(piece.start_offset, split.wanted.start)
            share += piece.segment.size_bytes * count / (piece.segment.end_offset - piece.segment.base_offset)
        size_bytes += int(share)
        requests += math.ceil(share / REQUEST_BYTES)
    return records, size_bytes, requests


async def _sample(blocking: BlockingCluster, options: ReadOptions, ranges: Sequence[OffsetRange]) -> tuple[int, int]:
    """Of the middle of the largest ranges: how many records, and their bytes."""
    largest = sorted(ranges, key=lambda each: -each.size)[:_SAMPLED_PARTITIONS]
    wanted = {each.partition: each.start + each.size // 2 for each in largest if each.size}
    limits = options.kafka.consumer._replace(partition_max_bytes=_SAMPLE_BYTES, isolation=options.kafka.isolation)
    consumer = Consumer(blocking.cluster, limits)
    count, size_bytes = 0, 0
    deadline = time.monotonic() + _SAMPLE_S
    try:
        await consumer.assign(wanted)
        left = set(wanted)
        while left and (seconds := deadline - time.monotonic()) > 0:
            answered = await consumer.poll(min(1000.0, seconds * 1000))
            if not answered:
                break
            for partition, records in answered.items():
                if partition in left:
                    left.discard(partition)
                    count += len(records)
                    size_bytes += sum(map(_size, records))
            consumer.change(added={}, removed=list(answered))
    finally:
        await consumer.close()
    await asyncio.sleep(0)
    return count, size_bytes


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(k) + len(v or b"") for k, v in record.headers)

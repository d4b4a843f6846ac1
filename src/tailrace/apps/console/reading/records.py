"""Messages of a topic, read for one page: the newest, or from an offset or a time on, those that a filter takes.

Reading is bounded in records looked at, in bytes held and in time; where a bound ends it, the page says how far it got
and where to go on. Nothing is committed, and no partition is ever held as a whole. Filters raise FilterCostError.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tailrace.apps.console.reading.choosing import Filter
from tailrace.apps.console.reading.views import NO_NOTES, PLAIN, Notes, View
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.metadata import Cluster
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.payload import Record

_POLL_MS = 500
# The loop serves others too: so many records are looked at in one turn.
_TURN_RECORDS = 200
_OPTIONS = ConsumerOptions(
    fetch_max_wait_ms=300, fetch_max_bytes=8 << 20, partition_max_bytes=1 << 20, retry_timeout_ms=5_000
)


class Found(NamedTuple):
    partition: int
    record: Record  # As it is seen.
    notes: Notes = NO_NOTES


@dataclass(frozen=True)
class Bounds:
    records_max: int = 200_000  # looked at
    bytes_max: int = 64 << 20  # kept
    seconds_max: float = 5.0


BOUNDS = Bounds()


@dataclass(frozen=True)
class Query:
    topic: str
    partitions: tuple[int, ...]  # none means all
    filter: Filter | None = None  # None takes every record.
    view: View = PLAIN
    limit: int = 50
    is_committed_only: bool = False
    # One of these, or none for the newest.
    from_offset: int | None = None
    from_time_ms: int | None = None
    is_from_start: bool = False

    @property
    def is_newest(self) -> bool:
        return self.from_offset is None and self.from_time_ms is None and not self.is_from_start

    async def choose(self, partition: int, records: Sequence[Record]) -> list[Found]:
        """Those that the filter takes. Without one they are seen later: most of them never."""
        if self.filter is None:
            return [Found(partition, record) for record in records]
        await self.view.prepare(records)
        seen = [Found(partition, *self.view.see(record)) for record in records]
        taken = await self.filter.choose(partition, [each.record for each in seen])
        return [seen[place] for place in taken]

    async def see(self, found: Sequence[Found]) -> tuple[Found, ...]:
        if self.filter is not None or self.view.is_plain:
            return tuple(found)
        await self.view.prepare([each.record for each in found])
        return tuple(Found(each.partition, *self.view.see(each.record)) for each in found)


@dataclass(frozen=True)
class Page:
    """In the order of time; the newest first if they were asked for."""

    found: tuple[Found, ...]
    looked_at: int
    is_whole: bool  # nothing is left to look at


async def read_page(cluster: Cluster, query: Query, bounds: Bounds = BOUNDS) -> Page:
    consumer = Consumer(cluster, _options(query))
    try:
        partitions = await _partitions(cluster, query)
        starts = await consumer.offsets_at(partitions, EARLIEST)
        ends = await consumer.offsets_at(partitions, LATEST)
        if query.is_newest:
            page = await _read_newest(consumer, query, starts, ends, bounds)
        else:
            begins = await _begins(consumer, query, starts, ends)
            found, looked_at, is_whole = await _read(consumer, query, begins, ends, bounds)
            found.sort(key=lambda each: (each.record.timestamp, each.partition, each.record.offset))
            page = Page(tuple(found[: query.limit]), looked_at, is_whole)
        return replace(page, found=await query.see(page.found))
    finally:
        await consumer.close()


async def follow(cluster: Cluster, query: Query, is_over: Callable[[], bool]) -> AsyncIterator[Found | None]:
    """What arrives from now on, until the caller leaves or it is over. None now and then, while nothing does."""
    consumer = Consumer(cluster, _options(query))
    try:
        partitions = await _partitions(cluster, query)
        await consumer.assign(await consumer.offsets_at(partitions, LATEST))
        while True:
            polled = await consumer.poll(_POLL_MS)
            if is_over():
                return
            for partition, records in polled.items():
                for found in await query.see(await query.choose(partition.partition, records)):
                    yield found
            if not polled:
                yield None
    finally:
        await consumer.close()


def _options(query: Query) -> ConsumerOptions:
    isolation = Isolation.READ_COMMITTED if query.is_committed_only else Isolation.READ_UNCOMMITTED
    return _OPTIONS._replace(isolation=isolation)


async def _partitions(cluster: Cluster, query: Query) -> list[TopicPartition]:
    topic = (await cluster.refresh([query.topic]))[query.topic]
    chosen: Sequence[int] = query.partitions or tuple(topic.partitions)
    return [
        TopicPartition(query.topic, PartitionIndex(index))
        for index in chosen
        if index in topic.partitions and topic.partitions[index].leader_id >= 0
    ]


async def _begins(
    consumer: Consumer, query: Query, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if query.from_time_ms is not None:
        return await consumer.offsets_at(list(starts), query.from_time_ms)
    if query.from_offset is not None:
        wanted = query.from_offset
        return {each: min(max(wanted, start), ends[each]) for each, start in starts.items()}
    return dict(starts)


async def _read_newest(
    consumer: Consumer,
    query: Query,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    bounds: Bounds,
) -> Page:
    """Steps back from the ends, each time four times as far, until the filter has taken enough."""
    back = query.limit
    looked_at = 0
    deadline = asyncio.get_running_loop().time() + bounds.seconds_max
    while True:
        begins = {each: max(starts[each], end - back) for each, end in ends.items()}
        left = replace(bounds, seconds_max=max(0.1, deadline - asyncio.get_running_loop().time()))
        found, looked_at, is_whole = await _read(consumer, query, begins, ends, left)
        found.sort(key=lambda each: (each.record.timestamp, each.record.offset, each.partition), reverse=True)
        has_all = is_whole and begins == dict(starts)
        if len(found) >= query.limit or has_all or not is_whole:
            return Page(tuple(found[: query.limit]), looked_at, has_all)
        back *= 4


async def _read(
    consumer: Consumer,
    query: Query,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    bounds: Bounds,
) -> tuple[list[Found], int, bool]:
    """What the filter takes, how many records were looked at, and whether all of them were. Of the newest the last of
    each partition are kept; otherwise reading ends once there are enough."""
    waiting = {each: begin for each, begin in begins.items() if begin < ends[each]}
    taken: dict[TopicPartition, deque[Found]] = {each: deque(maxlen=query.limit) for each in waiting}
    looked_at = 0
    await consumer.assign(waiting)
    deadline = asyncio.get_running_loop().time() + bounds.seconds_max
    while waiting:
        kept = [each for found in taken.values() for each in found]
        is_enough = not query.is_newest and len(kept) >= query.limit
        is_bounded = looked_at >= bounds.records_max or sum(map(_size_bytes, kept)) >= bounds.bytes_max
        if is_enough or is_bounded or asyncio.get_running_loop().time() > deadline:
            return kept, looked_at, False
        for partition, records in (await consumer.poll(_POLL_MS)).items():
            looked_at += len(records)
            held = taken[partition]
            for start in range(0, len(records), _TURN_RECORDS):
                if not query.is_newest and len(held) >= query.limit:
                    break
                some = [each for each in records[start : start + _TURN_RECORDS] if each.offset < ends[partition]]
                chosen = await query.choose(partition.partition, some)
                held.extend(chosen if query.is_newest else chosen[: query.limit - len(held)])
                await asyncio.sleep(0)
        done = [each for each in waiting if consumer.position(each).offset >= ends[each]]
        for each in done:
            del waiting[each]
        consumer.change(added={}, removed=done)
    return [each for found in taken.values() for each in found], looked_at, True


def _size_bytes(found: Found) -> int:
    return len(found.record.key or b"") + len(found.record.value or b"")

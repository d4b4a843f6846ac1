"""A reader of one topic: alone, from where it says, or as a member of a group, from where the group stands.

`poll` gives what comes next. Alone, `places` is what is to be read after everything that was given. In a group, what
a poll has given counts as done at the next poll (`Member` with `acknowledges=False`), or when the caller says so by
`acknowledge`; only that is committed, so that every record is given to some member at least once.

Each reader has connections of its own: a broker answers in order, and a long poll would hold up everything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from tailrace.apps.gateway.errors import GatewayError
from tailrace.apps.gateway.settings import GatewaySettings
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions, GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.records import Record

Records = dict[TopicPartition, list[Record]]
# How often a reader of all partitions looks for new ones.
_NEW_PARTITIONS_S = 30.0


class Wanted(NamedTuple):
    topic: str
    group: str | None = None
    # Of a lone reader: these partitions only.
    partitions: tuple[int, ...] | None = None
    # Where to begin: EARLIEST, LATEST, or a time in milliseconds.
    start: int = LATEST
    # The next offset of each partition, which counts more than `start`.
    places: Mapping[int, int] = {}
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    # Records of a group are done when the reader says so.
    acknowledges: bool = False


class Reader(Protocol):
    async def poll(self, timeout_ms: float) -> Records:
        """Raises KafkaError."""

    @property
    def places(self) -> Mapping[int, int]: ...

    async def close(self, *, is_done: bool) -> None:
        """`is_done` if the caller is through with what the last poll has given."""


async def open_reader(open_cluster: Callable[[], Cluster], wanted: Wanted, settings: GatewaySettings) -> Reader:
    """Raises KafkaError, GatewayError if it cannot begin."""
    cluster = open_cluster()
    try:
        topic = (await cluster.refresh([wanted.topic]))[wanted.topic]
        for index in (*(wanted.partitions or ()), *wanted.places):
            if index not in topic.partitions:
                raise GatewayError(404, 40402, f"Partition not found. Topic {topic.name} has {len(topic.partitions)}")
        if wanted.group is not None:
            return Member(cluster, wanted, settings)
        reader = Alone(cluster, wanted, settings)
        await reader.begin()
        return reader
    except BaseException:
        cluster.close()
        raise


def _fetching(wanted: Wanted, settings: GatewaySettings) -> ConsumerOptions:
    return ConsumerOptions(
        isolation=wanted.isolation,
        fetch_max_bytes=settings.reader_fetch_bytes,
        partition_max_bytes=settings.reader_fetch_bytes,
        decompressed_bytes_max=settings.reader_batch_bytes,
    )


class Alone:
    def __init__(self, cluster: Cluster, wanted: Wanted, settings: GatewaySettings) -> None:
        self.cluster = cluster
        self._wanted = wanted
        self._consumer = Consumer(cluster, _fetching(wanted, settings))
        self._places: dict[int, int] = {}
        self._looked_at = 0.0

    @property
    def places(self) -> Mapping[int, int]:
        return self._places

    async def begin(self) -> None:
        known = await self.cluster.topic(self._wanted.topic)
        indexes = list(known.partitions) if self._wanted.partitions is None else list(self._wanted.partitions)
        named = {index: offset for index, offset in self._wanted.places.items() if index in indexes}
        found = await self._offsets([index for index in indexes if index not in named], self._wanted.start)
        self._go_to({**found, **named})
        self._looked_at = asyncio.get_running_loop().time()

    async def poll(self, timeout_ms: float) -> Records:
        await self._look_for_new_partitions()
        try:
            records = await self._consumer.poll(timeout_ms)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            await self._return_into_range()
            return {}
        for where in records:
            self._places[where.partition] = self._consumer.position(where).offset
        return records

    async def close(self, *, is_done: bool) -> None:
        del is_done
        await self._consumer.close()
        self.cluster.close()

    def _go_to(self, places: Mapping[int, int]) -> None:
        self._places |= places
        self._consumer.change(added={self._where(index): offset for index, offset in places.items()})

    async def _offsets(self, indexes: list[int], timestamp: int) -> dict[int, int]:
        found = await self._consumer.offsets_at([self._where(index) for index in indexes], timestamp)
        return {where.partition: offset for where, offset in found.items()}

    async def _return_into_range(self) -> None:
        """Records may have expired before they were read. Where the log begins now is the next place; whoever reads
        sees it by the offsets."""
        starts = await self._offsets(list(self._places), EARLIEST)
        ends = await self._offsets(list(self._places), LATEST)
        self._go_to(
            {
                index: starts[index]
                for index, offset in self._places.items()
                if not starts[index] <= offset <= ends[index]
            }
        )

    async def _look_for_new_partitions(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._wanted.partitions is not None or now - self._looked_at < _NEW_PARTITIONS_S:
            return
        self._looked_at = now
        with suppress(KafkaError):  # It is asked again soon.
            topic = (await self.cluster.refresh([self._wanted.topic]))[self._wanted.topic]
            added = [index for index in topic.partitions if index not in self._places]
            self._go_to(await self._offsets(added, EARLIEST))

    def _where(self, index: int) -> TopicPartition:
        return TopicPartition(self._wanted.topic, PartitionIndex(index))


class Member:
    def __init__(self, cluster: Cluster, wanted: Wanted, settings: GatewaySettings) -> None:
        assert wanted.group is not None, "it is a member of a group"
        self.cluster = cluster
        self._acknowledges = wanted.acknowledges
        self._unacknowledged: dict[TopicPartition, deque[int]] = {}
        # What is done, and not committed yet: the next offset.
        self._done: dict[TopicPartition, int] = {}
        self._given: dict[TopicPartition, int] = {}
        self._resumed = dict(wanted.places)
        self._committed_at = 0.0
        self._settings = settings
        options = GroupOptions(
            wanted.group,
            MemberOptions(
                topics=(wanted.topic,),
                session_timeout_ms=settings.session_timeout_ms,
                rebalance_timeout_ms=settings.reader_stall_ms,
            ),
            protocol=GroupProtocol(settings.group_protocol),
            start=EARLIEST if wanted.start == EARLIEST else LATEST,
            auto_commit_interval_ms=None if wanted.acknowledges else settings.commit_interval_ms,
            fetching=_fetching(wanted, settings),
        )
        self._consumer = GroupConsumer(
            cluster, options, on_assigned=self._on_assigned, on_revoked=self._on_gone, on_lost=self._on_gone
        )

    @property
    def places(self) -> Mapping[int, int]:
        return {where.partition: self._consumer.position(where) for where in self._consumer.assignment}

    @property
    def unacknowledged(self) -> int:
        return sum(map(len, self._unacknowledged.values()))

    async def poll(self, timeout_ms: float) -> Records:
        await self._commit_done()
        self._given = {}
        records = await self._consumer.poll(timeout_ms)
        for where, found in records.items():
            self._given[where] = found[0].offset
            if self._acknowledges:
                self._unacknowledged.setdefault(where, deque()).extend(record.offset for record in found)
        return records

    def acknowledge(self, partition: int, offset: int) -> None:
        """This record and all before it, of its partition, are done. Raises ValueError if it was not given."""
        for where, waiting in self._unacknowledged.items():
            if where.partition == partition and where in self._consumer.assignment:
                if offset >= self._consumer.position(where):
                    raise ValueError(f"offset {offset} of partition {partition} was not sent yet")
                while waiting and waiting[0] <= offset:
                    waiting.popleft()
                    self._done[where] = offset + 1
                return
        # It belongs to another member by now, which reads it again.

    async def close(self, *, is_done: bool) -> None:
        try:
            with suppress(KafkaError):
                await self._commit_done(is_last=True)
            if not is_done and not self._acknowledges:
                for where, offset in self._given.items():
                    if where in self._consumer.assignment:
                        self._consumer.seek(where, offset)
            with suppress(KafkaError):
                await self._consumer.close()
        finally:
            self.cluster.close()

    async def _commit_done(self, *, is_last: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        due = now - self._committed_at >= self._settings.commit_interval_ms / 1000
        if not self._done or not (due or is_last):
            return
        self._committed_at = now
        done, self._done = self._done, {}
        offsets = {where: offset for where, offset in done.items() if where in self._consumer.assignment}
        with suppress(KafkaError):  # What is not committed is given again, to whoever has the partition next.
            await self._consumer.commit(offsets)

    def _on_assigned(self, partitions: object) -> None:
        del partitions
        # Who has lost a connection says what it has seen: what was committed may have been on its way.
        for where in self._consumer.assignment:
            place = self._resumed.pop(where.partition, None)
            if place is not None and place < self._consumer.position(where):
                self._consumer.seek(where, place)

    def _on_gone(self, partitions: object) -> None:
        for where in list(self._unacknowledged):
            if where in partitions:  # type: ignore[operator]
                self._unacknowledged.pop(where)
                self._done.pop(where, None)

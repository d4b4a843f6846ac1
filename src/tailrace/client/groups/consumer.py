"""A consumer that shares topics with the other members of its group, and goes on where the group has stopped.

`poll` gives records of the partitions that this member owns now. What a poll has given counts as done at the next
poll, at `commit` and at `close`: only then partitions are handed over, and offsets committed, so that every record is
given to some member at least once. `on_assigned`, `on_revoked` and `on_lost` are called within `poll` and `close`.
Between assigned and revoked nobody else has a partition; after a loss, someone may have had it already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions
from tailrace.client.groups.classic_protocol import ClassicMembership
from tailrace.client.groups.consumer_protocol import ConsumerMembership
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.groups.membership import WAIT_MS_MIN, MemberOptions, Membership
from tailrace.client.groups.offsets import Committer, GroupMetadata, GroupOffsets, Offsets, offset_of
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.records import Record

# One that is a coroutine function is waited for.
OnPartitions = Callable[[Sequence[TopicPartition]], Awaitable[None] | None]

# What a commit fails with while the group goes on: whoever reads the partition next begins at an earlier commit.
_COMMIT_REFUSALS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)


class GroupProtocol(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"  # KIP-848


class GroupOptions(NamedTuple):
    group_id: str
    member: MemberOptions
    protocol: GroupProtocol = GroupProtocol.CONSUMER
    # EARLIEST or LATEST: where to begin without a committed offset, or where the committed one is gone.
    start: int = EARLIEST
    # None: the caller commits.
    auto_commit_interval_ms: int | None = 5000
    # How long commits, and reading what was committed, may be repeated.
    retry_timeout_ms: int = 30_000
    fetching: ConsumerOptions = ConsumerOptions()


class _Start(NamedTuple):
    offset: int
    is_committed: bool


def _nothing(_partitions: Sequence[TopicPartition]) -> None:
    pass


async def _call(hook: OnPartitions, partitions: Sequence[TopicPartition]) -> None:
    told = hook(partitions)
    if told is not None:
        await told


class GroupConsumer:
    """`close` it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        options: GroupOptions,
        *,
        on_assigned: OnPartitions = _nothing,
        on_revoked: OnPartitions = _nothing,
        on_lost: OnPartitions = _nothing,
    ) -> None:
        self.cluster = cluster
        self.options = options
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_lost = on_lost
        self._consumer = Consumer(cluster, options.fetching)
        self._news = asyncio.Event()
        coordinator = Coordinator(cluster, options.group_id)
        # A commit must not wait behind a JoinGroup that waits for the others.
        offsets_coordinator = Coordinator(cluster, options.group_id)
        self._coordinators = coordinator, offsets_coordinator
        membership = ClassicMembership if options.protocol is GroupProtocol.CLASSIC else ConsumerMembership
        self._member: Membership = membership(coordinator, options.member, self._on_news)
        self._offsets = GroupOffsets(offsets_coordinator, timeout_ms=options.retry_timeout_ms)
        # What is owned, with the offset that was committed last, or -1.
        self._owned: dict[TopicPartition, int] = {}
        # Where this member began to read what it owns.
        self._begun: dict[TopicPartition, int] = {}
        self._committed_ms = cluster.ports.clock.monotonic_ms()
        self._has_started = False

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._owned)

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def epoch(self) -> int:
        """The member epoch, or the generation of a classic group."""
        return self._member.epoch

    @property
    def heard_ms(self) -> float:
        """When the last request was sent that the coordinator has answered well, by the monotonic clock."""
        return self._member.heard_ms

    def group_metadata(self) -> GroupMetadata:
        """For offsets that a transaction commits. Raises KafkaError if this member was put out of the group since the
        last poll: someone else may have its partitions, and must not be taken for it under a new identity."""
        if self._member.is_lost or not self._member.is_member:
            raise self._not_a_member()
        return GroupMetadata(self.options.group_id, self._committer())

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record of a partition of the assignment."""
        return self._consumer.position(partition).offset

    def end_offset(self, partition: TopicPartition) -> int:
        """Where reading the partition would end, as last heard, or -1."""
        return self._consumer.end_offset(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes on from there. Going back to a record that was given makes it, and what follows, count as not done."""
        self._consumer.change(added={partition: offset})

    async def rewind(self) -> None:
        """Goes on from what the group has committed, or from where this member began, as if nothing had been given
        since: after a transaction that was aborted."""
        places = self._begun | await self.committed(sorted(self._owned))
        self._consumer.change(added={partition: places[partition] for partition in sorted(self._owned)})

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._consumer.paused

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """As of a consumer without a group. The group is not told: the partitions stay with this member."""
        self._consumer.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.resume(partitions)

    async def offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """As of a consumer without a group."""
        return await self._consumer.offsets_at(partitions, timestamp)

    async def poll(self, timeout_ms: float, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """The next records, at most so many, or nothing if none came in time. The first one joins. Raises KafkaError
        for what does not pass by itself: this member is out of the group then."""
        if not self._has_started:
            self._has_started = True
            self._member.start()
        self._member.note_poll(is_polling=True)
        try:
            return await self._poll(self.cluster.ports.clock.monotonic_ms() + timeout_ms, max_records)
        finally:
            self._member.note_poll(is_polling=False)

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Without offsets: everything that was given by `poll`. Raises KafkaError if the coordinator refuses, as it
        does once this member has been put out of the group or partitions are changing hands."""
        moved = self._moved() if offsets is None else dict(offsets)
        if not moved:
            return
        deadline = self.cluster.ports.clock.monotonic_ms() + self.options.retry_timeout_ms
        attempt = 0
        loss_count = self._member.loss_count
        while True:
            # After a loss others may have read on from there: these offsets must not be repeated under a new identity.
            if self._member.loss_count != loss_count or not self._member.is_member:
                raise self._not_a_member()
            try:
                await self._offsets.commit_once(moved, self._committer())
                break
            except KafkaError as error:
                pause_ms = self.cluster.backoff_ms(attempt)
                is_passing = error.code.retriable and error.code not in _COMMIT_REFUSALS
                is_passing = is_passing or error.code is ErrorCode.STALE_MEMBER_EPOCH  # It learns its new epoch soon.
                if not is_passing or self.cluster.ports.clock.monotonic_ms() + pause_ms > deadline:
                    raise
            attempt += 1
            await asyncio.sleep(pause_ms / 1000)
        self._owned |= {each: offset_of(offset).offset for each, offset in moved.items() if each in self._owned}

    async def committed(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """What the group has committed, for these partitions or for all; without those that have no offset."""
        return {partition: found.offset for partition, found in (await self._offsets.fetch(partitions)).items()}

    async def close(self, *, leave: bool = True) -> None:
        """Without `leave` the group finds out when the session ends, as if the process had died: nothing is committed
        and nobody is told."""
        try:
            if leave and self._member.failure is None:
                await self._hand_over(sorted(self._owned))
        finally:
            await self._member.close(leave=leave)
            await self._consumer.close()
            for coordinator in self._coordinators:
                coordinator.close()

    # --- polling

    async def _poll(self, deadline_ms: float, max_records: int | None) -> dict[TopicPartition, list[Record]]:
        clock = self.cluster.ports.clock
        while True:
            self._news.clear()
            await self._reconcile()
            await self._commit_if_due()
            left_ms = max(WAIT_MS_MIN, deadline_ms - clock.monotonic_ms())
            if self._owned:
                try:
                    records = await self._consumer.poll(left_ms, max_records)
                except KafkaError as error:
                    if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                        raise
                    await self._return_into_range()
                    continue
                if records:
                    return records
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_ms / 1000):
                        await self._news.wait()
            if clock.monotonic_ms() >= deadline_ms:
                return {}

    def _on_news(self) -> None:
        self._news.set()
        self._consumer.interrupt()

    async def _return_into_range(self) -> None:
        """Records may have expired before they were read, or a topic was cut: both ends are asked for."""
        owned = list(self._owned)
        starts = await self._consumer.offsets_at(owned, EARLIEST)
        ends = await self._consumer.offsets_at(owned, LATEST)
        chosen = starts if self.options.start == EARLIEST else ends
        self._consumer.change(
            added={
                partition: chosen[partition]
                for partition in owned
                if partition in self._owned and not starts[partition] <= self.position(partition) <= ends[partition]
            }
        )

    # --- partitions that come and go

    async def _reconcile(self) -> None:
        while True:
            member = self._member
            if member.is_lost:
                await self._lose()
            if member.failure is not None:
                await self._lose()
                raise KafkaError(member.failure.code, member.failure.message)
            wanted, wanted_count = member.wanted, member.wanted_count
            if wanted is None or wanted == member.owned:
                return
            await self._hand_over(sorted(self._owned.keys() - wanted))
            added = await self._starts(sorted(wanted - self._owned.keys()))
            # Else the places to begin may be old: somebody else may have had the partitions meanwhile.
            if member.wanted_count == wanted_count and not member.is_lost and member.failure is None:
                await self._take(added)
            if not member.is_lost:
                member.note_owned(self.assignment)

    async def _hand_over(self, partitions: Sequence[TopicPartition]) -> None:
        if not partitions:
            return
        if self.options.auto_commit_interval_ms is not None:
            await self._commit_unless_refused()
        if self._member.is_lost:
            return  # Meanwhile the group has gone on without this member.
        await _call(self._on_revoked, partitions)
        if self._member.is_lost:
            return  # It was put out while its caller was busy: what it owns is lost, and told so.
        self._drop(partitions)

    async def _lose(self) -> None:
        lost = sorted(self._owned)
        if lost:
            await _call(self._on_lost, lost)
            self._drop(lost)
        self._member.note_owned(self.assignment)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        self._consumer.change(added={}, removed=partitions)
        for partition in partitions:
            del self._owned[partition]
            del self._begun[partition]

    async def _take(self, starts: Mapping[TopicPartition, _Start]) -> None:
        if not starts:
            return
        places = {partition: start.offset for partition, start in starts.items()}
        self._consumer.change(added=places)
        self._begun |= places
        self._owned |= {partition: start.offset if start.is_committed else -1 for partition, start in starts.items()}
        await _call(self._on_assigned, list(starts))

    async def _starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, _Start]:
        if not partitions:
            return {}
        committed = await self.committed(partitions)
        missing = [partition for partition in partitions if partition not in committed]
        chosen = await self._consumer.offsets_at(missing, self.options.start)
        return {
            partition: _Start(committed[partition], is_committed=True)
            if partition in committed
            else _Start(chosen[partition], is_committed=False)
            for partition in partitions
        }

    # --- commits

    def _committer(self) -> Committer:
        return Committer(self.member_id, self.epoch, self.options.member.instance_id)

    def _not_a_member(self) -> KafkaError:
        group_id = self.options.group_id
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"this consumer is no member of group {group_id} now")

    def _moved(self) -> dict[TopicPartition, int]:
        """What was read since it was committed last. A position that nobody has committed yet is one too: without it,
        a member that reads from the end would miss what comes between two members."""
        positions = {partition: self.position(partition) for partition in sorted(self._owned)}
        return {partition: offset for partition, offset in positions.items() if offset != self._owned[partition]}

    async def _commit_if_due(self) -> None:
        interval_ms = self.options.auto_commit_interval_ms
        now = self.cluster.ports.clock.monotonic_ms()
        if interval_ms is not None and now - self._committed_ms >= interval_ms:
            self._committed_ms = now
            await self._commit_unless_refused()

    async def _commit_unless_refused(self) -> None:
        """What is not committed is read again by whoever has the partition next."""
        try:
            await self.commit()
        except KafkaError as error:
            if error.code not in _COMMIT_REFUSALS and not error.code.retriable:
                raise

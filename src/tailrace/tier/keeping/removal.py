"""What nobody reads any more leaves the store: *delete started* is committed, the object is deleted, *finished* is.

Three ways lead here: a copy that has had its time, a copy that nobody will finish, and an object that no record names
(a put that came late, of a leader that was stalled). Only the leader removes.

Rules
- An object goes `delay_ms` after its deletion was begun: readers that have found it before can end, and a put that was
  under way has ended by then, one way or the other. The delay is longer than a put may take.
- An object that no record names is older than the delay, too; and the records are looked at after the listing, all of
  them: a *started* is committed before its put begins, so what is listed has a record, unless it is an orphan.
- A listing that is wrong costs time or leaves an orphan for the next sweep, never more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from tailrace.model.ids import Uuid
from tailrace.model.ports import Clock
from tailrace.tier.format.names import SegmentName, TieredPartition, parse_name, partition_folder, segment_name
from tailrace.tier.keeping.copying import MetadataLog
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.partition import PartitionTier
from tailrace.tier.metadata.records import SegmentState, segment_update
from tailrace.tier.store.guard import GuardedObjects
from tailrace.wire.schema import Message


@dataclass(frozen=True, slots=True)
class Remover:
    cluster_id: str
    broker_id: int
    store: GuardedObjects
    clock: Clock
    delay_ms: int

    async def begin(
        self,
        log: MetadataLog,
        owner: TieredPartition,
        tier: PartitionTier,
        segments: list[RemoteSegment],
        *,
        leader_epoch: int,
        log_start_offset: int = 0,
    ) -> None:
        """From here on nobody finds them, and the log begins at `log_start_offset` or later, whoever leads. Raises
        KafkaError."""
        for segment in segments:
            update = self._update(
                owner,
                tier,
                segment,
                SegmentState.DELETE_STARTED,
                leader_epoch=leader_epoch,
                log_start_offset=log_start_offset,
            )
            await log.append(update)

    async def begin_orphans(
        self,
        log: MetadataLog,
        owner: TieredPartition,
        machine: TierMachine,
        *,
        under_way: Collection[Uuid],
        leader_epoch: int,
    ) -> None:
        """Copies that leaders before this one have begun, or this one before it was killed. Raises KafkaError."""
        tier = machine.partitions.get(owner)
        before_ms = self.clock.wall_ms() - self.delay_ms
        orphans = [each.segment for each in machine.orphans(owner, under_way=under_way, before_ms=before_ms)]
        if tier is not None and orphans:
            await self.begin(log, owner, tier, orphans, leader_epoch=leader_epoch)

    async def finish(self, log: MetadataLog, owner: TieredPartition, tier: PartitionTier, *, leader_epoch: int) -> int:
        """Deletes what has waited long enough, whoever began it; gives how many. Raises StoreError or KafkaError."""
        before_ms = self.clock.wall_ms() - self.delay_ms
        due = [each.segment for each in tuple(tier.deleting.values()) if each.since_ms <= before_ms]
        if due:
            await self.store.delete([self._name(owner, segment) for segment in due])
            for segment in due:
                state = SegmentState.DELETE_FINISHED
                await log.append(self._update(owner, tier, segment, state, leader_epoch=leader_epoch))
        return len(due)

    async def sweep(
        self, owner: TieredPartition, machine: TierMachine, catch_up: Callable[[], Awaitable[None]]
    ) -> list[str]:
        """Deletes objects of a partition that no record names, and gives their names. `catch_up` returns once the
        machine has replayed all that was committed when it was called. Raises StoreError or KafkaError."""
        before_ms = self.clock.wall_ms() - self.delay_ms
        listed = await self.store.list(partition_folder(self.cluster_id, owner))
        await catch_up()
        tier = machine.partitions.get(owner)
        lost = []
        for facts in listed:
            name = parse_name(self.cluster_id, facts.name)
            if not isinstance(name, SegmentName) or facts.modified_ms > before_ms:
                continue
            if tier is not None and (
                name.segment_id in tier.visible or name.segment_id in tier.copying or name.segment_id in tier.deleting
            ):
                continue
            lost.append(facts.name)
        if lost:
            await self.store.delete(lost)
        return lost

    def _update(
        self,
        owner: TieredPartition,
        tier: PartitionTier,
        segment: RemoteSegment,
        state: SegmentState,
        *,
        leader_epoch: int,
        log_start_offset: int = 0,
    ) -> Message:
        return segment_update(
            tier.topic,
            owner,
            segment,
            state,
            broker_id=self.broker_id,
            leader_epoch=leader_epoch,
            now_ms=self.clock.wall_ms(),
            log_start_offset=log_start_offset,
        )

    def _name(self, owner: TieredPartition, segment: RemoteSegment) -> str:
        return segment_name(self.cluster_id, owner, segment.base_offset, segment.segment_id)

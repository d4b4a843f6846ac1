"""What remote storage has of one partition of which this broker has a replica, leader or follower.

    log_start_offset <= that of the local log; between them records lie in the store alone

Rules
- The log start is what leaders have told of: in the records of __remote_log_metadata, in answers to fetches, or by
  DeleteRecords. Nobody concludes it from what copies there seem to be, for that may not be known yet.
- Local segments go once they are in the store without a gap, and where the log begins as a whole is on the disk. With
  remote.log.copy.disable those that were never copied go too, by the retention of the whole, once nothing is left in
  the store before them.
- What serves an offset is decided by the epochs of the local log's history, which reaches back to the log start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.log.retention import expire_segments
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import RemoteStart
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.keeping.decisions import LogView, decide_local_expired
from tailrace.tier.metadata.coverage import Coverage, cover
from tailrace.tier.metadata.partition import PartitionTier

if TYPE_CHECKING:
    from tailrace.broker.tier.room import Room
    from tailrace.model.config import TopicConfig
    from tailrace.replica.partition import Partition

_log = events.logger("tier")


class TieredLog:
    def __init__(self, tier: Room, partition: Partition, log_start_offset: int) -> None:
        self.partition = partition
        self.owner = TieredPartition(partition.topic_id, partition.topic_partition.partition)
        self.log_start_offset = min(log_start_offset, partition.log.log_start_offset)
        self.tier = tier
        self._coverage = Coverage()
        self._state: PartitionTier | None = None  # From which that was made, and after how many changes.
        self._changes = 0

    @property
    def config(self) -> TopicConfig:
        return self.partition.log.config

    @property
    def state(self) -> PartitionTier:
        """What is known of it; nothing as long as nothing was copied."""
        part = self.tier.metadata.part_of(self.owner)
        found = None if part is None else part.machine.partitions.get(self.owner)
        return found or PartitionTier(self.partition.topic_partition.topic)

    @property
    def is_ready(self) -> bool:
        part = self.tier.metadata.part_of(self.owner)
        return part is not None and part.is_ready

    def coverage(self) -> Coverage:
        """It goes on from the last one where it can: of a hundred thousand segments another would hold the loop."""
        state, lineage = self.state, self.partition.log.epochs.entries
        start_offset, end_offset = self.log_start_offset, self.partition.log.log_end_offset
        changes = state.changes_since(self._changes) if self._state is state else None
        found = None
        if changes is not None:
            found = self._coverage.after(changes, lineage, log_start_offset=start_offset, log_end_offset=end_offset)
        if found is None:
            found = cover(state.visible.values(), lineage, log_start_offset=start_offset, log_end_offset=end_offset)
        self._coverage, self._state, self._changes = found, state, state.changes
        return found

    def local_view(self) -> LogView:
        """For decisions about what lies here."""
        return self._view(self.partition.log.log_start_offset)

    def whole_view(self) -> LogView:
        """For decisions about what lies in the store."""
        return self._view(self.log_start_offset)

    def _view(self, log_start_offset: int) -> LogView:
        partition = self.partition
        stable_offset = min(partition.high_watermark, partition.last_stable_offset)
        return LogView(partition.log.segments, self.coverage(), log_start_offset, stable_offset)

    def holds(self, offset: int) -> bool:
        """Whether it lies in the store alone."""
        return self.log_start_offset <= offset < self.partition.log.log_start_offset

    # ---- where it begins

    def settle(self) -> None:
        """After news of what is copied."""
        state = self.state
        told = min(state.log_start_offset, self.partition.high_watermark)
        if told > self.log_start_offset:
            self.advance_start(told)
        if self._state is state:
            self.coverage()  # Kept up with, as no more than the last changes are remembered.

    def advance_start(self, offset: int) -> None:
        log = self.partition.log
        if offset > log.log_start_offset:
            log.advance_start(offset)
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            log.epochs.truncate_from_start(offset)

    def _align(self) -> None:
        """The local log may have been cut to before where the whole began."""
        self.log_start_offset = min(self.log_start_offset, self.partition.log.log_start_offset)

    # ---- retention of what lies here

    def expire_local(self, *, now_ms: int, high_watermark: int) -> int:
        log = self.partition.log
        self._align()
        if self.config.remote_log_copy_disable and not self.coverage():
            return self._expire_uncopied(now_ms=now_ms, high_watermark=high_watermark)
        if not self.is_ready or not self.tier.is_stored(self):
            return 0
        due = decide_local_expired(self.local_view(), self.config, now_ms=now_ms)
        # What is synced has its leader epochs on the disk; once its batches are gone, nothing else tells of them.
        count, end_offset = due.count, min(high_watermark, log.recovery_point)
        while count and log.segments[count].base_offset > end_offset:
            count -= 1
        if count:
            log.advance_start(max(log.log_start_offset, log.segments[count].base_offset))
            _log.info("segments leave the disk", partition=log.topic_partition, segments=count, cause=due.reason)
        return count

    def _expire_uncopied(self, *, now_ms: int, high_watermark: int) -> int:
        """Nothing of it is in the store, and nothing will be."""
        if not self.is_ready:
            return 0
        log = self.partition.log
        count = expire_segments(log, now_ms=now_ms, high_watermark=high_watermark)
        self.advance_start(log.log_start_offset)
        return count

    async def store_start(self) -> None:
        await self.tier.store_starts()

    # ---- a follower that begins after copies

    async def find_start(self, leader_start_offset: int, epoch_before: int) -> RemoteStart:
        await self.tier.wait_ready(self)
        found = [
            segment
            for segment in self.state.visible.values()
            if segment.base_offset < leader_start_offset <= segment.end_offset
            and _epoch_at(segment.epochs, leader_start_offset - 1) == epoch_before
        ]
        if not found:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"no copy is known that ends at offset {leader_start_offset} or after it, in epoch {epoch_before}",
            )
        # That which reaches farthest: the leader's local log may begin later by now.
        segment = max(found, key=lambda each: (each.end_offset, each.segment_id))
        footer = await self.tier.pieces.footer(self.owner, segment)
        await self.store_start()  # From the cut on the local log does not tell where the whole begins.
        return RemoteStart(segment.end_offset, segment.epochs, footer.producers)


def _epoch_at(epochs: tuple[tuple[int, int], ...], offset: int) -> int:
    return max((epoch for epoch, start_offset in epochs if start_offset <= offset), default=-1)

"""The machine of one partition of __remote_log_metadata: replayed from its records, it knows what is in the tier.

    COPY_STARTED > COPY_FINISHED > DELETE_STARTED > DELETE_FINISHED, and from COPY_STARTED straight to DELETE_STARTED

Rules
- A segment is visible from COPY_FINISHED to DELETE_STARTED. A *started* without a *finished* is an orphan to be: its
  object may be there, or come yet.
- A record of a leader epoch older than the newest that has written about its partition is refused: its writer has been
  replaced. What was refused changes nothing, so the segment of a refused *finished* stays an orphan to be.
- A record that fits no transition is passed over and counted, as Kafka does. Whoever replays the same records knows the
  same, whenever he began: from the first, or from a snapshot.
- Replaying is all that changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.model.ids import Uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.records import (
    PartitionState,
    SegmentState,
    owner_of,
    read_custom,
)
from tailrace.wire.apis.stored_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from tailrace.wire.schema import Message


class Unfinished(NamedTuple):
    """A copy or a deletion that has begun."""

    segment: RemoteSegment
    leader_epoch: int
    since_ms: int  # By the clock of who began it.


@dataclass(slots=True)
class PartitionTier:
    """What the tier has of one partition."""

    topic: str
    leader_epoch: int = -1  # The newest that has written.
    log_start_offset: int = 0  # The largest that a leader has told of: the log does not begin before it.
    copying: dict[Uuid, Unfinished] = field(default_factory=dict)
    visible: dict[Uuid, RemoteSegment] = field(default_factory=dict)
    deleting: dict[Uuid, Unfinished] = field(default_factory=dict)
    deletion: PartitionState | None = None  # Of the whole partition, with its topic.
    changes: int = 0  # Grows with each change of what is visible: for those who keep something that follows from it.
    newest: RemoteSegment | None = None  # What the last change has added; None if it did something else.

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.visible.values())


class TierMachine:
    def __init__(self) -> None:
        self.partitions: dict[TieredPartition, PartitionTier] = {}
        self.next_offset = 0  # Of the metadata partition: all below it is replayed.
        self.refused = 0  # Records of leaders that had been replaced.
        self.passed_over = 0  # Records that fit no transition, or are of an unknown kind.
        self.touched: set[TieredPartition] = set()  # Of which records came; whoever looks at them empties it.
        self._lineages: dict[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]] = {}

    def replay(self, record: Message | None, offset: int) -> bool:
        """The record at `offset`; None for one of a kind that is not known. One that was replayed already, before a
        snapshot, changes nothing. Gives whether it counts: False if its writer has been replaced."""
        if offset < self.next_offset:
            return True
        self.next_offset = offset + 1
        refused = self.refused
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            self._replay_segment(record)
        elif isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
            self._replay_update(record)
        elif isinstance(record, RemotePartitionDeleteMetadataRecord):
            self._replay_deletion(record)
        else:
            self.passed_over += 1
        return self.refused == refused

    def orphans(self, owner: TieredPartition, *, under_way: Collection[Uuid], before_ms: int) -> Iterator[Unfinished]:
        """Copies that nobody will finish, as the leader sees it: begun before `before_ms`, and not by those of its
        own that are `under_way`. A copy of the same leader epoch may be one, of a process that was killed."""
        tier = self.partitions.get(owner)
        for copy in tuple(tier.copying.values()) if tier is not None else ():
            if copy.segment.segment_id not in under_way and copy.since_ms < before_ms:
                yield copy

    def share(self, lineage: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """The same lineage once: most segments of a partition have an equal one."""
        if len(self._lineages) > _LINEAGES_MAX:
            self._lineages.clear()
        return self._lineages.setdefault(lineage, lineage)

    def _replay_segment(self, record: RemoteLogSegmentMetadataRecord) -> None:
        place = record.remote_log_segment_id.topic_id_partition
        custom = read_custom(record.custom_metadata)
        tier = self._tier(owner_of(place), place.name, custom.leader_epoch)
        segment_id = Uuid(record.remote_log_segment_id.id)
        if tier is None:
            return
        is_new = segment_id not in tier.copying and segment_id not in tier.visible and segment_id not in tier.deleting
        if record.remote_log_segment_state != SegmentState.COPY_STARTED or not is_new:
            self.passed_over += 1
            return
        epochs = tuple((entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs)
        segment = RemoteSegment(
            segment_id=segment_id,
            base_offset=record.start_offset,
            end_offset=record.end_offset + 1,
            size_bytes=record.segment_size_in_bytes,
            object_bytes=custom.object_bytes,
            max_timestamp=record.max_timestamp_ms,
            broker_id=record.broker_id,
            epochs=self.share(epochs),
            has_aborted=not record.txn_index_empty,
        )
        tier.copying[segment_id] = Unfinished(segment, custom.leader_epoch, record.event_timestamp_ms)

    def _replay_update(self, record: RemoteLogSegmentMetadataUpdateRecord) -> None:
        place = record.remote_log_segment_id.topic_id_partition
        custom = read_custom(record.custom_metadata)
        tier = self._tier(owner_of(place), place.name, custom.leader_epoch)
        if tier is None:
            return
        tier.log_start_offset = max(tier.log_start_offset, custom.log_start_offset)
        segment_id, state = Uuid(record.remote_log_segment_id.id), record.remote_log_segment_state
        if state == SegmentState.COPY_FINISHED and segment_id in tier.copying and tier.deletion is None:
            tier.newest = tier.visible[segment_id] = tier.copying.pop(segment_id).segment
            tier.changes += 1
        elif state == SegmentState.DELETE_STARTED and segment_id in tier.visible:
            segment = tier.visible.pop(segment_id)
            tier.deleting[segment_id] = Unfinished(segment, custom.leader_epoch, record.event_timestamp_ms)
            tier.newest = None
            tier.changes += 1
        elif state == SegmentState.DELETE_STARTED and segment_id in tier.copying:
            segment = tier.copying.pop(segment_id).segment
            tier.deleting[segment_id] = Unfinished(segment, custom.leader_epoch, record.event_timestamp_ms)
        elif state == SegmentState.DELETE_FINISHED and segment_id in tier.deleting:
            del tier.deleting[segment_id]
        else:
            self.passed_over += 1

    def _replay_deletion(self, record: RemotePartitionDeleteMetadataRecord) -> None:
        owner = owner_of(record.topic_id_partition)
        state = record.remote_partition_delete_state
        tier = self.partitions.get(owner)
        if state == PartitionState.DELETE_FINISHED:
            if self.partitions.pop(owner, None) is None:
                self.passed_over += 1
            return
        if tier is None:
            tier = self.partitions[owner] = PartitionTier(record.topic_id_partition.name)
        if state not in (PartitionState.DELETE_MARKED, PartitionState.DELETE_STARTED) or (tier.deletion or -1) > state:
            self.passed_over += 1
            return
        tier.deletion = PartitionState(state)
        # From the mark on nothing of it is read.
        for segment_id in tuple(tier.visible):
            segment = tier.visible.pop(segment_id)
            tier.deleting[segment_id] = Unfinished(segment, tier.leader_epoch, record.event_timestamp_ms)
        tier.newest = None
        tier.changes += 1

    def _tier(self, owner: TieredPartition, topic: str, leader_epoch: int) -> PartitionTier | None:
        """None if the record is refused."""
        tier = self.partitions.get(owner)
        if tier is None:
            tier = self.partitions[owner] = PartitionTier(topic)
        if leader_epoch < tier.leader_epoch:
            self.refused += 1
            return None
        tier.leader_epoch = leader_epoch
        self.touched.add(owner)
        return tier


# Lineages that are remembered, to be shared.
_LINEAGES_MAX = 10_000

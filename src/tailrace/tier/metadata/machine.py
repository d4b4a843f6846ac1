"""The machine of one partition of __remote_log_metadata: replayed from its records, it knows what is in the tier.

    COPY_STARTED > COPY_FINISHED > DELETE_STARTED > DELETE_FINISHED, and from COPY_STARTED straight to DELETE_STARTED

Rules
- A segment is visible from COPY_FINISHED to DELETE_STARTED. A *started* without a *finished* is an orphan to be: its
  object may be there, or come yet.
- A record of a leader epoch older than the newest that has written about its partition is refused: its writer has been
  replaced. What was refused changes nothing, so the segment of a refused *finished* stays an orphan to be.
- A record that fits no transition is passed over and counted, as Kafka does. Whoever replays the same records knows the
  same, whenever he began: from the first, or from a snapshot.
- What is known of a partition may be written once more (`restated`), and the log be cut before that.
- Replaying is all that changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tailrace.model.ids import Uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.partition import PartitionTier, Unfinished
from tailrace.tier.metadata.records import (
    PartitionState,
    SegmentState,
    owner_of,
    read_custom,
)
from tailrace.tier.metadata.restated import Restated, Restating, begin_restating, read_restated
from tailrace.wire.apis.stored_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from tailrace.wire.schema import Message


class TierMachine:
    def __init__(self) -> None:
        self.partitions: dict[TieredPartition, PartitionTier] = {}
        self.next_offset = 0  # Of the metadata partition: all below it is replayed.
        self.refused = 0  # Records of leaders that had been replaced.
        self.passed_over = 0  # Records that fit no transition, or are of an unknown kind.
        self.touched: set[TieredPartition] = set()  # Of which records came; whoever looks at them empties it.
        self._restating: Restating | None = None
        self._lineages: dict[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]] = {}

    def replay(self, record: Message | None, offset: int) -> bool:
        """The record at `offset`; None for one of a kind that is not known. One that was replayed already, before a
        snapshot, changes nothing. Gives whether it counts: False if its writer has been replaced."""
        if offset < self.next_offset:
            return True
        self.next_offset = offset + 1
        refused = self.refused
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            restated = read_restated(record.custom_metadata)
            if restated is None:
                self._replay_segment(record)
            else:
                self._replay_restated(record, restated, offset)
        elif isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
            self._replay_update(record)
        elif isinstance(record, RemotePartitionDeleteMetadataRecord):
            self._replay_deletion(record)
        else:
            self.passed_over += 1
        return self.refused == refused

    @property
    def is_restating(self) -> bool:
        """Amid what is written once more: a snapshot of now would not know that."""
        return self._restating is not None and self._restating.next_offset == self.next_offset

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
        segment = self._segment(record, custom.object_bytes)
        tier.copying[segment_id] = Unfinished(segment, custom.leader_epoch, record.event_timestamp_ms)

    def _segment(self, record: RemoteLogSegmentMetadataRecord, object_bytes: int) -> RemoteSegment:
        epochs = tuple((entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs)
        return RemoteSegment(
            segment_id=Uuid(record.remote_log_segment_id.id),
            base_offset=record.start_offset,
            end_offset=record.end_offset + 1,
            size_bytes=record.segment_size_in_bytes,
            object_bytes=object_bytes,
            max_timestamp=record.max_timestamp_ms,
            broker_id=record.broker_id,
            epochs=self.share(epochs),
            has_aborted=not record.txn_index_empty,
        )

    def _replay_restated(self, record: RemoteLogSegmentMetadataRecord, restated: Restated, offset: int) -> None:
        place = record.remote_log_segment_id.topic_id_partition
        owner = owner_of(place)
        if restated.number == 0:
            self._restating = begin_restating(owner, place.name, restated, offset, self.partitions.get(owner))
        restating = self._restating
        if restating is None or not restating.goes_on(owner, restated, offset):
            self._restating = None
            self.passed_over += 1
            return
        segment = self._segment(record, restated.object_bytes)
        restating.add(segment, record.remote_log_segment_state, restated, record.event_timestamp_ms)
        if restating.is_whole:
            self._restating = None
            if not restating.is_known:  # Unlike for everybody who has replayed what goes before.
                self._take(owner, restating.tier)

    def _take(self, owner: TieredPartition, tier: PartitionTier) -> None:
        known = self.partitions.get(owner)
        tier.changes = 1 if known is None else known.changes + 1
        self.partitions[owner] = tier
        self.touched.add(owner)

    def _replay_update(self, record: RemoteLogSegmentMetadataUpdateRecord) -> None:
        place = record.remote_log_segment_id.topic_id_partition
        custom = read_custom(record.custom_metadata)
        tier = self._tier(owner_of(place), place.name, custom.leader_epoch)
        if tier is None:
            return
        tier.log_start_offset = max(tier.log_start_offset, custom.log_start_offset)
        segment_id, state = Uuid(record.remote_log_segment_id.id), record.remote_log_segment_state
        if state == SegmentState.COPY_FINISHED and segment_id in tier.copying and tier.deletion is None:
            segment = tier.visible[segment_id] = tier.copying.pop(segment_id).segment
            tier.note(segment, is_added=True)
        elif state == SegmentState.DELETE_STARTED and segment_id in tier.visible:
            segment = tier.visible.pop(segment_id)
            tier.deleting[segment_id] = Unfinished(segment, custom.leader_epoch, record.event_timestamp_ms)
            tier.note(segment, is_added=False)
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
        tier.note_all()

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

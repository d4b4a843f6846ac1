"""What is known of a partition, written once more at the end of its metadata log, so that the log can be cut before it.

    custom metadata   int8 version (2), int32 leader epoch of who began what is under way, int64 size of the object,
                      int64 log start offset, int32 newest leader epoch that has written, int32 number of this record,
                      int32 how many there are, int8 state of the deletion of the whole partition, or -1

They are records of segments as any other, each with the state that its segment has; a partition without segments has
one whose segment is all zeroes and deleted.

Rules
- They follow on each other without a record between, and say what all records before the first of them say: whoever
  writes them has replayed everything up to there. So who has replayed it too learns nothing new, and who begins
  somewhere before them knows after them what he would know from the beginning.
- They count once the last of them is there. Some that are missing their end, since their writer was replaced, change
  nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import NamedTuple

from tailrace.model.ids import Uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.partition import PartitionTier, Unfinished
from tailrace.tier.metadata.records import PartitionState, SegmentState
from tailrace.wire.apis.stored_records import RemoteLogSegmentMetadataRecord

_CUSTOM = Struct(">biqqiiib")
_CUSTOM_VERSION = 2
_NOBODY = Uuid(bytes(16))
_NO_SEGMENT = RemoteSegment(_NOBODY, 0, 0, 0, 0, -1, -1, ())
_NONE = -1


class Restated(NamedTuple):
    leader_epoch: int
    object_bytes: int
    log_start_offset: int
    newest_epoch: int
    number: int
    total: int
    deletion: int


@dataclass(slots=True)
class Restating:
    """As far as it was read. It is compared with what was known one by one: of thousands at once it would take long."""

    owner: TieredPartition
    tier: PartitionTier
    total: int
    next_offset: int
    known: PartitionTier | None
    number: int = 0
    is_other: bool = False  # Some segment is known otherwise, or not at all.

    @property
    def is_whole(self) -> bool:
        return self.number == self.total

    @property
    def is_known(self) -> bool:
        """Once it is whole: whether it says what was known."""
        known, tier = self.known, self.tier
        return (
            known is not None
            and not self.is_other
            and tier.head == known.head
            and (len(tier.copying), len(tier.visible), len(tier.deleting))
            == (len(known.copying), len(known.visible), len(known.deleting))
        )

    def goes_on(self, owner: TieredPartition, restated: Restated, offset: int) -> bool:
        expected = self.owner, self.number, self.total, self.next_offset
        return (owner, restated.number, restated.total, offset) == expected

    def add(self, segment: RemoteSegment, state: int, restated: Restated, since_ms: int) -> None:
        self.number += 1
        self.next_offset += 1
        if segment.segment_id == _NOBODY:
            return
        segment_id, known = segment.segment_id, self.known or PartitionTier(self.tier.topic)
        unfinished = Unfinished(segment, restated.leader_epoch, since_ms)
        if state == SegmentState.COPY_FINISHED:
            self.tier.visible[segment_id] = segment
            self.is_other = self.is_other or known.visible.get(segment_id) != segment
        elif state == SegmentState.COPY_STARTED:
            self.tier.copying[segment_id] = unfinished
            self.is_other = self.is_other or known.copying.get(segment_id) != unfinished
        else:
            self.tier.deleting[segment_id] = unfinished
            self.is_other = self.is_other or known.deleting.get(segment_id) != unfinished


def begin_restating(
    owner: TieredPartition, topic: str, restated: Restated, offset: int, known: PartitionTier | None
) -> Restating:
    """`known`: of all records before."""
    tier = PartitionTier(
        topic,
        leader_epoch=restated.newest_epoch,
        log_start_offset=restated.log_start_offset,
        deletion=None if restated.deletion == _NONE else PartitionState(restated.deletion),
    )
    return Restating(owner, tier, restated.total, offset, known)


def read_restated(data: bytes | None) -> Restated | None:
    """None for a record of another kind."""
    try:
        version, *fields = _CUSTOM.unpack(data or b"")
    except error:
        return None
    return Restated(*fields) if version == _CUSTOM_VERSION else None


def restate(
    owner: TieredPartition, tier: PartitionTier, *, broker_id: int, now_ms: int
) -> Iterator[RemoteLogSegmentMetadataRecord]:
    """Of thousands of segments it takes some ten milliseconds: not on the loop, of a copy."""
    rows: list[tuple[RemoteSegment, SegmentState, int, int]] = [
        *(
            (each.segment, SegmentState.COPY_STARTED, each.leader_epoch, each.since_ms)
            for each in tier.copying.values()
        ),
        *((segment, SegmentState.COPY_FINISHED, _NONE, now_ms) for segment in tier.visible.values()),
        *(
            (each.segment, SegmentState.DELETE_STARTED, each.leader_epoch, each.since_ms)
            for each in tier.deleting.values()
        ),
    ]
    rows = rows or [(_NO_SEGMENT, SegmentState.DELETE_FINISHED, _NONE, now_ms)]
    record = RemoteLogSegmentMetadataRecord
    place = record.TopicIdPartitionEntry(name=tier.topic, id=owner.topic_id, partition=owner.partition)
    deletion = _NONE if tier.deletion is None else int(tier.deletion)
    for number, (segment, state, leader_epoch, since_ms) in enumerate(rows):
        restated = Restated(
            leader_epoch, segment.object_bytes, tier.log_start_offset, tier.leader_epoch, number, len(rows), deletion
        )
        yield record(
            remote_log_segment_id=record.RemoteLogSegmentIdEntry(topic_id_partition=place, id=segment.segment_id),
            start_offset=segment.base_offset,
            end_offset=segment.end_offset - 1,
            broker_id=broker_id if segment.segment_id == _NOBODY else segment.broker_id,
            max_timestamp_ms=segment.max_timestamp,
            event_timestamp_ms=since_ms,
            segment_leader_epochs=[
                record.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in segment.epochs
            ],
            segment_size_in_bytes=segment.size_bytes,
            custom_metadata=_CUSTOM.pack(_CUSTOM_VERSION, *restated),
            remote_log_segment_state=state,
            txn_index_empty=not segment.has_aborted,
        )

"""What a share coordinator knows of one share-partition: as the log tells it, changed by replay alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tailrace.coordinator.op import StoredRecord
from tailrace.coordinator.share_state.batches import StateBatch, overlay
from tailrace.model.ids import Uuid
from tailrace.wire.apis.stored_records import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue

# In a request or an update: as it was before.
UNCHANGED = -1


class SharePlace(NamedTuple):
    """Whose state it is."""

    group_id: str
    topic_id: Uuid
    partition: int


class ShareState(NamedTuple):
    snapshot_epoch: int
    # One more whenever an administrator sets the start offset: who knows an older one is fenced.
    state_epoch: int
    # Of the partition's leader that has read or written last: an older leader is fenced.
    leader_epoch: int
    # UNCHANGED if nobody has begun to deliver: the leader decides where to begin.
    start_offset: int
    # How many records from the start offset on are done with; UNCHANGED if nobody has told.
    complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: tuple[StateBatch, ...]
    # Written since the last snapshot.
    update_count: int = 0

    def with_update(self, value: ShareUpdateValue) -> ShareState:
        start_offset = self.start_offset if value.start_offset == UNCHANGED else value.start_offset
        return self._replace(
            leader_epoch=self.leader_epoch if value.leader_epoch == UNCHANGED else value.leader_epoch,
            start_offset=start_offset,
            complete_count=value.delivery_complete_count,
            batches=tuple(overlay(self.batches, _read(value.state_batches), start_offset=start_offset)),
            update_count=self.update_count + 1,
        )


def read_snapshot(value: ShareSnapshotValue) -> ShareState:
    return ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        complete_count=value.delivery_complete_count,
        create_timestamp_ms=value.create_timestamp,
        write_timestamp_ms=value.write_timestamp,
        batches=tuple(overlay((), _read(value.state_batches), start_offset=value.start_offset)),
    )


def snapshot_record(place: SharePlace, state: ShareState) -> StoredRecord:
    return StoredRecord(
        ShareSnapshotKey(group_id=place.group_id, topic_id=place.topic_id, partition=place.partition),
        ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete_count,
            create_timestamp=state.create_timestamp_ms,
            write_timestamp=state.write_timestamp_ms,
            state_batches=[ShareSnapshotValue.StateBatch(**batch._asdict()) for batch in state.batches],
        ),
    )


def update_record(
    place: SharePlace,
    state: ShareState,
    *,
    leader_epoch: int,
    start_offset: int,
    complete_count: int,
    batches: Iterable[StateBatch],
) -> StoredRecord:
    return StoredRecord(
        ShareUpdateKey(group_id=place.group_id, topic_id=place.topic_id, partition=place.partition),
        ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=[ShareUpdateValue.StateBatch(**batch._asdict()) for batch in batches],
        ),
    )


def tombstone(place: SharePlace) -> StoredRecord:
    return StoredRecord(
        ShareSnapshotKey(group_id=place.group_id, topic_id=place.topic_id, partition=place.partition), None
    )


def _read(batches: Iterable[ShareSnapshotValue.StateBatch | ShareUpdateValue.StateBatch]) -> Iterable[StateBatch]:
    for each in batches:
        yield StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)

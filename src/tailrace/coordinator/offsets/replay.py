"""A stored offset, decoded. Loading goes the shorter way, `OffsetStore.replay_raw`, with the bytes as they lie."""

from __future__ import annotations

from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.offsets.store import NO_PRODUCER
from tailrace.coordinator.op import Producer
from tailrace.wire.apis.stored_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)


def replay_offset(
    state: GroupState,
    key: OffsetCommitKey | LegacyOffsetCommitKey,
    value: OffsetCommitValue | LegacyOffsetCommitValue | None,
    producer: Producer | None,
) -> None:
    producer_id = NO_PRODUCER if producer is None else producer.producer_id
    if isinstance(value, LegacyOffsetCommitValue):
        value = OffsetCommitValue(offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp)
    state.offsets.replay(OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), value, producer_id)

"""The records of __remote_log_metadata, in Kafka's formats, and what we put into their custom metadata.

    custom metadata   int8 version (1), int32 leader epoch of who wrote the record, int64 size of the object,
                      int64 log start offset as its writer knows it

Kafka hands custom metadata on as it is, so its own tools read the topic. Ours has the leader epoch by which the records
of a leader that was replaced are refused, what a reader needs to get a whole footer with one request, and where the log
starts: whoever leads next does not begin before it, though copies may reach back farther.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from tailrace.model.ids import PartitionIndex, Uuid
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.wire.apis.stored_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from tailrace.wire.murmur2 import murmur2

_CUSTOM = Struct(">biqq")
_CUSTOM_VERSION = 1
_LONG = Struct(">q")
_MASK = 0xFFFFFFFF


class SegmentState(IntEnum):
    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class PartitionState(IntEnum):
    DELETE_MARKED = 0
    DELETE_STARTED = 1
    DELETE_FINISHED = 2


class Custom(NamedTuple):
    leader_epoch: int
    object_bytes: int
    log_start_offset: int


# Of records that others wrote.
NO_CUSTOM = Custom(-1, 0, 0)


def write_custom(leader_epoch: int, object_bytes: int, log_start_offset: int = 0) -> bytes:
    return _CUSTOM.pack(_CUSTOM_VERSION, leader_epoch, object_bytes, log_start_offset)


def read_custom(data: bytes | None) -> Custom:
    try:
        version, leader_epoch, object_bytes, log_start_offset = _CUSTOM.unpack(data or b"")
    except error:
        return NO_CUSTOM
    return Custom(leader_epoch, object_bytes, log_start_offset) if version == _CUSTOM_VERSION else NO_CUSTOM


def copy_started(
    topic: str, owner: TieredPartition, segment: RemoteSegment, *, leader_epoch: int, now_ms: int
) -> RemoteLogSegmentMetadataRecord:
    record = RemoteLogSegmentMetadataRecord
    place = record.TopicIdPartitionEntry(name=topic, id=owner.topic_id, partition=owner.partition)
    return record(
        remote_log_segment_id=record.RemoteLogSegmentIdEntry(topic_id_partition=place, id=segment.segment_id),
        start_offset=segment.base_offset,
        end_offset=segment.end_offset - 1,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp,
        event_timestamp_ms=now_ms,
        segment_leader_epochs=[
            record.SegmentLeaderEpochEntry(leader_epoch=epoch, offset=offset) for epoch, offset in segment.epochs
        ],
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=write_custom(leader_epoch, segment.object_bytes),
        remote_log_segment_state=SegmentState.COPY_STARTED,
        txn_index_empty=not segment.has_aborted,
    )


def segment_update(
    topic: str,
    owner: TieredPartition,
    segment: RemoteSegment,
    state: SegmentState,
    *,
    broker_id: int,
    leader_epoch: int,
    now_ms: int,
    log_start_offset: int = 0,
) -> RemoteLogSegmentMetadataUpdateRecord:
    record = RemoteLogSegmentMetadataUpdateRecord
    place = record.TopicIdPartitionEntry(name=topic, id=owner.topic_id, partition=owner.partition)
    return record(
        remote_log_segment_id=record.RemoteLogSegmentIdEntry(topic_id_partition=place, id=segment.segment_id),
        broker_id=broker_id,
        event_timestamp_ms=now_ms,
        custom_metadata=write_custom(leader_epoch, segment.object_bytes, log_start_offset),
        remote_log_segment_state=state,
    )


def partition_delete(
    topic: str, owner: TieredPartition, state: PartitionState, *, broker_id: int, now_ms: int
) -> RemotePartitionDeleteMetadataRecord:
    record = RemotePartitionDeleteMetadataRecord
    place = record.TopicIdPartitionEntry(name=topic, id=owner.topic_id, partition=owner.partition)
    return record(
        topic_id_partition=place, broker_id=broker_id, event_timestamp_ms=now_ms, remote_partition_delete_state=state
    )


def owner_of(entry: object) -> TieredPartition:
    """Of the TopicIdPartitionEntry that each kind of record has."""
    place: RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry = entry  # type: ignore[assignment]
    return TieredPartition(Uuid(place.id), PartitionIndex(place.partition))


def metadata_partition(owner: TieredPartition, partition_count: int) -> int:
    """The partition of __remote_log_metadata that tells of a partition. As in Kafka: murmur2 of Java's Objects.hash of
    the two halves of the topic's id and the partition."""
    most, least = _LONG.unpack(owner.topic_id[:8])[0], _LONG.unpack(owner.topic_id[8:])[0]
    hashed = 1
    for number in (_java_hash(least), _java_hash(most), owner.partition):
        hashed = (31 * hashed + number) & _MASK
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def _java_hash(number: int) -> int:
    return (number ^ ((number & ((1 << 64) - 1)) >> 32)) & _MASK

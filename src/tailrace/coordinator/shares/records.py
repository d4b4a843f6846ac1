"""The stored records of share groups: types 10 to 15 of __consumer_offsets, in Kafka's forms. What has no order of its
own is written in ascending order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.op import StoredRecord
from tailrace.model.ids import Uuid
from tailrace.wire.apis.stored_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from tailrace.coordinator.shares.group import ShareTopics
    from tailrace.coordinator.shares.member import ShareMember

_Info = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    return StoredRecord(
        ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    )


def member_record(group_id: str, member: ShareMember) -> StoredRecord:
    return StoredRecord(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_topic_names),
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    return StoredRecord(
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> StoredRecord:
    topic = ShareGroupTargetAssignmentMemberValue.TopicPartition
    return StoredRecord(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                topic(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in sorted(target)
            ]
        ),
    )


def current_record(group_id: str, member: ShareMember) -> StoredRecord:
    topic = ShareGroupCurrentMemberAssignmentValue.TopicPartitions
    return StoredRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=0,
            assigned_partitions=[
                topic(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                for topic_id in sorted(member.assigned)
            ],
        ),
    )


def states_record(
    group_id: str, *, initializing: ShareTopics, initialized: ShareTopics, deleting: Mapping[Uuid, str]
) -> StoredRecord:
    topic = ShareGroupStatePartitionMetadataValue.TopicInfo
    return StoredRecord(
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(initializing),
            initialized_topics=_infos(initialized),
            deleting_topics=[topic(topic_id=topic_id, topic_name=deleting[topic_id]) for topic_id in sorted(deleting)],
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """The member itself goes last: Kafka cannot load a log in which a member goes that still has more."""
    return [
        StoredRecord(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], *, has_states: bool) -> list[StoredRecord]:
    records = [record for member_id in member_ids for record in member_tombstones(group_id, member_id)]
    records.append(StoredRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    if has_states:
        records.append(StoredRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), None))
    records.append(StoredRecord(ShareGroupMetadataKey(group_id=group_id), None))
    return records


def _infos(topics: ShareTopics) -> list[_Info]:
    return [
        _Info(topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(topics[topic_id].partitions))
        for topic_id in sorted(topics)
    ]

"""The stored records of consumer groups: types 3 to 8 and 16 of __consumer_offsets, in Kafka's forms.

What has no order of its own is written in ascending order, so that the same state makes the same bytes on every broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.consumers.member import Assigned, Member
from tailrace.coordinator.op import StoredRecord
from tailrace.model.ids import Uuid
from tailrace.wire.apis.stored_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

CurrentPartitions = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
TargetPartitions = ConsumerGroupTargetAssignmentMemberValue.TopicPartition


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: Member) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetPartitions(topic_id=topic_id, partitions=sorted(target[topic_id])) for topic_id in sorted(target)
            ]
        ),
    )


def current_record(group_id: str, member: Member) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_stored(member.assigned),
            partitions_pending_revocation=_stored(member.pending_revocation),
        ),
    )


def partition_metadata_tombstone(group_id: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def regex_record(group_id: str, regex: str, topics: Iterable[str], *, version: int, timestamp_ms: int) -> StoredRecord:
    return StoredRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> StoredRecord:
    return StoredRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """All that is stored about a member. The member itself goes last: Kafka cannot load a log in which a member goes
    that still has an epoch or a target."""
    return [
        StoredRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        StoredRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str], regexes: Iterable[str]) -> list[StoredRecord]:
    """All that is stored about a group. Kafka cannot load a log in which the epoch of the targets goes before a target,
    or the group before its members or that epoch."""
    records = [record for member_id in member_ids for record in member_tombstones(group_id, member_id)]
    records += [regex_tombstone(group_id, regex) for regex in regexes]
    records.append(StoredRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    records.append(StoredRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records


def read_assigned(stored: Iterable[CurrentPartitions], member_epoch: int) -> Assigned:
    """Records from before partitions had epochs of their own have the member's."""
    assigned: dict[Uuid, Mapping[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs or [member_epoch] * len(topic.partitions)
        assigned[Uuid(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return assigned


def read_target(value: ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {Uuid(topic.topic_id): frozenset(topic.partitions) for topic in value.topic_partitions}


def _stored(assigned: Assigned) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(
            topic_id=topic_id,
            partitions=sorted(assigned[topic_id]),
            assignment_epochs=[epoch for _, epoch in sorted(assigned[topic_id].items())],
        )
        for topic_id in sorted(assigned)
    ]

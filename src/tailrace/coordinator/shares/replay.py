"""Replays the stored records of share groups: the only code that changes what is durable about them.

The log may be compacted: a tombstone may tell of what was never seen, and records of one member may come in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.op import Producer
from tailrace.coordinator.shares.group import ShareGroup, ShareTopic, ShareTopics
from tailrace.coordinator.shares.member import ShareMember
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
from tailrace.wire.schema import Message


def replay_record(state: GroupState, key: Message, value: Message | None, _producer: Producer | None) -> None:
    """A record of a group that is of another type, or not known, makes it a share group; a tombstone does not."""
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        if value is None:
            return
        group = state.groups[group_id] = ShareGroup(group_id)
    _REPLAYS[type(key)](group, key, value)
    if value is None and isinstance(key, ShareGroupMetadataKey):
        del state.groups[group_id]


def _replay_epoch(group: ShareGroup, _: Message, value: ShareGroupMetadataValue | None) -> None:
    if value is not None:
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash


def _replay_member(
    group: ShareGroup, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group.replay_member(None, key.member_id)
        return
    member = group.members.get(key.member_id) or ShareMember(key.member_id)
    updated = member._replace(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=tuple(sorted(set(value.subscribed_topic_names))),
    )
    group.replay_member(updated, key.member_id)


def _replay_target_epoch(group: ShareGroup, _: Message, value: ShareGroupTargetAssignmentMetadataValue | None) -> None:
    group.assignment_epoch = 0 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(
    group: ShareGroup,
    key: ShareGroupTargetAssignmentMemberKey,
    value: ShareGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        topics = value.topic_partitions
        group.targets[key.member_id] = {Uuid(each.topic_id): frozenset(each.partitions) for each in topics}


def _replay_current(
    group: ShareGroup,
    key: ShareGroupCurrentMemberAssignmentKey,
    value: ShareGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            updated = member._replace(member_epoch=-1, previous_member_epoch=-1, assigned={})
            group.replay_member(updated, key.member_id)
        return
    updated = (member or ShareMember(key.member_id))._replace(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        assigned={Uuid(each.topic_id): frozenset(each.partitions) for each in value.assigned_partitions},
    )
    group.replay_member(updated, key.member_id)


def _replay_states(
    group: ShareGroup, _: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
) -> None:
    value = value or ShareGroupStatePartitionMetadataValue()
    group.initializing = _read_topics(value.initializing_topics)
    group.initialized = _read_topics(value.initialized_topics)
    group.deleting = {Uuid(each.topic_id): each.topic_name for each in value.deleting_topics}


def _read_topics(infos: Iterable[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]) -> ShareTopics:
    return {Uuid(each.topic_id): ShareTopic(each.topic_name, frozenset(each.partitions)) for each in infos}


_REPLAYS: dict[type[Message], Callable[[ShareGroup, Any, Any], None]] = {
    ShareGroupMetadataKey: _replay_epoch,
    ShareGroupMemberMetadataKey: _replay_member,
    ShareGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    ShareGroupTargetAssignmentMemberKey: _replay_target,
    ShareGroupCurrentMemberAssignmentKey: _replay_current,
    ShareGroupStatePartitionMetadataKey: _replay_states,
}

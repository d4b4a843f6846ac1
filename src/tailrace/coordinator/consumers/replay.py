"""Replays the stored records of consumer groups: the only code that changes what is durable about them.

The log may be compacted: a tombstone may tell of what was never seen, and records of one member may come in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.coordinator.consumers.group import ConsumerGroup, ResolvedRegex
from tailrace.coordinator.consumers.member import Member, MemberState
from tailrace.coordinator.consumers.records import read_assigned, read_target
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.op import Producer
from tailrace.wire.apis.stored_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tailrace.wire.schema import Message


def replay_record(state: GroupState, key: Message, value: Message | None, _producer: Producer | None) -> None:
    """A record of a group that is of another type, or not known, makes it a consumer group; a tombstone does not."""
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        group = state.groups[group_id] = ConsumerGroup(group_id)
    replay_into(group, key, value)
    if value is None and isinstance(key, ConsumerGroupMetadataKey):
        del state.groups[group_id]


def replay_into(group: ConsumerGroup, key: Message, value: Message | None) -> None:
    """Into a group that may stand for itself: who converts one makes it so."""
    _REPLAYS[type(key)](group, key, value)


def _replay_epoch(group: ConsumerGroup, _: Message, value: ConsumerGroupMetadataValue | None) -> None:
    if value is not None:
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash


def _replay_partition_metadata(
    group: ConsumerGroup, _: Message, value: ConsumerGroupPartitionMetadataValue | None
) -> None:
    group.has_partition_metadata = value is not None


def _replay_member(
    group: ConsumerGroup, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group.replay_member(None, key.member_id)
        return
    member = group.members.get(key.member_id) or Member(key.member_id)
    updated = member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=tuple(sorted(set(value.subscribed_topic_names))),
        subscribed_topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )
    group.replay_member(updated, key.member_id)


def _replay_target_epoch(
    group: ConsumerGroup,
    _: Message,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = 0 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = read_target(value)


def _replay_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            # The tombstone of the member itself follows, unless it is about to join anew.
            updated = member._replace(member_epoch=-1, previous_member_epoch=-1, assigned={}, pending_revocation={})
            group.replay_member(updated, key.member_id)
        return
    updated = (member or Member(key.member_id))._replace(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=read_assigned(value.assigned_partitions, value.member_epoch),
        pending_revocation=read_assigned(value.partitions_pending_revocation, value.member_epoch),
    )
    group.replay_member(updated, key.member_id)


def _replay_regex(
    group: ConsumerGroup, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
) -> None:
    resolved = None if value is None else ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
    group.replay_regex(key.regular_expression, resolved)


_REPLAYS: dict[type[Message], Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _replay_epoch,
    ConsumerGroupPartitionMetadataKey: _replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: _replay_member,
    ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: _replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: _replay_current,
    ConsumerGroupRegularExpressionKey: _replay_regex,
}

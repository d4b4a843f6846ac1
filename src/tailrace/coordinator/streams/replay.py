"""Replays the stored records of streams groups: the only code that changes what is durable about them.

The log may be compacted: a tombstone may tell of what was never seen, and records of one member may come in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.op import Producer
from tailrace.coordinator.streams.group import Basis, StreamsGroup
from tailrace.coordinator.streams.member import Held, MemberState, StreamsMember
from tailrace.coordinator.streams.records import read_assigned, read_pending, read_target
from tailrace.coordinator.streams.topology import Topology
from tailrace.wire.apis.stored_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from tailrace.wire.schema import Message


def replay_record(state: GroupState, key: Message, value: Message | None, _producer: Producer | None) -> None:
    """A record of a group that is of another type, or not known, makes it a streams group; a tombstone does not."""
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        if value is None:
            return
        group = state.groups[group_id] = StreamsGroup(group_id)
    _REPLAYS[type(key)](group, key, value)
    # The tombstone of the topology is the last one: the cleaner may have left the topology, and nothing before it.
    if value is None and (isinstance(key, StreamsGroupMetadataKey) or group.is_blank):
        del state.groups[group_id]


def _replay_epoch(group: StreamsGroup, _: Message, value: StreamsGroupMetadataValue | None) -> None:
    if value is not None:
        configs = {each.key: each.value for each in value.last_assignment_configs or ()}
        group.epoch = value.epoch
        group.basis = Basis(value.metadata_hash, value.validated_topology_epoch, configs)


def _replay_topology(group: StreamsGroup, _: Message, value: StreamsGroupTopologyValue | None) -> None:
    group.topology = None if value is None else Topology(value)


def _replay_member(
    group: StreamsGroup, key: StreamsGroupMemberMetadataKey, value: StreamsGroupMemberMetadataValue | None
) -> None:
    if value is None:
        group.replay_member(None, key.member_id)
        return
    endpoint = value.user_endpoint
    member = group.members.get(key.member_id) or StreamsMember(key.member_id)
    updated = member._replace(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags=tuple(sorted((each.key, each.value) for each in value.client_tags)),
    )
    group.replay_member(updated, key.member_id)


def _replay_target_epoch(
    group: StreamsGroup, _: Message, value: StreamsGroupTargetAssignmentMetadataValue | None
) -> None:
    group.assignment_epoch = -1 if value is None else value.assignment_epoch
    group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp


def _replay_target(
    group: StreamsGroup,
    key: StreamsGroupTargetAssignmentMemberKey,
    value: StreamsGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.targets.pop(key.member_id, None)
    else:
        group.targets[key.member_id] = read_target(value)


def _replay_current(
    group: StreamsGroup,
    key: StreamsGroupCurrentMemberAssignmentKey,
    value: StreamsGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            updated = member._replace(
                member_epoch=-1, previous_member_epoch=-1, assigned=Held(), pending_revocation=Held()
            )
            group.replay_member(updated, key.member_id)
        return
    updated = (member or StreamsMember(key.member_id))._replace(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=read_assigned(value),
        pending_revocation=read_pending(value),
    )
    group.replay_member(updated, key.member_id)


_REPLAYS: dict[type[Message], Callable[[StreamsGroup, Any, Any], None]] = {
    StreamsGroupMetadataKey: _replay_epoch,
    StreamsGroupTopologyKey: _replay_topology,
    StreamsGroupMemberMetadataKey: _replay_member,
    StreamsGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    StreamsGroupTargetAssignmentMemberKey: _replay_target,
    StreamsGroupCurrentMemberAssignmentKey: _replay_current,
}

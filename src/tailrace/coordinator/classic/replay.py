"""The stored records of classic groups become groups again."""

from __future__ import annotations

from tailrace.coordinator.classic.change import is_rebalancing
from tailrace.coordinator.classic.group import JOIN, SESSION, SYNC, ClassicGroup, ClassicState
from tailrace.coordinator.classic.member import ClassicMember, Protocol
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.op import Producer
from tailrace.wire.apis.stored_records import GroupMetadataKey, GroupMetadataValue


def replay_group(
    state: GroupState, key: GroupMetadataKey, value: GroupMetadataValue | None, producer: Producer | None
) -> None:
    del producer  # Groups belong to no transaction.
    group = state.groups.get(key.group)
    if value is None:
        # For a group that has changed to the other protocol, the tombstone says only that its classic form is gone.
        if isinstance(group, ClassicGroup):
            _remove(state, group)
    elif isinstance(group, ClassicGroup) and group.unreplayed and group.unreplayed[0] == value:
        group.stored = group.unreplayed.popleft()
    else:
        state.groups[key.group] = load_group(key.group, value)


def load_group(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """As far as it is stored: of the protocols that a member knows, only the chosen one is."""
    group = ClassicGroup(group_id)
    group.generation = value.generation
    group.protocol_type = value.protocol_type
    group.protocol_name = value.protocol
    group.state_since_ms = None if value.current_state_timestamp < 0 else value.current_state_timestamp
    for stored in value.members:
        group.add_member(_load_member(stored, value.protocol or ""), value.protocol_type)
    if value.leader is not None:
        group.leader_id = value.leader
    group.state = ClassicState.STABLE if group.members else ClassicState.EMPTY
    if is_rebalancing(value):
        # As it was when this was stored: its members are told to join again, and may commit until they do.
        group.generation -= 1
        group.state = ClassicState.PREPARING_REBALANCE
    group.stored = value
    return group


def _load_member(stored: GroupMetadataValue.MemberMetadata, protocol_name: str) -> ClassicMember:
    return ClassicMember(
        stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout < 0 else stored.rebalance_timeout,
        session_timeout_ms=stored.session_timeout,
        protocols=(Protocol(protocol_name, stored.subscription),),
        assignment=stored.assignment,
    )


def _remove(state: GroupState, group: ClassicGroup) -> None:
    del state.groups[group.group_id]
    for member_id in (*group.members, *group.pending_joins):
        state.deadlines.cancel((group.group_id, SESSION, member_id))
    state.deadlines.cancel((group.group_id, JOIN, ""))
    state.deadlines.cancel((group.group_id, SYNC, ""))

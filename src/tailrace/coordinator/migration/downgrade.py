"""A consumer group becomes a classic group while its members go on: the last member of the new protocol has gone.

The new group is stable in the generation that was the group's epoch, each member with what it has as assignment, and
begins a rebalance at once: its members are told to join again, and one of them will assign. The record tells that it
rebalances (`stored_rebalancing_group`), so that another coordinator goes on with that, and the partitions of those who
have gone do not stay without an owner. (Kafka stores the group's epoch and the members' targets, and takes the group
for stable when it loads it: partitions can stay without an owner then, or have two for a while.)
"""

from __future__ import annotations

from collections.abc import Collection

from tailrace.coordinator.classic.change import (
    ClassicGroupChange,
    Why,
    stored_group,
    stored_rebalancing_group,
)
from tailrace.coordinator.classic.group import JOIN, SYNC, ClassicGroup, ClassicState
from tailrace.coordinator.classic.member import ClassicMember, Protocol
from tailrace.coordinator.classic.rebalance import prepare
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.member import Member
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.migration.embedded import CONSUMER_PROTOCOL_TYPE, MEMBER_BYTES, write_assignment
from tailrace.coordinator.op import Call, Result

# The longest.
_TOPIC_NAME_BYTES = 249
_POLICIES = frozenset({"bidirectional", "downgrade"})


def downgrade_group(state: GroupState, call: Call, group: ConsumerGroup, leaving: Collection[Member]) -> Result | None:
    """None if the group stays what it is when these members leave; it is then up to the caller to remove them."""
    gone = {member.member_id for member in leaving}
    staying = [member for member in group.members.values() if member.member_id not in gone]
    if not is_downgrade(call, group, staying):
        return None
    change = ClassicGroupChange(state, call)
    classic = replace_by_classic_group(change, group, staying, is_rebalancing=True)
    who = ", ".join(sorted(gone))
    prepare(change, classic, Why(Cause.PROTOCOL_CHANGED, f"the last members of the consumer protocol have gone: {who}"))
    return change.result()


def is_downgrade(call: Call, group: ConsumerGroup, members: Collection[Member]) -> bool:
    """Whether the group, with these members, is to be a classic one."""
    return (
        0 < len(members) <= call.config.group_max_size
        and all(member.is_classic for member in members)
        and call.config.group_consumer_migration_policy in _POLICIES
        # It is stored in one record, which must fit.
        and sum(_stored_bytes(group, member) for member in members) <= call.config.message_max_bytes
    )


def replace_by_classic_group(
    change: ClassicGroupChange, group: ConsumerGroup, members: Collection[Member], *, is_rebalancing: bool
) -> ClassicGroup:
    """Puts a stable classic group of these members in its place, and stores it; if it is to rebalance, the caller sees
    to that. It has to, if a JoinGroup waits, or if a member has not reached its target."""
    change.records.extend(group.deletion_records())
    classic = ClassicGroup(group.group_id)
    for member in members:
        converted = _convert(member)
        classic.add_member(converted, CONSUMER_PROTOCOL_TYPE)
        waiting = group.waiting.pop(member.member_id, None)
        if waiting is not None:
            classic.park_join(converted, waiting.caller)
    classic.generation = group.epoch
    classic.state = ClassicState.STABLE
    classic.state_since_ms = change.call.now_ms
    classic.protocol_name = classic.select_protocol()
    _drop_deadlines(change.state, classic)
    for member in members:
        converted = classic.members[member.member_id]
        assigned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
        metadata = converted.metadata(classic.protocol_name)
        converted.assignment = write_assignment(assigned, change.call.image, metadata)
        change.extend_session(classic, converted)
    change.state.groups[group.group_id] = classic
    classic.stored = stored_rebalancing_group(classic) if is_rebalancing else stored_group(classic)
    change.write(classic, classic.stored)
    return classic


def _drop_deadlines(state: GroupState, group: ClassicGroup) -> None:
    """Drops those of the consumer group, and of the classic one that it once was."""
    for what in (JOIN, SYNC):
        state.deadlines.cancel((group.group_id, what, ""))
    for member_id in group.members:
        for what in ("session", "answer", "join", "sync"):
            state.deadlines.cancel((group.group_id, f"consumer.{what}", member_id))


def _stored_bytes(group: ConsumerGroup, member: Member) -> int:
    """Roughly: the tombstones of three records, and its part of the new one."""
    assert member.classic is not None
    metadata_bytes = max(len(protocol.metadata) for protocol in member.classic.supported_protocols)
    target = group.targets.get(member.member_id, {})
    partitions_bytes = sum(_TOPIC_NAME_BYTES + 4 * len(partitions) for partitions in target.values())
    return 3 * (len(group.group_id) + len(member.member_id)) + metadata_bytes + partitions_bytes + MEMBER_BYTES


def _convert(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple(Protocol(each.name, each.metadata) for each in member.classic.supported_protocols),
    )

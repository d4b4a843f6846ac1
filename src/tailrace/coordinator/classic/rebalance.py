"""How a classic group gets from one generation to the next: gather its members, choose a protocol, tell the leader.

`rebalance` is asked after every change of the members. Everybody whose JoinGroup or SyncGroup waits is answered here.
"""

from __future__ import annotations

from tailrace.coordinator.classic.change import ClassicGroupChange, Why, stored_group
from tailrace.coordinator.classic.group import JOIN, SESSION, SYNC, ClassicGroup, ClassicState
from tailrace.coordinator.classic.member import ClassicMember
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import JoinGroupResponse, SyncGroupResponse


def rebalance(change: ClassicGroupChange, group: ClassicGroup, why: Why) -> None:
    """Begins a rebalance; if one is under way, it goes on as far as it can."""
    if group.state is ClassicState.PREPARING_REBALANCE:
        complete_join_if_all_are_there(change, group)
    else:
        prepare(change, group, why)


def prepare(change: ClassicGroupChange, group: ClassicGroup, why: Why) -> None:
    """Members learn of it by their heartbeats, and have the rebalance timeout to join again."""
    change.note(group, why)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        _cancel_syncs(change, group)
    group.pending_syncs.clear()
    change.state.deadlines.cancel((group.group_id, SYNC, ""))
    was_empty = group.is_empty
    group.change_state(ClassicState.PREPARING_REBALANCE, change.call.now_ms)
    if was_empty:
        delay_ms = change.call.config.group_initial_rebalance_delay_ms
        group.has_grown = False
        _wait_for_more(change, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.has_all_joined:
        complete_join(change, group)
    else:
        _set_join_deadline(change, group, group.rebalance_timeout_ms)


def resume(change: ClassicGroupChange, group: ClassicGroup, why: Why) -> None:
    """A rebalance that another coordinator began: members have all of their time again."""
    change.note(group, why)
    _set_join_deadline(change, group, group.rebalance_timeout_ms)


def on_join_deadline(change: ClassicGroupChange, group: ClassicGroup) -> None:
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    if group.initial_delay is not None and group.has_grown and group.initial_delay[1]:
        # Members of a group that starts come one after the other: wait for a next one, up to the rebalance timeout.
        delay_ms, remaining_ms = group.initial_delay
        group.has_grown = False
        next_delay_ms = min(change.call.config.group_initial_rebalance_delay_ms, remaining_ms)
        _wait_for_more(change, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
    else:
        complete_join(change, group)


def complete_join_if_all_are_there(change: ClassicGroupChange, group: ClassicGroup) -> None:
    """The first rebalance of an empty group waits its delay out."""
    if group.state is ClassicState.PREPARING_REBALANCE and group.initial_delay is None and group.has_all_joined:
        complete_join(change, group)


def complete_join(change: ClassicGroupChange, group: ClassicGroup) -> None:
    """A new generation of those who have joined, and of the static members, who may be restarting."""
    change.state.deadlines.cancel((group.group_id, JOIN, ""))
    for member in [each for each in group.members.values() if each.join_caller is None and each.instance_id is None]:
        drop_member(change, group, member)
    if not group.elect_joined_leader() and group.members:
        # Only static members are left, and none has joined: their sessions will end, or they come.
        group.initial_delay = None
        _set_join_deadline(change, group, group.rebalance_timeout_ms)
        return
    group.begin_generation(change.call.now_ms)
    if group.is_empty:
        change.write(group, stored_group(group))
        return
    for member in group.members.values():
        change.answer(group.park_join(member, None), joined(group, member))
        change.extend_session(group, member)
        member.is_new = False
    group.pending_syncs.update(group.members)
    change.state.deadlines.set((group.group_id, SYNC, ""), change.call.monotonic_ms + group.rebalance_timeout_ms)


def write_members(change: ClassicGroupChange, group: ClassicGroup) -> None:
    """Stores a generation that has its assignment. If that is too large to be stored, the members join again: those who
    waited for it are told by whoever refused it."""
    value = stored_group(group)
    change.write(group, value)

    def repair(call: Call) -> Result:
        again = ClassicGroupChange(change.state, call)
        group.unreplayed.remove(value)
        for member in group.members.values():
            member.assignment = b""
        detail = f"the assignment of generation {group.generation} is too large to be stored"
        prepare(again, group, Why(Cause.RECORD_TOO_LARGE, detail))
        return again.result()

    change.on_refused = repair


def joined(group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
    """What a member learns of the generation; the leader learns of all members, for it is to assign."""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=_described_members(group) if group.leader_id == member.member_id else [],
    )


def _described_members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.members.values()
    ]


def drop_member(change: ClassicGroupChange, group: ClassicGroup, member: ClassicMember) -> None:
    """Out of the group, without a rebalance yet. If its client still waits, it is to join anew."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    change.refuse_join(group.park_join(member, None), unknown)
    change.answer(take_sync(member), SyncGroupResponse(error_code=unknown))
    change.state.deadlines.cancel((group.group_id, SESSION, member.member_id))
    group.remove_member(member.member_id)


def take_sync(member: ClassicMember) -> Caller | None:
    caller, member.sync_caller = member.sync_caller, None
    return caller


def _cancel_syncs(change: ClassicGroupChange, group: ClassicGroup) -> None:
    """Who waits for the assignment of a generation that never got one joins again."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_caller is not None:
            change.answer(take_sync(member), SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
            change.extend_session(group, member)


def _wait_for_more(change: ClassicGroupChange, group: ClassicGroup, delay_ms: float, remaining_ms: float) -> None:
    group.initial_delay = delay_ms, remaining_ms
    _set_join_deadline(change, group, delay_ms)


def _set_join_deadline(change: ClassicGroupChange, group: ClassicGroup, delay_ms: float) -> None:
    change.state.deadlines.set((group.group_id, JOIN, ""), change.call.monotonic_ms + delay_ms)

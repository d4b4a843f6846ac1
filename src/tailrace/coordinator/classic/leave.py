"""LeaveGroup: members leave a classic group by themselves, or an administrator removes them (KIP-345)."""

from __future__ import annotations

from tailrace.coordinator.classic.change import ClassicGroupChange, Why
from tailrace.coordinator.classic.group import SESSION, ClassicGroup
from tailrace.coordinator.classic.member import ClassicMember
from tailrace.coordinator.classic.rebalance import complete_join_if_all_are_there, drop_member, rebalance
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import LeaveGroupRequest, LeaveGroupResponse

# From here on a request names several members.
_SEVERAL_MEMBERS_VERSION = 3


def leave_group(state: GroupState, call: Call, caller: Caller, request: LeaveGroupRequest) -> Result:
    group = state.of_consumers(request.group_id)
    if group is not None and not isinstance(group, ClassicGroup):
        from tailrace.coordinator.migration import classic_members

        return classic_members.leave_group(state, call, caller, request)
    change = ClassicGroupChange(state, call)
    codes: list[ErrorCode] = []
    leaving = read_leaving(caller, request)
    why: Why | None = None
    for each in leaving:
        try:
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"There is no group {request.group_id!r}.")
            why = _remove(change, group, each) or why
            codes.append(ErrorCode.NONE)
        except KafkaError as fault:
            codes.append(fault.code)
    if group is not None and not group.is_empty:
        if why is not None:
            rebalance(change, group, why)
        elif ErrorCode.NONE in codes:
            complete_join_if_all_are_there(change, group)
    change.answer(caller, leave_response(caller, leaving, codes))
    return change.result()


def read_leaving(caller: Caller, request: LeaveGroupRequest) -> list[LeaveGroupRequest.MemberIdentity]:
    if caller.api_version >= _SEVERAL_MEMBERS_VERSION:
        return request.members
    return [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]


def _remove(change: ClassicGroupChange, group: ClassicGroup, leaving: LeaveGroupRequest.MemberIdentity) -> Why | None:
    """Why the group has to rebalance now, if it has to. Raises KafkaError if there is no such member."""
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if member_id in group.pending_joins:
        change.state.deadlines.cancel((group.group_id, SESSION, member_id))
        group.remove_member(member_id)
        return None
    by_admin = not member_id
    if by_admin and instance_id is not None:
        member_id = group.static_member_ids.get(instance_id, "")
    group.check_member(member_id, instance_id)
    member = group.members[member_id]
    why = _why(member, leaving.reason, by_admin=by_admin)
    drop_member(change, group, member)
    return why


def _why(member: ClassicMember, reason: str | None, *, by_admin: bool) -> Why:
    said = f": {reason}" if reason else ""
    if by_admin:
        return Why(Cause.MEMBER_REMOVED, f"instance {member.instance_id} was removed by an administrator{said}", member)
    return Why(Cause.MEMBER_LEFT, f"member {member.member_id} left{said}", member)


def leave_response(
    caller: Caller, leaving: list[LeaveGroupRequest.MemberIdentity], codes: list[ErrorCode]
) -> LeaveGroupResponse:
    if caller.api_version < _SEVERAL_MEMBERS_VERSION:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
            for each, code in zip(leaving, codes, strict=True)
        ]
    )

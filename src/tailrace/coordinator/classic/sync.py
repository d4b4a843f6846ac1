"""SyncGroup: the leader of a classic group brings the assignment of a generation, the others fetch their part."""

from __future__ import annotations

from tailrace.coordinator.classic.change import ClassicGroupChange
from tailrace.coordinator.classic.group import SYNC, ClassicGroup, ClassicState
from tailrace.coordinator.classic.rebalance import take_sync, write_members
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import SyncGroupRequest, SyncGroupResponse

# From here on a client repeats what was agreed (KIP-559), and has to.
_PROTOCOL_VERSION = 5


def sync_group(state: GroupState, call: Call, caller: Caller, request: SyncGroupRequest) -> Result:
    if caller.api_version >= _PROTOCOL_VERSION and (request.protocol_type is None or request.protocol_name is None):
        return _refuse(caller, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    group = state.of_consumers(request.group_id)
    if group is None or group.is_empty:
        return _refuse(caller, ErrorCode.UNKNOWN_MEMBER_ID)
    if not isinstance(group, ClassicGroup):
        from tailrace.coordinator.migration import classic_members

        return classic_members.sync_group(state, call, caller, request)
    try:
        _check(group, request)
    except KafkaError as fault:
        return _refuse(caller, fault.code)
    if group.state is ClassicState.PREPARING_REBALANCE:
        return _refuse(caller, ErrorCode.REBALANCE_IN_PROGRESS)
    change = ClassicGroupChange(state, call)
    member = group.members[request.member_id]
    group.pending_syncs.discard(member.member_id)
    if not group.pending_syncs:
        state.deadlines.cancel((group.group_id, SYNC, ""))
    if group.state is ClassicState.STABLE:
        change.answer(caller, _assigned(group, member.assignment))
        return change.result()
    # A client that lost its connection asks again: who waited before is gone, and any answer ends its wait.
    change.answer(take_sync(member), SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_caller = caller
    if group.leader_id == member.member_id:
        _assign(change, group, request)
    return change.result()


def _check(group: ClassicGroup, request: SyncGroupRequest) -> None:
    group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    for said, agreed in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and said != agreed:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Group {group.group_id!r} agreed on {agreed!r}, not {said!r}."
            )


def _assign(change: ClassicGroupChange, group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Whom the leader forgot gets an empty assignment."""
    assignments = {each.member_id: each.assignment for each in request.assignments}
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    # Kafka stores when the group began to complete, for it stores before it calls the group stable.
    write_members(change, group)
    group.change_state(ClassicState.STABLE, change.call.now_ms)
    for member in group.members.values():
        if member.sync_caller is not None:
            change.answer(take_sync(member), _assigned(group, member.assignment))
            change.extend_session(group, member)


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def _refuse(caller: Caller, code: ErrorCode) -> Result:
    return Result(answers=((caller, SyncGroupResponse(error_code=code)),))

"""Heartbeat: a member of a classic group is alive, and learns whether it has to join again."""

from __future__ import annotations

from tailrace.coordinator.classic.group import ClassicGroup, ClassicState
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import HeartbeatRequest, HeartbeatResponse


def heartbeat(state: GroupState, call: Call, caller: Caller, request: HeartbeatRequest) -> Result:
    group = state.of_consumers(request.group_id)
    if not isinstance(group, ClassicGroup):
        if group is not None:
            from tailrace.coordinator.migration import classic_members

            return classic_members.heartbeat(state, call, caller, request)
        return _answer(caller, ErrorCode.UNKNOWN_MEMBER_ID)
    try:
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
    except KafkaError as fault:
        return _answer(caller, fault.code)
    group.extend_session(group.members[request.member_id], call, state.deadlines)
    is_rebalancing = group.state is ClassicState.PREPARING_REBALANCE
    return _answer(caller, ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.NONE)


def _answer(caller: Caller, code: ErrorCode) -> Result:
    return Result(answers=((caller, HeartbeatResponse(error_code=code)),))

"""JoinGroup: a client becomes a member of a classic group, or comes back for its next generation.

The answer waits until the members are gathered (`rebalance`), unless there is nothing to wait for.
"""

from __future__ import annotations

from tailrace.coordinator.classic.change import ClassicGroupChange, Why, stored_new_group
from tailrace.coordinator.classic.group import SESSION, ClassicGroup, ClassicState
from tailrace.coordinator.classic.member import ClassicMember, Protocol
from tailrace.coordinator.classic.rebalance import (
    complete_join_if_all_are_there,
    joined,
    rebalance,
    take_sync,
    write_members,
)
from tailrace.coordinator.groups import Group, GroupState, GroupType
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import dashed_uuid
from tailrace.wire.apis.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

# Version 0 has one timeout for both.
_REBALANCE_TIMEOUT_VERSION = 1
# From here on a client joins twice, so that one that loses the first answer leaves no member behind (KIP-394).
_MEMBER_ID_REQUIRED_VERSION = 4
# From here on a static leader that comes back can be told that it leads and need not assign (KIP-814).
_SKIP_ASSIGNMENT_VERSION = 9
# Ids of a group that wait for their clients. One that is forgotten too early costs its client another round.
_PENDING_JOINS_MAX = 10_000
# Characters of a client's or an instance's name in its member's id, which must fit into a string of the protocol.
_NAME_IN_ID_MAX = 1_000
# A member that waits for its first generation cannot send heartbeats, and we cannot see whether its client is still
# there: it may wait this long, and then has to ask again. Kafka's own constant.
_NEW_MEMBER_TIMEOUT_MS = 300_000


def join_group(state: GroupState, call: Call, caller: Caller, request: JoinGroupRequest) -> Result:
    group = state.groups.get(request.group_id)
    change = ClassicGroupChange(state, call)
    try:
        _check_request(call, request)
        if group is not None and group.type is GroupType.CONSUMER and not group.is_empty:
            from tailrace.coordinator.migration import classic_members

            return classic_members.join_group(state, call, caller, request)
        if group is not None and _is_of_another_kind(group):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Group {request.group_id} is a {group.type} group."
            )
        if isinstance(group, ClassicGroup):
            _join(change, group, caller, request)
        elif request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"There is no group {request.group_id!r}: join it anew.")
        else:
            if group is not None:
                change.records.extend(group.deletion_records())
            _join_new_group(change, caller, request)
    except KafkaError as fault:
        # Who does not fit into the group is to forget the id that it was given.
        member_id = "" if fault.code is ErrorCode.GROUP_MAX_SIZE_REACHED else request.member_id
        change.refuse_join(caller, fault.code, member_id)
    return change.result()


def _is_of_another_kind(group: Group) -> bool:
    """An application of Kafka Streams without members may go back to the classic protocol."""
    return group.type is GroupType.SHARE or (group.type is GroupType.STREAMS and not group.is_empty)


def _check_request(call: Call, request: JoinGroupRequest) -> None:
    minimum, maximum = call.config.group_min_session_timeout_ms, call.config.group_max_session_timeout_ms
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "A group needs a name.")
    if not minimum <= request.session_timeout_ms <= maximum:
        raise KafkaError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"A session timeout of {request.session_timeout_ms} ms is not between {minimum} and {maximum}"
            " (group.min.session.timeout.ms and group.max.session.timeout.ms).",
        )
    if not request.protocol_type or not request.protocols:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "A member needs a protocol type and a protocol.")


def _join_new_group(change: ClassicGroupChange, caller: Caller, request: JoinGroupRequest) -> None:
    group = change.state.groups[request.group_id] = ClassicGroup(request.group_id)
    group.state_since_ms = change.call.now_ms
    change.write(group, stored_new_group(group))
    _join(change, group, caller, request)


def _join(change: ClassicGroupChange, group: ClassicGroup, caller: Caller, request: JoinGroupRequest) -> None:
    member_id = request.member_id
    if not _has_room(change, group, member_id):
        _turn_away(change, group, member_id)
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"Group {group.group_id!r} has {change.call.config.group_max_size} members: group.max.size allows no more.",
        )
    if not group.supports(request.protocol_type, [each.name for each in request.protocols]):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Group {group.group_id!r} is of type {group.protocol_type!r}, and all its members must have a protocol in"
            " common.",
        )
    if member_id:
        _join_with_member_id(change, group, caller, request)
    else:
        _join_without_member_id(change, group, caller, request)


def _has_room(change: ClassicGroupChange, group: ClassicGroup, member_id: str) -> bool:
    size_max = change.call.config.group_max_size
    if group.is_empty:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        # Those who have joined count, not the members: if the limit was lowered, the last ones to join are refused.
        return (member is not None and member.join_caller is not None) or group.joining_count < size_max
    return member is not None or len(group.members) < size_max


def _turn_away(change: ClassicGroupChange, group: ClassicGroup, member_id: str) -> None:
    change.state.deadlines.cancel((group.group_id, SESSION, member_id))
    group.remove_member(member_id)
    complete_join_if_all_are_there(change, group)


def _join_without_member_id(
    change: ClassicGroupChange, group: ClassicGroup, caller: Caller, request: JoinGroupRequest
) -> None:
    instance_id = request.group_instance_id
    name = caller.client_id if instance_id is None else instance_id
    member_id = f"{name[:_NAME_IN_ID_MAX]}-{dashed_uuid(change.call.random.uuid())}"
    if instance_id is not None and instance_id in group.static_member_ids:
        _replace(change, group, member_id, caller, request)
    elif instance_id is not None or caller.api_version < _MEMBER_ID_REQUIRED_VERSION:
        _add(change, group, member_id, caller, request)
    else:
        _give_away(change, group, member_id, request.session_timeout_ms)
        change.refuse_join(caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _give_away(change: ClassicGroupChange, group: ClassicGroup, member_id: str, session_timeout_ms: int) -> None:
    """An id that its client is to come back with. Clients that never do must not fill the memory."""
    if len(group.pending_joins) >= _PENDING_JOINS_MAX:
        oldest = next(iter(group.pending_joins))
        group.remove_member(oldest)
        change.state.deadlines.cancel((group.group_id, SESSION, oldest))
    group.pending_joins[member_id] = None
    change.state.deadlines.set((group.group_id, SESSION, member_id), change.call.monotonic_ms + session_timeout_ms)


def _join_with_member_id(
    change: ClassicGroupChange, group: ClassicGroup, caller: Caller, request: JoinGroupRequest
) -> None:
    member_id = request.member_id
    if member_id in group.pending_joins and request.group_instance_id is None:
        _add(change, group, member_id, caller, request)
        return
    group.check_member(member_id, request.group_instance_id)
    member = group.members[member_id]
    why = _why_rebalance(group, member, request)
    if why is None:
        # It lost the answer, and nothing has changed: it goes on in this generation.
        change.extend_session(group, member)
        change.answer(caller, joined(group, member))
        return
    _update(group, member, caller, request)
    # Whoever waited for this member so far is gone, or has the same member id by mistake.
    change.refuse_join(group.park_join(member, caller), ErrorCode.UNKNOWN_MEMBER_ID)
    rebalance(change, group, why)


def _why_rebalance(group: ClassicGroup, member: ClassicMember, request: JoinGroupRequest) -> Why | None:
    if member.protocols != _protocols(request):
        detail = f"member {member.member_id} changed its metadata{_reason(request)}"
    elif group.state is ClassicState.PREPARING_REBALANCE:
        detail = f"member {member.member_id} joined again{_reason(request)}"
    elif group.state is ClassicState.STABLE and group.leader_id == member.member_id:
        # The leader knows of changes that its metadata does not tell, such as new partitions.
        detail = f"leader {member.member_id} joined again{_reason(request)}"
    else:
        return None
    return Why(Cause.MEMBER_REJOINED, detail, member)


def _add(
    change: ClassicGroupChange, group: ClassicGroup, member_id: str, caller: Caller, request: JoinGroupRequest
) -> None:
    member = ClassicMember(
        member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(caller, request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
        is_new=True,
    )
    if group.initial_delay is not None:
        group.has_grown = True
    group.add_member(member, request.protocol_type)
    group.park_join(member, caller)
    due_ms = change.call.monotonic_ms + _NEW_MEMBER_TIMEOUT_MS
    change.state.deadlines.set((group.group_id, SESSION, member_id), due_ms)
    rebalance(change, group, Why(Cause.MEMBER_JOINED, f"member {member_id} joined{_reason(request)}", member))


def _replace(
    change: ClassicGroupChange, group: ClassicGroup, new_member_id: str, caller: Caller, request: JoinGroupRequest
) -> None:
    """A static member has restarted: it takes its old place under a new member id, which fences the old client. A
    stable group goes on without a rebalance, and stores the new id."""
    assert request.group_instance_id is not None
    member = group.members[group.static_member_ids[request.group_instance_id]]
    old_leader_id = group.leader_id or ""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    change.refuse_join(group.park_join(member, None), fenced, member.member_id)
    change.answer(take_sync(member), SyncGroupResponse(error_code=fenced))
    change.state.deadlines.cancel((group.group_id, SESSION, member.member_id))
    group.replace_static_member(member, new_member_id)
    _update(group, member, caller, request)
    change.extend_session(group, member)
    if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
        write_members(change, group)
        change.answer(caller, _kept_place(group, member, caller, old_leader_id))
        return
    group.park_join(member, caller)
    detail = f"instance {member.instance_id} came back as member {new_member_id}{_reason(request)}"
    rebalance(change, group, Why(Cause.MEMBER_REJOINED, detail, member))


def _kept_place(group: ClassicGroup, member: ClassicMember, caller: Caller, old_leader_id: str) -> JoinGroupResponse:
    response = joined(group, member)
    if caller.api_version >= _SKIP_ASSIGNMENT_VERSION:
        response.skip_assignment = group.leader_id == member.member_id
    else:
        # It must not take itself for the leader: a stable group would not listen to its assignment.
        response.leader = old_leader_id
        response.members = []
    return response


def _update(group: ClassicGroup, member: ClassicMember, caller: Caller, request: JoinGroupRequest) -> None:
    group.update_protocols(member, _protocols(request))
    member.rebalance_timeout_ms = _rebalance_timeout_ms(caller, request)
    member.session_timeout_ms = request.session_timeout_ms


def _protocols(request: JoinGroupRequest) -> tuple[Protocol, ...]:
    return tuple(Protocol(each.name, each.metadata) for each in request.protocols)


def _rebalance_timeout_ms(caller: Caller, request: JoinGroupRequest) -> int:
    has_own = caller.api_version >= _REBALANCE_TIMEOUT_VERSION
    return request.rebalance_timeout_ms if has_own else request.session_timeout_ms


def _reason(request: JoinGroupRequest) -> str:
    """What the client says about it (KIP-800)."""
    return f": {request.reason}" if request.reason else ""

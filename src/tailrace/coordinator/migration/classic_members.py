"""Members of a consumer group whose clients still speak the classic protocol.

The broker assigns, so there is no leader, and members do not wait for each other: each has its own way to its target,
as those of the new protocol have, and its member epoch is its generation.

    JoinGroup   says what the member is subscribed to and what it has; brings it a step nearer to its target. If that
                changed the group, the answer waits for the new target, as that of a heartbeat does
    SyncGroup   gives it what it has now
    Heartbeat   REBALANCE_IN_PROGRESS if it has to join again: for a newer target, to confirm that it gave up
                partitions, or because others have given up those that it waits for

A member that was told to join again, or has joined and not synced, has its rebalance timeout to do so.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.classic.change import ClassicGroupChange, Why
from tailrace.coordinator.classic.leave import leave_response, read_leaving
from tailrace.coordinator.classic.rebalance import prepare
from tailrace.coordinator.consumers.change import ConsumerGroupChange, remove_members
from tailrace.coordinator.consumers.group import ConsumerGroup, Waiting
from tailrace.coordinator.consumers.heartbeat import may_wait, wait_max_ms
from tailrace.coordinator.consumers.member import LEAVE_STATIC_EPOCH, Member, MemberState
from tailrace.coordinator.consumers.targets import records_max_bytes
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.migration.downgrade import is_downgrade, replace_by_classic_group
from tailrace.coordinator.migration.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    by_topic_id,
    read_subscription,
    topic_names,
    write_assignment,
)
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.model.ids import Uuid, uuid_text
from tailrace.wire.apis.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tailrace.wire.apis.stored_records import ConsumerGroupMemberMetadataValue, ConsumerProtocolSubscription

# From here on a client joins twice, the second time with the member id that it was given (KIP-394).
_MEMBER_ID_REQUIRED_VERSION = 4
# Version 0 has one timeout for both.
_REBALANCE_TIMEOUT_VERSION = 1

ClassicMemberMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata
ClassicProtocol = ConsumerGroupMemberMetadataValue.ClassicProtocol


def join_group(state: GroupState, call: Call, caller: Caller, request: JoinGroupRequest) -> Result:
    """To a group that is not empty."""
    group = _group(state, request.group_id)
    member_id = request.member_id or uuid_text(Uuid(call.random.uuid()))
    _check_room(group, call, member_id)
    _check_size(call, request)
    subscription = _read_request(group, request)
    if (
        not request.member_id
        and request.group_instance_id is None
        and caller.api_version >= _MEMBER_ID_REQUIRED_VERSION
    ):
        response = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        return Result(answers=((caller, response),))
    joining = _Joining(caller, request, subscription, by_topic_id(subscription.owned_partitions, call.image))
    change = ConsumerGroupChange(state, call, group)
    static = _find_static(group, request)
    if static is not None and not static.is_classic:
        member = _updated(static._replace(member_id=member_id), joining)
        others = [each for each in group.members.values() if each.member_id != static.member_id]
        if is_downgrade(call, group, [*others, member]):
            return _downgrade(change, static, member, joining)
    if static is None:
        old = group.members.get(member_id) or Member(member_id)
    elif static.member_id == member_id:
        old = static
    else:
        old = change.replace_static(static, member_id)
    return _join(change, old, joining)


def sync_group(state: GroupState, call: Call, caller: Caller, request: SyncGroupRequest) -> Result:
    group = _group(state, request.group_id)
    member, classic = _find_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    agreed = classic.supported_protocols[0]
    # Before version 5 a client does not repeat what was agreed (KIP-559).
    for said, meant in ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, agreed.name)):
        if said is not None and said != meant:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member.member_id} agreed on {meant!r}, not {said!r}."
            )
    if member.member_epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _expect_join(state, call, group, member)
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"Member {member.member_id} has to join again.")
    state.deadlines.cancel((group.group_id, "consumer.sync", member.member_id))
    ConsumerGroupChange(state, call, group).keep_session(member)
    assigned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
    response = SyncGroupResponse(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=agreed.name,
        assignment=write_assignment(assigned, call.image, agreed.metadata),
    )
    return Result(answers=((caller, response),))


def heartbeat(state: GroupState, call: Call, caller: Caller, request: HeartbeatRequest) -> Result:
    group = _group(state, request.group_id)
    member, _ = _find_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    ConsumerGroupChange(state, call, group).keep_session(member)
    code = ErrorCode.NONE
    if _has_to_join(group, member):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        _expect_join(state, call, group, member)
    return Result(answers=((caller, HeartbeatResponse(error_code=code)),))


def leave_group(state: GroupState, call: Call, caller: Caller, request: LeaveGroupRequest) -> Result:
    """Also an administrator's, which may remove members of either protocol."""
    group = _group(state, request.group_id)
    identities = read_leaving(caller, request)
    leaving: dict[str, Member] = {}
    codes: list[ErrorCode] = []
    for each in identities:
        try:
            member = _find_leaving(group, each)
        except KafkaError as fault:
            codes.append(fault.code)
        else:
            leaving[member.member_id] = member
            codes.append(ErrorCode.NONE)
    result = Result()
    if leaving:
        detail = f"members left: {', '.join(leaving)}"
        result = remove_members(state, call, group, list(leaving.values()), cause=Cause.MEMBER_LEFT, detail=detail)
    return result._replace(answers=[*result.answers, (caller, leave_response(caller, identities, codes))])


def answer_join(state: GroupState, call: Call, group: ConsumerGroup, member_id: str) -> Result:
    """There are targets for a member whose JoinGroup waits, or it has waited for long enough."""
    waiting = group.waiting.pop(member_id)
    change = ConsumerGroupChange(state, call, group)
    member = change.reconcile(group.member(member_id), waiting.owned)
    # It could send no heartbeats meanwhile.
    change.keep_session(member)
    _answer_join(change, member, waiting.caller)
    return change.finish()


class _Joining(NamedTuple):
    caller: Caller
    request: JoinGroupRequest
    subscription: ConsumerProtocolSubscription
    # What the member says it has. A client that gives everything up before it joins says so by none.
    owned: Partitions

    @property
    def rebalance_timeout_ms(self) -> int:
        if self.caller.api_version < _REBALANCE_TIMEOUT_VERSION:
            return self.request.session_timeout_ms
        return self.request.rebalance_timeout_ms


def _group(state: GroupState, group_id: str) -> ConsumerGroup:
    group = state.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    return group


def _check_room(group: ConsumerGroup, call: Call, member_id: str) -> None:
    members_max = call.config.group_consumer_max_size
    if len(group.members) >= members_max and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"Group {group.group_id} has {members_max} members: group.consumer.max.size allows no more.",
        )


def _check_size(call: Call, request: JoinGroupRequest) -> None:
    size_bytes = sum(len(protocol.name) + len(protocol.metadata) for protocol in request.protocols)
    # The subscription is stored once more, in clear.
    if size_bytes > records_max_bytes(call) // 2:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"{size_bytes} bytes of member metadata are too large to be stored."
        )


def _read_request(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """All members of the classic protocol must have one in common, so that the group can become classic again."""
    common: set[str] | None = None
    for member in group.members.values():
        if member.classic is not None:
            names = {protocol.name for protocol in member.classic.supported_protocols}
            common = names if common is None else common & names
    offered = {protocol.name for protocol in request.protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or (common is not None and not offered & common):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Group {group.group_id} is one of consumers, and all its members of the classic protocol must have an"
            " assignor in common.",
        )
    try:
        return read_subscription(request.protocols[0].metadata)
    except ProtocolError as fault:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The member's metadata are not a consumer's subscription: {fault}."
        ) from fault


def _find_static(group: ConsumerGroup, request: JoinGroupRequest) -> Member | None:
    """The member with the instance id of the one that joins, if there is one."""
    if request.group_instance_id is None:
        return None
    static = group.static_member(request.group_instance_id)
    return static if not request.member_id else _check_static(static, request.member_id, request.group_instance_id)


def _check_static(static: Member | None, member_id: str, instance_id: str) -> Member:
    if static is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown: join again.")
    if static.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Member {member_id} with instance id {instance_id} was fenced by {static.member_id}.",
        )
    return static


def _updated(old: Member, joining: _Joining) -> Member:
    caller, request, subscription = joining.caller, joining.request, joining.subscription
    return old._replace(
        instance_id=old.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        subscribed_topic_names=topic_names(subscription),
        subscribed_topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols
            ],
        ),
    )


def _join(change: ConsumerGroupChange, old: Member, joining: _Joining) -> Result:
    group = change.group
    is_new = old.member_id not in group.members
    if not is_new:
        # It may have spoken the other protocol so far.
        change.forget([old])
    member = _updated(old, joining)
    said = f": {joining.request.reason}" if joining.request.reason else ""
    cause, verb = (
        (Cause.MEMBER_JOINED, "joined") if is_new else (Cause.SUBSCRIPTION_CHANGED, "changed its subscription")
    )
    is_changed = change.update(old, member, cause=cause, detail=f"classic member {member.member_id} {verb}{said}")
    change.keep_session(member)
    if is_changed and may_wait(change):
        group.waiting[member.member_id] = Waiting(joining.caller, change.epoch, joining.owned, is_join=True)
        due = group.group_id, "consumer.answer", member.member_id
        change.state.deadlines.set(due, change.call.monotonic_ms + wait_max_ms(change.call, group))
        return change.finish()
    member = change.reconcile(member, joining.owned, drops_unsubscribed=is_changed)
    _answer_join(change, member, joining.caller)
    return change.finish()


def _answer_join(change: ConsumerGroupChange, member: Member, caller: Caller) -> None:
    due = change.group.group_id, "consumer.sync", member.member_id
    change.state.deadlines.set(due, change.call.monotonic_ms + member.rebalance_timeout_ms)
    change.answers.append((caller, _joined(member, member.member_epoch)))


def _joined(member: Member, generation: int) -> JoinGroupResponse:
    """Without a leader: the member takes itself for a follower, and syncs without assigning."""
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.supported_protocols[0].name,
        member_id=member.member_id,
    )


def _downgrade(change: ConsumerGroupChange, static: Member, member: Member, joining: _Joining) -> Result:
    """The last member of the consumer protocol is back as one of the classic protocol, in its place."""
    group = change.group
    members = [member if each.member_id == static.member_id else each for each in group.members.values()]
    change.forget([static])
    classic_change = ClassicGroupChange(change.state, change.call)
    classic_change.answers += change.answers
    has_changed = (static.subscribed_topic_names, static.subscribed_topic_regex) != (member.subscribed_topic_names, "")
    # Everybody goes on with what it has if that is its target. A member that is away is in no epoch.
    is_settled = all(_is_settled(group, each) for each in group.members.values())
    is_stale = has_changed or group.epoch > group.assignment_epoch or not is_settled or bool(group.waiting)
    classic = replace_by_classic_group(classic_change, group, members, is_rebalancing=is_stale)
    if is_stale:
        classic.park_join(classic.members[member.member_id], joining.caller)
        detail = f"static member {static.instance_id}, the last one of the consumer protocol, is a classic one now"
        prepare(classic_change, classic, Why(Cause.PROTOCOL_CHANGED, detail))
    else:
        classic_change.answer(joining.caller, _joined(member, classic.generation))
    return classic_change.result()


def _is_settled(group: ConsumerGroup, member: Member) -> bool:
    if member.member_epoch not in (group.assignment_epoch, LEAVE_STATIC_EPOCH):
        return False
    assigned = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
    return assigned == group.targets.get(member.member_id, {})


def _find_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[Member, ClassicMemberMetadata]:
    """Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = _check_static(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} of group {group.group_id} uses the consumer protocol."
        )
    return member, member.classic


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.member_epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"Member {member.member_id} is in generation {member.member_epoch}, not {generation}: join again.",
        )


def _find_leaving(group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity) -> Member:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    static = group.static_member(instance_id)
    # An administrator names the instance alone.
    member_id = identity.member_id or ("" if static is None else static.member_id)
    return _check_static(static, member_id, instance_id)


def _has_to_join(group: ConsumerGroup, member: Member) -> bool:
    if member.member_epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _is_any_owned(group, member)


def _is_any_owned(group: ConsumerGroup, member: Member) -> bool:
    """Whether others still have partitions that the member waits for."""
    target = group.targets.get(member.member_id, {})
    return any(
        group.is_owned(topic_id, partition)
        for topic_id, partitions in target.items()
        for partition in partitions - member.assigned.get(topic_id, {}).keys()
    )


def _expect_join(state: GroupState, call: Call, group: ConsumerGroup, member: Member) -> None:
    """Within its rebalance timeout, counted from when it was first told."""
    due = group.group_id, "consumer.join", member.member_id
    if state.deadlines.get(due) is None:
        state.deadlines.set(due, call.monotonic_ms + member.rebalance_timeout_ms)

"""ConsumerGroupHeartbeat: members join, stay, confirm and leave by it.

    member_epoch 0    joins, or joins again: with its subscription, and without partitions
    member_epoch > 0  stays: tells what changed since its last one, and which partitions it has
    -1                leaves
    -2                a static member leaves for a while: its partitions stay its own until its session is over

A heartbeat that changes the group is answered once there are targets for it, if that takes no longer than half of the
interval between two heartbeats: the member gets its partitions with that answer, and not with the next one. (librdkafka
gives a heartbeat up, and its connection, after one interval.)

An assignment is told when it changes, and to a member that tells all, as it should after any failure. librdkafka does
not if it has given a heartbeat up. So who comes over another connection than the one by which it was told what it has,
and has not said since that it has that, is told again. In Kafka it would keep what it is to give up until it is thrown
out, or never learn of what it has got.

v1 has regular expressions, and member ids that clients make themselves (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.controller.effective import group_config
from tailrace.controller.patterns import compile_pattern
from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.consumers.change import ConsumerGroupChange, remove_members
from tailrace.coordinator.consumers.group import ConsumerGroup, Waiting
from tailrace.coordinator.consumers.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assigned,
    Member,
    MemberState,
)
from tailrace.coordinator.consumers.targets import records_max_bytes, targets_delay_ms
from tailrace.coordinator.groups import GroupState, GroupType
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid, uuid_text
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

# From this version on clients make their member ids themselves.
_CLIENT_MEMBER_ID_VERSION = 1


def heartbeat(state: GroupState, call: Call, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> Result:
    _check_request(request, caller.api_version, call)
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return _leave(state, call, caller, request)
    change = _find_group(state, call, request)
    group = change.group
    members_max = call.config.group_consumer_max_size
    if len(group.members) >= members_max and request.member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group.group_id} has {members_max} members, as many as it may."
        )
    if request.subscribed_topic_regex and not group.regex_counts[request.subscribed_topic_regex]:
        compile_pattern(request.subscribed_topic_regex)
    old = _find_member(change, request, call)
    # From here on nothing is refused: what is not on the log changes at once.
    is_new = old.member_id not in group.members
    member = _updated(old, request, caller)
    if member.subscribed_topic_regex:
        group.may_describe = caller.may_describe
    cause, detail = _describe_cause(group, old, member, is_new=is_new)
    is_changed = change.update(old, member, cause=cause, detail=detail)
    change.keep_session(member)
    owned = _read_owned(request.topic_partitions)
    superseded = group.waiting.get(member.member_id)
    if superseded is not None and superseded.is_join:
        change.forget([old])  # It spoke the classic protocol until now.
        change.keep_session(member)
    elif superseded is not None:
        del group.waiting[member.member_id]
        change.answers.append((superseded.caller, answer(call, group, member, is_full=True)))
    if (is_changed or request.member_epoch == JOIN_EPOCH) and may_wait(change):
        group.waiting[member.member_id] = Waiting(caller, change.epoch, owned)
        due = group.group_id, "consumer.answer", member.member_id
        state.deadlines.set(due, call.monotonic_ms + wait_max_ms(call, group))
        return change.finish()
    updated = change.reconcile(member, owned, drops_unsubscribed=is_changed)
    is_wanted = _is_full(request) or updated.assigned != old.assigned
    is_full = _is_to_be_told(group, updated, owned, caller, is_wanted=is_wanted)
    change.answers.append((caller, answer(call, group, updated, is_full=is_full)))
    return change.finish()


def answer_waiting(state: GroupState, call: Call, group: ConsumerGroup, member_id: str) -> Result:
    """There are targets for a member that waits, or it has waited for long enough."""
    waiting = group.waiting[member_id]
    if group.assignment_epoch == 0:
        # No member is in epoch 0: it has to wait for the first targets.
        state.deadlines.set(
            (group.group_id, "consumer.answer", member_id), call.monotonic_ms + wait_max_ms(call, group)
        )
        return Result()
    if waiting.is_join:
        # Conversion knows both protocols, and this one only its own.
        from tailrace.coordinator.migration.classic_members import answer_join

        return answer_join(state, call, group, member_id)
    del group.waiting[member_id]
    change = ConsumerGroupChange(state, call, group)
    member = change.reconcile(group.member(member_id), waiting.owned)
    is_full = _is_to_be_told(group, member, waiting.owned, waiting.caller, is_wanted=True)
    change.answers.append((waiting.caller, answer(call, group, member, is_full=is_full)))
    return change.finish()


def answer(call: Call, group: ConsumerGroup, member: Member, *, is_full: bool) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=interval_ms(call, group),
    )
    if is_full:
        response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(member.assigned.items())
            ]
        )
    return response


def _check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, call: Call) -> None:
    epoch = request.member_epoch
    if not request.member_id and (api_version >= _CLIENT_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.instance_id == "":
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("A joining member must tell its RebalanceTimeoutMs.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("A joining member must have no TopicPartitions.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("A joining member must tell SubscribedTopicNames or SubscribedTopicRegex.")
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("Only a member with an InstanceId may leave for a while.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch {epoch} is invalid.")
    names = request.subscribed_topic_names or ()
    if sum(map(_size_bytes, (request.subscribed_topic_regex or "", *names))) > records_max_bytes(call) // 2:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"A subscription to {len(names)} topics is too large to be stored."
        )
    assignors = call.config.group_consumer_assignors
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _find_group(state: GroupState, call: Call, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupChange:
    """A joining member makes the group if need be, or converts it."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup):
        return ConsumerGroupChange(state, call, group)
    if request.member_epoch != JOIN_EPOCH or (group is not None and group.type in (GroupType.SHARE, GroupType.STREAMS)):
        raise _no_group(request.group_id)
    if group is None or group.is_empty:
        records = () if group is None else group.deletion_records()
        return ConsumerGroupChange(state, call, ConsumerGroup(request.group_id), records)
    # Conversion knows both protocols, and this one only its own.
    from tailrace.coordinator.classic.group import ClassicGroup
    from tailrace.coordinator.migration.upgrade import upgrade_group

    assert isinstance(group, ClassicGroup)
    records, converted, answers = upgrade_group(state, call, group)
    change = ConsumerGroupChange(state, call, converted, records)
    change.answers += answers
    return change


def _find_member(change: ConsumerGroupChange, request: ConsumerGroupHeartbeatRequest, call: Call) -> Member:
    """The member as it is known so far; one that joins may be new. Refuses before it changes anything."""
    group, is_joining = change.group, request.member_epoch == JOIN_EPOCH
    member_id = request.member_id or uuid_text(Uuid(call.random.uuid()))
    if request.instance_id is None:
        member = group.members.get(member_id) or Member(member_id) if is_joining else group.member(member_id)
        _check_epoch(member, request)
        return member
    static = group.static_member(request.instance_id)
    if not is_joining:
        static = _check_static(static, request)
        _check_epoch(static, request)
        return static
    if static is None:
        return group.members.get(member_id) or Member(member_id)
    if static.member_id == member_id:
        return static
    if static.member_epoch != LEAVE_STATIC_EPOCH and not static.is_classic:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance id {request.instance_id} is in use by member {static.member_id}: it must leave first.",
        )
    return change.replace_static(static, member_id)


def _check_static(static: Member | None, request: ConsumerGroupHeartbeatRequest) -> Member:
    if static is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if static.member_id != request.member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Member {request.member_id} with instance id {request.instance_id} was fenced by {static.member_id}.",
        )
    return static


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """The answer that told of the last epoch may have been lost: the one before is as good, unless the member has
    partitions that are no longer its own."""
    epoch = request.member_epoch
    if epoch == JOIN_EPOCH:
        return
    is_equal = epoch == member.member_epoch
    is_behind = epoch == member.previous_member_epoch and epoch < member.member_epoch
    is_known = member.state is not MemberState.UNKNOWN
    if not is_known or not (
        is_equal or (is_behind and _is_part(_read_owned(request.topic_partitions), member.assigned))
    ):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is in epoch {member.member_epoch}, not {epoch}: it must give up all its "
            "partitions and join again.",
        )


def _updated(old: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """Null and -1 stand for no change."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return old._replace(
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=old.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        server_assignor=old.server_assignor if request.server_assignor is None else request.server_assignor,
        subscribed_topic_names=old.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        subscribed_topic_regex=old.subscribed_topic_regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _describe_cause(group: ConsumerGroup, old: Member, member: Member, *, is_new: bool) -> tuple[Cause, str]:
    if not is_new:
        return Cause.SUBSCRIPTION_CHANGED, f"member {member.member_id} changed its subscription"
    if old.instance_id is not None:
        return Cause.MEMBER_REJOINED, f"static member {old.instance_id} came back with another subscription"
    return Cause.MEMBER_JOINED, f"member {member.member_id} joined, {len(group.members) + 1} now"


def may_wait(change: ConsumerGroupChange) -> bool:
    group = change.group
    if change.epoch <= group.assignment_epoch and not group.is_resolving:
        return False
    return targets_delay_ms(change.call, group) <= wait_max_ms(change.call, group)


def wait_max_ms(call: Call, group: ConsumerGroup) -> int:
    """For how long an answer may wait for targets."""
    return interval_ms(call, group) // 2


def _is_to_be_told(
    group: ConsumerGroup, member: Member, owned: Partitions | None, caller: Caller, *, is_wanted: bool
) -> bool:
    """Whether the answer to a member that says it has `owned` has its assignment: if that is wanted, or if the last
    answer that had it may be lost."""
    if owned is not None and _is_same(owned, member.assigned):
        group.unconfirmed.pop(member.member_id, None)
        return is_wanted
    if is_wanted or group.unconfirmed.get(member.member_id, caller.peer) != caller.peer:
        group.unconfirmed[member.member_id] = caller.peer
        return True
    return False


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A member that begins, or that is not sure what arrived, tells all: it is told all."""
    tells_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    tells_all = request.rebalance_timeout_ms != -1 and tells_subscription and request.topic_partitions is not None
    return request.member_epoch == JOIN_EPOCH or tells_all


def _leave(state: GroupState, call: Call, caller: Caller, request: ConsumerGroupHeartbeatRequest) -> Result:
    group = state.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise _no_group(request.group_id)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = _check_static(group.static_member(request.instance_id), request)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
    if request.member_epoch == LEAVE_STATIC_EPOCH:
        change = ConsumerGroupChange(state, call, group)
        change.leave_for_a_while(member)
        result = change.finish()
    else:
        detail = f"member {member.member_id} left"
        result = remove_members(state, call, group, [member], cause=Cause.MEMBER_LEFT, detail=detail)
    return result._replace(answers=[*result.answers, (caller, response)])


def _read_owned(
    topic_partitions: Iterable[ConsumerGroupHeartbeatRequest.TopicPartitions] | None,
) -> Partitions | None:
    if topic_partitions is None:
        return None
    owned: dict[Uuid, frozenset[int]] = {}
    for topic in topic_partitions:
        owned[Uuid(topic.topic_id)] = owned.get(Uuid(topic.topic_id), frozenset()).union(topic.partitions)
    return owned


def _is_part(owned: Partitions | None, assigned: Assigned) -> bool:
    return owned is not None and all(
        partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items()
    )


def _is_same(owned: Partitions, assigned: Assigned) -> bool:
    return {topic_id: set(partitions) for topic_id, partitions in owned.items() if partitions} == {
        topic_id: set(partitions) for topic_id, partitions in assigned.items()
    }


def interval_ms(call: Call, group: ConsumerGroup) -> int:
    return group_config(call.config, call.image, group.group_id).consumer_heartbeat_interval_ms


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _no_group(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group, or does not exist.")

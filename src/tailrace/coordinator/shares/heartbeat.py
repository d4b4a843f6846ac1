"""ShareGroupHeartbeat: members join, stay and leave by it.

    member_epoch 0    joins, or joins again, with its subscription
    member_epoch > 0  stays
    -1                leaves

A heartbeat that changes the group is answered once there are targets for it and share coordinators keep the state of
its partitions, if that takes no longer than half of the interval between two heartbeats: the member gets its partitions
with that answer, and not with the next one.
"""

from __future__ import annotations

from tailrace.controller.effective import group_config
from tailrace.coordinator.consumers.targets import records_max_bytes
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.shares.change import ShareGroupChange, remove_members, target_of
from tailrace.coordinator.shares.group import ShareGroup, Waiting
from tailrace.coordinator.shares.member import JOIN_EPOCH, LEAVE_EPOCH, ShareMember
from tailrace.coordinator.shares.records import current_record
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.shares import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def heartbeat(state: GroupState, call: Call, caller: Caller, request: ShareGroupHeartbeatRequest) -> Result:
    _check_request(request, call)
    group = _find_group(state, request)
    if request.member_epoch == LEAVE_EPOCH:
        return _leave(state, call, caller, group, request.member_id)
    old = _find_member(call, group, request)
    # From here on nothing is refused: what is not on the log changes at once.
    change = ShareGroupChange(state, call, group)
    names = request.subscribed_topic_names
    member = old._replace(
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topic_names=old.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        client_id=caller.client_id,
        client_host=caller.client_host,
    )
    is_new = member.member_id not in group.members
    what = f"joined, {len(group.members) + 1} now" if is_new else "changed its subscription"
    cause = Cause.MEMBER_JOINED if is_new else Cause.SUBSCRIPTION_CHANGED
    change.update(old, member, cause=cause, detail=f"member {member.member_id} {what}")
    change.keep_session(member.member_id)
    change.initialize_missing()
    superseded = group.waiting.pop(member.member_id, None)
    if superseded is not None:
        change.answers.append((superseded.caller, _answer(call, group, member, is_full=True)))
    is_changed = change.epoch != group.epoch
    change.assign()
    if is_changed or (request.member_epoch == JOIN_EPOCH and change.initializing):
        # Its targets are replayed before it is answered.
        group.waiting[member.member_id] = Waiting(caller, change.epoch)
        is_ready = group.assignment_epoch >= change.epoch or not _must_wait(state, change)
        delay_ms = 0 if is_ready else _interval_ms(call, group) // 2
        state.deadlines.set((group.group_id, "share.answer", member.member_id), call.monotonic_ms + delay_ms)
        return change.finish()
    return _bring(change, member, caller, is_full=request.member_epoch == JOIN_EPOCH or names is not None)


def answer_waiting(state: GroupState, call: Call, group: ShareGroup, member_id: str) -> Result:
    """There are targets for a member that waits, or it has waited for long enough."""
    waiting = group.waiting.pop(member_id)
    return _bring(ShareGroupChange(state, call, group), group.member(member_id), waiting.caller, is_full=True)


def _must_wait(state: GroupState, change: ShareGroupChange) -> bool:
    has_targets_later = state.deadlines.get((change.group.group_id, "share.targets", "")) is not None
    return bool(change.initializing) or has_targets_later


def _bring(change: ShareGroupChange, member: ShareMember, caller: Caller, *, is_full: bool) -> Result:
    """To its target, and answers it."""
    group, call = change.group, change.call
    topics = call.image.topics
    subscribed = {topics[name].id for name in member.subscribed_topic_names if name in topics}
    target, epoch = target_of(group, member, subscribed), max(group.assignment_epoch, 1)
    if member.member_epoch != epoch or member.assigned != target:
        is_full = is_full or member.assigned != target
        previous = member.member_epoch if member.member_epoch != epoch else member.previous_member_epoch
        member = member._replace(member_epoch=epoch, previous_member_epoch=previous, assigned=target)
        change.members[member.member_id] = member
        change.records.append(current_record(group.group_id, member))
    change.answers.append((caller, _answer(call, group, member, is_full=is_full)))
    return change.finish()


def _answer(call: Call, group: ShareGroup, member: ShareMember, *, is_full: bool) -> ShareGroupHeartbeatResponse:
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=_interval_ms(call, group),
    )
    if is_full:
        response.assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in sorted(member.assigned.items())
            ]
        )
    return response


def _check_request(request: ShareGroupHeartbeatRequest, call: Call) -> None:
    if not request.member_id:
        raise _invalid("MemberId can't be empty.")
    if not request.group_id:
        raise _invalid("GroupId can't be empty.")
    if request.rack_id == "":
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    names = request.subscribed_topic_names or ()
    if sum(len(name.encode()) for name in names) > records_max_bytes(call) // 2:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"A subscription to {len(names)} topics is too large to be stored."
        )


def _find_group(state: GroupState, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    group = find_group(state, request.group_id)
    if group is None and request.member_epoch == JOIN_EPOCH:
        return ShareGroup(request.group_id)
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
    return group


def _find_member(call: Call, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """As it is known so far; one that joins may be new."""
    epoch, member = request.member_epoch, group.members.get(request.member_id)
    if epoch == JOIN_EPOCH:
        if member is None and len(group.members) >= call.config.group_share_max_size:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {call.config.group_share_max_size} members.",
            )
        return member or ShareMember(request.member_id)
    member = group.member(request.member_id)
    # The answer that told of the last epoch may have been lost: the one before is as good.
    if epoch != member.member_epoch and (epoch != member.previous_member_epoch or epoch > member.member_epoch):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is in epoch {member.member_epoch}, not {epoch}: it must join again.",
        )
    return member


def _leave(state: GroupState, call: Call, caller: Caller, group: ShareGroup, member_id: str) -> Result:
    member = group.member(member_id)
    detail = f"member {member_id} left"
    change = remove_members(state, call, group, [member], cause=Cause.MEMBER_LEFT, detail=detail)
    answer = ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)
    change.answers.append((caller, answer))
    return change.finish()


def _interval_ms(call: Call, group: ShareGroup) -> int:
    return group_config(call.config, call.image, group.group_id).share_heartbeat_interval_ms


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)

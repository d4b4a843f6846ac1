"""What is due in consumer groups:

consumer.session    a member was not heard for its session time: it is out
consumer.rebalance  a member has not given up its partitions within its rebalance time: it is out
consumer.join,      a member of the classic protocol did not join or sync in time: it is out
consumer.sync
consumer.targets    the group's next assignment may be computed
consumer.answer     a member that waits for its heartbeat's answer gets it
consumer.regexes    the group's expressions are to be resolved anew
"""

from __future__ import annotations

from tailrace.coordinator.consumers.change import remove_members, session_timeout_ms
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.heartbeat import answer_waiting
from tailrace.coordinator.consumers.member import LEAVE_STATIC_EPOCH, Member, MemberState
from tailrace.coordinator.consumers.subscriptions import want_refresh, want_regexes
from tailrace.coordinator.consumers.targets import want_targets
from tailrace.coordinator.groups import Due, GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Result, Steps

# Members that get a session between two steps: some 0.1 ms.
_STEP_MEMBERS = 100


def on_due(state: GroupState, call: Call, due: Due) -> Result:
    group_id, what, member_id = due
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        return Result()
    if what == "consumer.targets":
        want_targets(state, call, group)
        return Result()
    if what == "consumer.regexes":
        if group.regex_counts:
            want_regexes(state, group, is_new=False)
        return Result()
    member = group.members.get(member_id)
    if member is None:
        return Result()
    if what == "consumer.answer":
        return answer_waiting(state, call, group, member_id) if member_id in group.waiting else Result()
    if what == "consumer.rebalance":
        is_late = member.state is MemberState.UNREVOKED_PARTITIONS and member.member_epoch != LEAVE_STATIC_EPOCH
        return _remove(state, call, group, member, _late_detail(member)) if is_late else Result()
    silent_ms = session_timeout_ms(call, group_id, member)
    if what == "consumer.session":
        detail = f"member {member_id} timed out after {silent_ms / 1000:.1f} s without a heartbeat"
    elif not member.is_classic:
        return Result()  # It has changed its protocol since.
    else:
        detail = f"member {member_id} did not {what.removeprefix('consumer.')} in time"
    return _remove(state, call, group, member, detail)


def on_loaded(state: GroupState, _call: Call) -> Result:
    """Members have a session time to be heard, and what the last coordinator did not get to is done."""
    state.work["consumer.loaded", ""] = lambda begun: _begin_sessions(state, begun)
    return Result()


def _begin_sessions(state: GroupState, call: Call) -> Steps:
    """Who was heard since is left alone."""
    done = 0
    for group in list(state.groups.values()):
        if not isinstance(group, ConsumerGroup) or not group.members:
            continue
        for member in list(group.members.values()):
            _begin_session(state, call, group, member)
            done += 1
            if done % _STEP_MEMBERS == 0:
                yield
        if group.regex_counts:
            want_regexes(state, group, is_new=False)
        elif group.epoch > group.assignment_epoch:
            want_targets(state, call, group)
    want_refresh(state, None)
    return Result()


def _begin_session(state: GroupState, call: Call, group: ConsumerGroup, member: Member) -> None:
    deadlines, group_id = state.deadlines, group.group_id
    session = group_id, "consumer.session", member.member_id
    if deadlines.get(session) is None and member.member_id in group.members:
        deadlines.set(session, call.monotonic_ms + session_timeout_ms(call, group_id, member))
        if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            due_ms = call.monotonic_ms + member.rebalance_timeout_ms
            deadlines.set((group_id, "consumer.rebalance", member.member_id), due_ms)


def _remove(state: GroupState, call: Call, group: ConsumerGroup, member: Member, detail: str) -> Result:
    return remove_members(state, call, group, [member], cause=Cause.MEMBER_TIMED_OUT, detail=detail)


def _late_detail(member: Member) -> str:
    seconds = member.rebalance_timeout_ms / 1000
    return f"member {member.member_id} did not give up its partitions within {seconds:.1f} s"

"""What is due in streams groups:

streams.session    a member was not heard for its session time: it is out
streams.rebalance  a member has not given up its tasks within its rebalance time: it is out
streams.targets    an empty group has waited for its first members for long enough
"""

from __future__ import annotations

from tailrace.coordinator.groups import Due, GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Result, Steps
from tailrace.coordinator.streams.change import StreamsGroupChange
from tailrace.coordinator.streams.group import StreamsGroup
from tailrace.coordinator.streams.member import MemberState, StreamsMember

# Members that get a session between two steps: some 0.1 ms.
_STEP_MEMBERS = 100


def on_due(state: GroupState, call: Call, due: Due) -> Result:
    group_id, what, member_id = due
    group = state.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        return Result()
    if what == "streams.targets":
        return _assign_first(state, call, group)
    member = group.members.get(member_id)
    if member is None:
        return Result()
    change = StreamsGroupChange(state, call, group)
    if what == "streams.session":
        detail = f"member {member_id} timed out after {change.config.streams_session_timeout_ms / 1000:.1f} s"
    elif member.state is MemberState.UNREVOKED_TASKS:
        detail = f"member {member_id} did not give up its tasks within {member.rebalance_timeout_ms / 1000:.1f} s"
    else:
        return Result()
    change.remove(member, cause=Cause.MEMBER_TIMED_OUT, detail=detail)
    return change.finish()


def on_loaded(state: GroupState, _call: Call) -> Result:
    """Members have a session time to be heard."""
    if any(isinstance(group, StreamsGroup) for group in state.groups.values()):
        state.work["streams.loaded", ""] = lambda begun: _begin_sessions(state, begun)
    return Result()


def _assign_first(state: GroupState, call: Call, group: StreamsGroup) -> Result:
    change = StreamsGroupChange(state, call, group)
    if group.members and group.epoch > group.assignment_epoch and group.configured is not None:
        change.assign(group.configured)
    return change.finish()


def _begin_sessions(state: GroupState, call: Call) -> Steps:
    """Who was heard since is left alone."""
    done = 0
    for group in list(state.groups.values()):
        if not isinstance(group, StreamsGroup):
            continue
        for member in list(group.members.values()):
            _begin_session(state, call, group, member)
            done += 1
            if done % _STEP_MEMBERS == 0:
                yield
    return Result()


def _begin_session(state: GroupState, call: Call, group: StreamsGroup, member: StreamsMember) -> None:
    deadlines, group_id, member_id = state.deadlines, group.group_id, member.member_id
    if deadlines.get((group_id, "streams.session", member_id)) is not None or member_id not in group.members:
        return
    change = StreamsGroupChange(state, call, group)
    change.keep_session(member_id)
    # What the last coordinator told may be lost with it.
    group.unconfirmed.setdefault(member_id, "")
    if member.state is MemberState.UNREVOKED_TASKS:
        due = group_id, "streams.rebalance", member_id
        deadlines.set(due, call.monotonic_ms + member.rebalance_timeout_ms)

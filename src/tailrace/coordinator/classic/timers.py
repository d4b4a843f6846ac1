"""What happens to a classic group by itself: sessions end, rebalances run out of time."""

from __future__ import annotations

from tailrace.coordinator.classic.change import ClassicGroupChange, Why
from tailrace.coordinator.classic.group import JOIN, SESSION, SYNC, ClassicGroup, ClassicState
from tailrace.coordinator.classic.rebalance import (
    complete_join_if_all_are_there,
    drop_member,
    on_join_deadline,
    prepare,
    rebalance,
    resume,
)
from tailrace.coordinator.groups import Due, GroupState
from tailrace.coordinator.history import Cause
from tailrace.coordinator.op import Call, Result, Steps

# Members that get a session between two steps: some 0.1 ms.
_STEP_MEMBERS = 100


def on_loaded(state: GroupState, _call: Call) -> Result:
    """Every member has a session time to find the new coordinator."""
    state.work["classic.loaded", ""] = lambda begun: _begin_sessions(state, begun)
    return Result()


def _begin_sessions(state: GroupState, call: Call) -> Steps:
    """Who was heard since is left alone, and so is a group that rebalances by now."""
    change = ClassicGroupChange(state, call)
    done = 0
    for group in list(state.groups.values()):
        if not isinstance(group, ClassicGroup):
            continue
        for member in list(group.members.values()):
            session = group.group_id, SESSION, member.member_id
            if state.deadlines.get(session) is None and group.members.get(member.member_id) is member:
                change.extend_session(group, member)
            done += 1
            if done % _STEP_MEMBERS == 0:
                yield
        if state.groups.get(group.group_id) is not group:
            continue
        is_preparing = group.state is ClassicState.PREPARING_REBALANCE
        if is_preparing and state.deadlines.get((group.group_id, JOIN, "")) is None:
            resume(change, group, Why(Cause.COORDINATOR_CHANGED, "the last coordinator had begun a rebalance"))
        elif group.state is ClassicState.STABLE and len(group.members) > call.config.group_max_size:
            # The limit was lowered. Whoever joins again too late will be refused.
            prepare(
                change,
                group,
                Why(Cause.COORDINATOR_CHANGED, f"{len(group.members)} members are more than group.max.size allows"),
            )
    return change.result()


def on_due(state: GroupState, call: Call, due: Due) -> Result:
    group_id, what, member_id = due
    group = state.groups.get(group_id)
    change = ClassicGroupChange(state, call)
    # A group that was deleted, or speaks the other protocol by now, leaves its deadlines behind.
    if isinstance(group, ClassicGroup):
        if what == SESSION:
            _on_session_end(change, group, member_id)
        elif what == JOIN:
            on_join_deadline(change, group)
        elif what == SYNC:
            _on_sync_deadline(change, group)
    return change.result()


def _on_session_end(change: ClassicGroupChange, group: ClassicGroup, member_id: str) -> None:
    if member_id in group.pending_joins:
        group.remove_member(member_id)
        complete_join_if_all_are_there(change, group)
        return
    member = group.members.get(member_id)
    if member is None or member.is_excused_from_heartbeats:
        return
    if member.is_new:
        detail = f"member {member_id} waited too long for its first generation"
    else:
        detail = f"member {member_id} timed out after {member.session_timeout_ms / 1000:.1f} s without a heartbeat"
    drop_member(change, group, member)
    rebalance(change, group, Why(Cause.MEMBER_TIMED_OUT, detail, member))


def _on_sync_deadline(change: ClassicGroupChange, group: ClassicGroup) -> None:
    """Whoever joined and then never asked for its assignment would hold partitions that nobody reads."""
    if group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE) or not group.pending_syncs:
        return
    silent = [member for member in group.members.values() if member.member_id in group.pending_syncs]
    for member in silent:
        drop_member(change, group, member)
    names = ", ".join(member.member_id for member in silent)
    prepare(change, group, Why(Cause.MEMBER_TIMED_OUT, f"no SyncGroup came in time from {names}"))

"""Brings a member to its target, one step at a time: a pure function of the two.

    STABLE            it has what its epoch's target gave it; a newer target sets it in motion
    UNREVOKED_TASKS   it must give up tasks, and stays in its epoch until it says that it has
    UNRELEASED_TASKS  it is in the target's epoch, and gets the rest as soon as others have given it up

An active task goes to a member only when nobody runs it any more: that is what makes owners unique. And no task goes to
a process that still has it in another role, since the state on its disk can be open only once.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tailrace.coordinator.assignors.sticky import Target, Tasks
from tailrace.coordinator.streams.member import Held, MemberState, StreamsMember
from tailrace.model.errors import ErrorCode, KafkaError


class Goal(NamedTuple):
    """Where a member is to go, and what it may take."""

    epoch: int
    target: Target
    # The process that runs a task, and those that have copies of its state, of both kinds.
    runs_at: Callable[[str, int], str | None]
    kept_at: Callable[[str, int], AbstractSet[str]]
    # What the member says it has; None if it did not say.
    owned: Target | None


def decide_next(member: StreamsMember, goal: Goal) -> StreamsMember:
    """The member as it is to be from now on, or the same one if it has to wait."""
    if member.state is MemberState.STABLE:
        return member if member.member_epoch == goal.epoch else _advance(member, member.member_epoch, goal)
    if member.state is MemberState.UNREVOKED_TASKS:
        if goal.owned is None or member.pending_revocation.overlaps(goal.owned):
            return member
        return _advance(member, member.member_epoch + 1, goal)
    if member.state is MemberState.UNKNOWN and (goal.owned is None or any(goal.owned)):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"Member {member.member_id} is in a state that this broker does not know: it must give up all its tasks and"
            " join again.",
        )
    return _advance(member, member.member_epoch, goal)


def _advance(member: StreamsMember, epoch_if_waiting: int, goal: Goal) -> StreamsMember:
    target, assigned = goal.target, member.assigned
    active, revoked_active = _split_active(assigned, target.active)
    standby, revoked_standby = _split(assigned.standby, target.standby)
    warmup, revoked_warmup = _split(assigned.warmup, target.warmup)
    revoked = Held(revoked_active, revoked_standby, revoked_warmup)
    if not revoked.is_empty and (goal.owned is None or revoked.overlaps(goal.owned)):
        return member.with_epoch(epoch_if_waiting)._replace(
            state=MemberState.UNREVOKED_TASKS,
            assigned=Held(active, standby, warmup),
            pending_revocation=revoked,
        )
    is_complete = True
    for name, partitions in target.active.items():
        for index in sorted(partitions - active.get(name, {}).keys()):
            if goal.runs_at(name, index) is not None or member.process_id in goal.kept_at(name, index):
                is_complete = False
            else:
                active.setdefault(name, {})[index] = goal.epoch
    for wanted, got in ((target.standby, standby), (target.warmup, warmup)):
        for name, partitions in wanted.items():
            kept = got.get(name, frozenset())
            free = frozenset(
                index
                for index in partitions - kept
                if goal.runs_at(name, index) != member.process_id and member.process_id not in goal.kept_at(name, index)
            )
            is_complete = is_complete and kept | free == partitions
            if kept or free:
                got[name] = kept | free
    return member.with_epoch(goal.epoch)._replace(
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_TASKS,
        assigned=Held(active, standby, warmup),
        pending_revocation=Held(),
    )


def _split_active(assigned: Held, wanted: Tasks) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]:
    """What stays, and what is to be given up."""
    kept: dict[str, dict[int, int]] = {}
    revoked: dict[str, dict[int, int]] = {}
    for name, epochs in assigned.active.items():
        for index, epoch in epochs.items():
            (kept if index in wanted.get(name, ()) else revoked).setdefault(name, {})[index] = epoch
    return kept, revoked


def _split(assigned: Tasks, wanted: Tasks) -> tuple[dict[str, frozenset[int]], dict[str, frozenset[int]]]:
    kept = {name: partitions & wanted.get(name, frozenset()) for name, partitions in assigned.items()}
    revoked = {name: partitions - wanted.get(name, frozenset()) for name, partitions in assigned.items()}
    return _without_empty(kept), _without_empty(revoked)


def _without_empty(tasks: Tasks) -> dict[str, frozenset[int]]:
    return {name: partitions for name, partitions in tasks.items() if partitions}

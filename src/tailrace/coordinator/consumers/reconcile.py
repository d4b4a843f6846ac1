"""Brings a member to its target, one step at a time: a pure function of the two.

    STABLE                 it has what its epoch's target gave it; a newer target sets it in motion
    UNREVOKED_PARTITIONS   it must give up partitions, and stays in its epoch until it says that it has
    UNRELEASED_PARTITIONS  it is in the target's epoch, and gets the rest as soon as others have given it up

A partition goes to a member only when nobody has it any more: that is what makes owners unique. What a member is no
longer subscribed to it does not get, even if an older target says so.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tailrace.coordinator.assignors.spec import Partitions
from tailrace.coordinator.consumers.member import Assigned, Member, MemberState
from tailrace.model.ids import Uuid


class Goal(NamedTuple):
    """Where a member is to go, and what it may take."""

    epoch: int
    target: Partitions
    subscribed_topic_ids: AbstractSet[Uuid]
    is_owned: Callable[[Uuid, int], bool]
    # What the member says it has; None if it did not say.
    owned: Partitions | None
    # Its subscription has changed: topics that are no longer part of it go at once, before there is a new target.
    drops_unsubscribed: bool = False


def decide_next(member: Member, goal: Goal) -> Member:
    """The member as it is to be from now on, or the same one if it has to wait."""
    if member.state is MemberState.STABLE:
        if member.member_epoch != goal.epoch:
            return _advance(member, goal)
        return _drop_unsubscribed(member, goal) if goal.drops_unsubscribed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _has_any(goal.owned, member.pending_revocation):
            return _drop_unsubscribed(member, goal) if goal.drops_unsubscribed else member
        return _advance(member, goal)
    # It waits for partitions, or joins anew from a state that this broker does not know, with nothing.
    return _advance(member, goal)


def _advance(member: Member, goal: Goal) -> Member:
    kept: dict[Uuid, dict[int, int]] = {}
    revoked: dict[Uuid, dict[int, int]] = {}
    for topic_id, epochs in member.assigned.items():
        wanted = goal.target.get(topic_id, _NONE) if topic_id in goal.subscribed_topic_ids else _NONE
        for partition, epoch in epochs.items():
            (kept if partition in wanted else revoked).setdefault(topic_id, {})[partition] = epoch
    if revoked and _has_any(goal.owned, revoked):
        return member.with_epoch(member.member_epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, pending_revocation=revoked
        )
    is_complete = True
    for topic_id, partitions in goal.target.items():
        if topic_id not in goal.subscribed_topic_ids:
            continue
        for partition in sorted(partitions - kept.get(topic_id, {}).keys()):
            # What is pending revocation from the member itself it may have back.
            if goal.is_owned(topic_id, partition) and partition not in member.pending_revocation.get(topic_id, ()):
                is_complete = False
            else:
                kept.setdefault(topic_id, {})[partition] = goal.epoch
    return member.with_epoch(goal.epoch)._replace(
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=kept,
        pending_revocation={},
    )


def _drop_unsubscribed(member: Member, goal: Goal) -> Member:
    dropped = {topic: epochs for topic, epochs in member.assigned.items() if topic not in goal.subscribed_topic_ids}
    if not dropped:
        return member
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic not in dropped}
    pending = dict(member.pending_revocation)
    for topic_id, epochs in dropped.items():
        pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
    member = member.with_epoch(member.member_epoch)._replace(assigned=kept)
    if _has_any(goal.owned, pending):
        return member._replace(state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=pending)
    return member


def _has_any(owned: Partitions | None, revoked: Assigned) -> bool:
    """Who does not say what it has may have everything."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoked.get(topic_id, ())) for topic_id, partitions in owned.items())


_NONE: frozenset[int] = frozenset()

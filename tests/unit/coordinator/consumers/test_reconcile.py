"""Every step of a member on its way to its target."""

import pytest

from tailrace.coordinator.consumers.member import Member, MemberState
from tailrace.coordinator.consumers.reconcile import Goal, decide_next
from tests.unit.coordinator.consumers.scene import topic_id

T, U = topic_id("t"), topic_id("u")
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def member(*partitions, state=STABLE, epoch=5, pending=()):
    return Member(
        "a",
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        state=state,
        assigned={T: dict.fromkeys(partitions, epoch)} if partitions else {},
        pending_revocation={T: dict.fromkeys(pending, epoch)} if pending else {},
    )


def goal(*target, epoch=6, taken=(), owned=None, topics=(T,), drops=False):
    return Goal(
        epoch=epoch,
        target={T: frozenset(target)} if target else {},
        subscribed_topic_ids=set(topics),
        is_owned=lambda topic, partition: topic == T and partition in taken,
        owned=None if owned is None else {T: frozenset(owned)},
        drops_unsubscribed=drops,
    )


def shape(updated):
    assigned, pending = (
        {topic: set(partitions) for topic, partitions in part.items()}
        for part in (updated.assigned, updated.pending_revocation)
    )
    return updated.state, updated.member_epoch, assigned.get(T, set()), pending.get(T, set())


@pytest.mark.parametrize(
    ("before", "to", "after"),
    [
        # Stable, and its target is the one it has.
        (member(1, 2), goal(1, 2, epoch=5), (STABLE, 5, {1, 2}, set())),
        # A newer target that gives it nothing new.
        (member(1, 2), goal(1, 2), (STABLE, 6, {1, 2}, set())),
        # New partitions that are free, and that are not.
        (member(1), goal(1, 2), (STABLE, 6, {1, 2}, set())),
        (member(1), goal(1, 2, 3, taken=(2,)), (UNRELEASED, 6, {1, 3}, set())),
        (member(1), goal(1, 2, taken=(2,)), (UNRELEASED, 6, {1}, set())),
        # It has to give something up, and stays in its epoch.
        (member(1, 2), goal(1, 3), (UNREVOKED, 5, {1}, {2})),
        (member(1, 2), goal(1, 3, owned=(1, 2)), (UNREVOKED, 5, {1}, {2})),
        # It has already given it up.
        (member(1, 2), goal(1, 3, owned=(1,)), (STABLE, 6, {1, 3}, set())),
        (member(1, 2), goal(owned=()), (STABLE, 6, set(), set())),
        # It has not confirmed yet.
        (member(1, state=UNREVOKED, pending=(2,)), goal(1), (UNREVOKED, 5, {1}, {2})),
        (member(1, state=UNREVOKED, pending=(2,)), goal(1, owned=(1, 2)), (UNREVOKED, 5, {1}, {2})),
        # It has.
        (member(1, state=UNREVOKED, pending=(2,)), goal(1, owned=(1,)), (STABLE, 6, {1}, set())),
        # Meanwhile the target has changed again: more to give up, or back to what it had.
        (member(1, state=UNREVOKED, pending=(2,)), goal(3, owned=(1,)), (UNREVOKED, 5, set(), {1})),
        (member(1, state=UNREVOKED, pending=(2,)), goal(1, 2, owned=(1,), taken=(2,)), (STABLE, 6, {1, 2}, set())),
        # It waits for what others have.
        (member(1, state=UNRELEASED), goal(1, 2, epoch=5, taken=(2,)), (UNRELEASED, 5, {1}, set())),
        (member(1, state=UNRELEASED), goal(1, 2, epoch=5), (STABLE, 5, {1, 2}, set())),
        (member(1, state=UNRELEASED), goal(2, epoch=7), (UNREVOKED, 5, set(), {1})),
        # It is no longer subscribed to what its target gives it.
        (member(), goal(1, 2, topics=(U,)), (STABLE, 6, set(), set())),
        (member(1), goal(1, 2, topics=(U,)), (UNREVOKED, 5, set(), {1})),
        (member(1), goal(1, epoch=5, topics=(U,), drops=True), (UNREVOKED, 5, set(), {1})),
        (member(1), goal(1, epoch=5, topics=(U,), drops=True, owned=()), (STABLE, 5, set(), set())),
        (member(1), goal(1, epoch=5, topics=(U,)), (STABLE, 5, {1}, set())),
        (
            member(1, state=UNREVOKED, pending=(2,)),
            goal(1, topics=(U,), drops=True, owned=(1, 2)),
            (UNREVOKED, 5, set(), {1, 2}),
        ),
        # A state of a newer version.
        (member(1, state=MemberState.UNKNOWN), goal(1, 2, owned=()), (STABLE, 6, {1, 2}, set())),
    ],
)
def test_the_next_step(before, to, after):
    if to.owned is not None:
        to = to._replace(owned={topic: partitions for topic, partitions in to.owned.items() if partitions})
    assert shape(decide_next(before, to)) == after


def test_a_member_that_has_to_wait_is_the_same():
    before = member(1, state=UNREVOKED, pending=(2,))
    assert decide_next(before, goal(1)) is before


def test_partitions_keep_the_epoch_in_which_they_were_given():
    updated = decide_next(member(1, epoch=5), goal(1, 2, epoch=9))
    assert updated.assigned == {T: {1: 5, 2: 9}}
    assert updated.previous_member_epoch == 5

"""Assignors in small: who gets which partitions; and that big groups are assigned in small steps."""

import pytest

from tailrace.coordinator.assignors import ASSIGNORS
from tailrace.coordinator.assignors.spec import MemberSpec, Partitions, TopicSpec
from tailrace.model.ids import Uuid

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)


def member(
    *topic_ids: Uuid, has: Partitions | None = None, instance_id: str | None = None, rack_id: str | None = None
) -> MemberSpec:
    return MemberSpec(instance_id, rack_id, frozenset(topic_ids or (T,)), has or {})


def assign(
    name: str, members: dict[str, MemberSpec], topics: dict[Uuid, TopicSpec]
) -> tuple[dict[str, Partitions], int]:
    """And the number of steps."""
    steps = ASSIGNORS[name](members, topics)
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as end:
            return end.value, count


def of(*partitions: int) -> Partitions:
    return {T: frozenset(partitions)}


def test_uniform_gives_neighbours_in_the_order_of_member_ids() -> None:
    targets, _ = assign("uniform", {"c": member(), "a": member(), "b": member()}, {T: TopicSpec(7)})
    assert targets == {"a": of(0, 1, 2), "b": of(3, 4), "c": of(5, 6)}


def test_uniform_takes_the_last_partitions_of_who_has_too_many() -> None:
    members = {"a": member(has=of(0, 1, 2, 3, 4, 5)), "b": member()}
    targets, _ = assign("uniform", members, {T: TopicSpec(6)})
    assert targets == {"a": of(0, 1, 2), "b": of(3, 4, 5)}


def test_uniform_leaves_the_odd_one_with_who_has_it() -> None:
    members = {"a": member(has=of(0)), "b": member(has=of(1, 2))}
    targets, _ = assign("uniform", members, {T: TopicSpec(3)})
    assert targets == {"a": of(0), "b": of(1, 2)}
    # The same object: nothing has to be stored.
    assert all(targets[each] is members[each].assignment for each in members)


def test_uniform_evens_out_what_few_can_take() -> None:
    """The only one who reads `u` gets less of `t`."""
    members = {"a": member(T, U), "b": member(T)}
    targets, _ = assign("uniform", members, {T: TopicSpec(4), U: TopicSpec(2)})
    assert targets == {"a": {T: frozenset({0}), U: frozenset({0, 1})}, "b": of(1, 2, 3)}


def test_uniform_moves_what_others_can_take_too() -> None:
    """`a` has three partitions, and is the only one that can take that of `u`. So it gives up one of `t`."""
    members = {"a": member(T, U, has={T: frozenset({0, 1}), U: frozenset({0})}), "b": member(T)}
    targets, _ = assign("uniform", members, {T: TopicSpec(2), U: TopicSpec(1)})
    assert targets == {"a": {T: frozenset({0}), U: frozenset({0})}, "b": of(1)}


def test_uniform_prefers_the_rack_for_what_is_new() -> None:
    racks = [frozenset({"x"}), frozenset({"y"}), frozenset({"x", "y"}), frozenset({"x"})]
    members = {"a": member(rack_id="y"), "b": member(rack_id="x")}
    targets, _ = assign("uniform", members, {T: TopicSpec(4, racks)})
    assert targets == {"a": of(1, 2), "b": of(0, 3)}


def test_uniform_gives_away_what_is_far() -> None:
    racks = [frozenset({"x"}), frozenset({"y"}), frozenset({"x"}), frozenset({"y"})]
    members = {"a": member(rack_id="y", has=of(0, 1, 2, 3)), "b": member(rack_id="x")}
    targets, _ = assign("uniform", members, {T: TopicSpec(4, racks)})
    assert targets == {"a": of(1, 3), "b": of(0, 2)}


def test_range_puts_static_members_first() -> None:
    members = {"a": member(), "b": member(instance_id="z"), "c": member(instance_id="y")}
    targets, _ = assign("range", members, {T: TopicSpec(4)})
    assert targets == {"c": of(0, 1), "b": of(2), "a": of(3)}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_more_members_than_partitions(name: str) -> None:
    targets, _ = assign(name, {"a": member(), "b": member(), "c": member()}, {T: TopicSpec(2)})
    assert targets == {"a": of(0), "b": of(1), "c": {}}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_nobody_and_nothing(name: str) -> None:
    assert assign(name, {}, {T: TopicSpec(2)})[0] == {}
    assert assign(name, {"a": member(), "b": MemberSpec(None, None, frozenset(), {})}, {})[0] == {"a": {}, "b": {}}


@pytest.mark.parametrize(
    ("name", "steps_min"),
    # Uniform handles 10,000 partitions three times, range 50 topics of each of 500 members.
    [("uniform", 100), ("range", 100)],
)
def test_a_big_group_is_assigned_in_small_steps(name: str, steps_min: int) -> None:
    topics = {Uuid(number.to_bytes(16, "big")): TopicSpec(200) for number in range(50)}
    _, steps = assign(name, {f"m{number}": member(*topics) for number in range(500)}, topics)
    assert steps >= steps_min

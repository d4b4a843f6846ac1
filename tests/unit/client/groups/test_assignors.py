"""What the leader of a classic group decides: everything to someone, evenly, and moving little."""

from random import Random

import pytest

from tailrace.client.groups.assignors import Subscriber, assign_ranges, assign_sticky
from tailrace.model.ids import TopicPartition


def subscriber(*topics: str, owned: str = "", generation: int = -1, instance_id: str | None = None) -> Subscriber:
    """`owned` is `t0 t1`: topic t, partitions 0 and 1."""
    partitions = frozenset(TopicPartition(word[0], int(word[1:])) for word in owned.split())
    return Subscriber(frozenset(topics), partitions, generation, instance_id)


def shown(assignment: dict[str, list[TopicPartition]]) -> dict[str, str]:
    return {
        member: " ".join(f"{topic}{index}" for topic, index in partitions) for member, partitions in assignment.items()
    }


def test_ranges_are_neighbours_and_the_first_get_more():
    members = {"m2": subscriber("t", "u"), "m1": subscriber("t"), "m3": subscriber("u")}
    assert shown(assign_ranges(members, {"t": 5, "u": 2, "nobody": 3})) == {
        "m1": "t0 t1 t2",
        "m2": "t3 t4 u0",
        "m3": "u1",
    }


def test_static_members_come_first_by_their_names():
    members = {"m1": subscriber("t"), "m9": subscriber("t", instance_id="b"), "m8": subscriber("t", instance_id="c")}
    assert shown(assign_ranges(members, {"t": 3})) == {"m9": "t0", "m8": "t1", "m1": "t2"}


def test_what_is_owned_stays_where_it_is():
    members = {"m1": subscriber("t", owned="t1 t3", generation=4), "m2": subscriber("t", owned="t0 t2", generation=4)}
    assert shown(assign_sticky(members, {"t": 5})) == {"m1": "t1 t3 t4", "m2": "t0 t2"}


def test_what_moves_is_first_taken_away_alone():
    members = {"m1": subscriber("t", owned="t0 t1 t2 t3", generation=1), "m2": subscriber("t")}
    first = assign_sticky(members, {"t": 4})
    assert shown(first) == {"m1": "t2 t3", "m2": ""}
    members["m1"] = subscriber("t", owned="t2 t3", generation=2)
    assert shown(assign_sticky(members, {"t": 4})) == {"m1": "t2 t3", "m2": "t0 t1"}


def test_who_was_away_does_not_get_back_what_another_has_since():
    members = {"m1": subscriber("t", owned="t0", generation=1), "m2": subscriber("t", owned="t0", generation=2)}
    assert shown(assign_sticky(members, {"t": 1})) == {"m1": "", "m2": "t0"}


def test_two_equal_claims_are_both_given_up_for_a_new_choice():
    members = {"m1": subscriber("t", owned="t0 t1", generation=2), "m2": subscriber("t", owned="t0", generation=2)}
    assert shown(assign_sticky(members, {"t": 2})) == {"m1": "t1", "m2": "t0"}


@pytest.mark.parametrize("seed", range(20))
def test_sticky_gives_everything_to_one_subscriber_evenly_and_settles(seed: int):
    random = Random(seed)
    counts = {topic: random.randrange(1, 8) for topic in "tuv"}
    members = {
        f"m{index}": subscriber(*random.sample(sorted(counts), random.randrange(1, 4)))
        for index in range(random.randrange(1, 6))
    }
    for generation in range(3):
        assignment = assign_sticky(members, counts)
        members = {
            member_id: found._replace(owned=frozenset(assignment[member_id]), generation=generation)
            for member_id, found in members.items()
        }
    given = [partition for partitions in assignment.values() for partition in partitions]
    wanted = {topic for member in members.values() for topic in member.topics}
    assert sorted(given) == sorted(TopicPartition(topic, i) for topic in wanted for i in range(counts[topic]))
    for member_id, partitions in assignment.items():
        for partition in partitions:
            rivals = [rival for rival in members if partition.topic in members[rival].topics]
            assert member_id in rivals
            assert all(len(partitions) - len(assignment[rival]) <= 1 for rival in rivals)

"""Assignors: every partition to exactly one subscriber, balanced, sticky, near, and the same whoever computes it."""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.coordinator.assignors import ASSIGNORS
from tailrace.coordinator.assignors.spec import MemberSpec, Partitions, TopicSpec
from tailrace.model.ids import Uuid

RACKS = ("a", "b", "c")
TOPIC_IDS = [Uuid(number.to_bytes(16, "big")) for number in range(1, 6)]


class Group(NamedTuple):
    members: Mapping[str, MemberSpec]
    topics: Mapping[Uuid, TopicSpec]


def assign(name: str, group: Group) -> dict[str, Partitions]:
    steps = ASSIGNORS[name](group.members, group.topics)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            targets: dict[str, Partitions] = end.value
            return targets


def settled(name: str, group: Group) -> Group:
    """The group once it has what it was assigned."""
    targets = assign(name, group)
    members = {each: member._replace(assignment=targets[each]) for each, member in group.members.items()}
    return Group(members, group.topics)


def groups(*, same_subscription: bool = False, with_racks: bool = False) -> st.SearchStrategy[Group]:
    """Made from a seed: drawing every part would take a hundred times as long."""
    return st.integers(0, 2**32).map(lambda seed: make_group(Random(seed), same_subscription, with_racks))


def make_group(random: Random, same_subscription: bool, with_racks: bool) -> Group:
    """Members may have subscribed to what does not exist, and have what is gone or what others have too."""
    topics = {}
    for topic_id in random.sample(TOPIC_IDS[:4], random.randint(1, 4)):
        racks = [frozenset(random.sample(RACKS, random.randint(1, 2))) for _ in range(random.randint(1, 12))]
        topics[topic_id] = TopicSpec(len(racks), racks if with_racks else ())
    common = frozenset(random.sample(TOPIC_IDS, random.randint(1, 5)))
    members = {}
    for number in range(random.randint(1, 9)):
        assigned = random.sample(TOPIC_IDS, random.randint(0, 3))
        members[f"m{number}"] = MemberSpec(
            random.choice([None, f"i{20 - number}"]),
            random.choice(RACKS) if with_racks else None,
            common if same_subscription else frozenset(random.sample(TOPIC_IDS, random.randint(1, 5))),
            {each: frozenset(random.sample(range(15), random.randint(1, 9))) for each in assigned},
        )
    return Group(members, topics)


def pairs(partitions: Partitions) -> set[tuple[Uuid, int]]:
    return {(topic_id, partition) for topic_id, indexes in partitions.items() for partition in indexes}


def moved(group: Group, targets: Mapping[str, Partitions]) -> int:
    return sum(len(pairs(targets[each]) - pairs(member.assignment)) for each, member in group.members.items())


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups())
def test_each_partition_goes_to_exactly_one_subscriber(name: str, group: Group) -> None:
    targets = assign(name, group)
    assert targets.keys() == group.members.keys()
    given_out = [pair for target in targets.values() for pair in pairs(target)]
    subscribed = frozenset[Uuid]().union(*(member.subscribed_topic_ids for member in group.members.values()))
    assert sorted(given_out) == [
        (topic_id, partition)
        for topic_id in sorted(subscribed & group.topics.keys())
        for partition in range(group.topics[topic_id].partition_count)
    ]
    for member_id, target in targets.items():
        assert target.keys() <= group.members[member_id].subscribed_topic_ids
        assert all(target.values()), "a topic without partitions"


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups(with_racks=True), data=st.data())
def test_the_order_of_members_and_topics_does_not_matter(name: str, group: Group, data: st.DataObject) -> None:
    shuffled = Group(
        dict(data.draw(st.permutations(list(group.members.items())))),
        dict(data.draw(st.permutations(list(group.topics.items())))),
    )
    first, second = assign(name, group), assign(name, shuffled)
    assert first == second
    # Records are written in the order of the maps.
    assert [list(first[each]) for each in sorted(first)] == [list(second[each]) for each in sorted(second)]


@given(group=groups())
def test_uniform_leaves_nobody_with_two_more_than_someone_who_could_take_one(group: Group) -> None:
    targets = assign("uniform", group)
    loads = {member_id: len(pairs(target)) for member_id, target in targets.items()}
    for giver, target in targets.items():
        for receiver, member in group.members.items():
            if target.keys() & member.subscribed_topic_ids:
                assert loads[giver] <= loads[receiver] + 1


@given(group=groups(same_subscription=True))
def test_uniform_moves_no_more_than_balance_takes(group: Group) -> None:
    taken: set[tuple[Uuid, int]] = set()
    members = {}
    for member_id, member in group.members.items():
        mine = {
            (topic_id, partition)
            for topic_id, partition in pairs(member.assignment) - taken
            if topic_id in member.subscribed_topic_ids & group.topics.keys()
            and partition < group.topics[topic_id].partition_count
        }
        taken |= mine
        assignment = {each: frozenset(index for topic_id, index in mine if topic_id == each) for each in group.topics}
        members[member_id] = member._replace(assignment={each: some for each, some in assignment.items() if some})
    group = Group(members, group.topics)
    targets = assign("uniform", group)
    total = sum(len(pairs(target)) for target in targets.values())
    share, extra = divmod(total, len(members))
    # Whoever has most keeps one more than the share, as long as there are such places.
    counts = sorted((len(pairs(member.assignment)) for member in members.values()), reverse=True)
    keepable = sum(min(count, share + (place < extra)) for place, count in enumerate(counts))
    assert moved(group, targets) == total - keepable


@given(group=groups(with_racks=True))
def test_uniform_changes_nothing_without_a_cause(group: Group) -> None:
    group = settled("uniform", group)
    assert moved(group, assign("uniform", group)) == 0


@given(group=groups(same_subscription=True), data=st.data())
def test_a_member_that_leaves_moves_what_it_had_and_nothing_else(group: Group, data: st.DataObject) -> None:
    group = settled("uniform", group)
    leaver = data.draw(st.sampled_from(sorted(group.members)))
    rest = Group({each: member for each, member in group.members.items() if each != leaver}, group.topics)
    if rest.members:
        assert moved(rest, assign("uniform", rest)) == len(pairs(group.members[leaver].assignment))


@given(group=groups(same_subscription=True), rack=st.sampled_from([None, "a"]))
def test_a_member_that_joins_moves_its_share_and_nothing_else(group: Group, rack: str | None) -> None:
    group = settled("uniform", group)
    subscription = next(iter(group.members.values())).subscribed_topic_ids
    larger = Group({**group.members, "new": MemberSpec(None, rack, subscription, {})}, group.topics)
    targets = assign("uniform", larger)
    total = sum(len(pairs(target)) for target in targets.values())
    assert moved(larger, targets) == len(pairs(targets["new"])) == total // len(larger.members)


@settings(deadline=None)
@given(group=groups(same_subscription=True, with_racks=True))
def test_as_many_partitions_as_possible_are_near(group: Group) -> None:
    fresh = Group({each: member._replace(assignment={}) for each, member in group.members.items()}, group.topics)
    targets = assign("uniform", fresh)
    near = 0
    # Who has which place: a partition may take any place of a member of one of its racks.
    places: list[str] = []
    for member_id, target in targets.items():
        rack = fresh.members[member_id].rack_id
        assert rack is not None
        places += [rack] * len(pairs(target))
        near += sum(rack in group.topics[topic_id].racks[partition] for topic_id, partition in pairs(target))
    partitions = [
        group.topics[topic_id].racks[partition] for target in targets.values() for topic_id, partition in pairs(target)
    ]
    assert near == maximum_matching(partitions, places)


def maximum_matching(partitions: list[frozenset[str]], places: list[str]) -> int:
    owner: dict[int, int] = {}

    def find_place(partition: int, tried: set[int]) -> bool:
        for place, rack in enumerate(places):
            if rack in partitions[partition] and place not in tried:
                tried.add(place)
                if place not in owner or find_place(owner[place], tried):
                    owner[place] = partition
                    return True
        return False

    return sum(find_place(partition, set()) for partition in range(len(partitions)))


@given(group=groups(same_subscription=True), count=st.integers(1, 12))
def test_range_gives_the_same_partitions_of_topics_of_one_size(group: Group, count: int) -> None:
    same_size = Group(group.members, dict.fromkeys(group.topics, TopicSpec(count)))
    for target in assign("range", same_size).values():
        assert len(set(target.values())) <= 1
        for partitions in target.values():
            assert sorted(partitions) == list(range(min(partitions), max(partitions) + 1)), "not neighbours"


@given(group=groups(), data=st.data())
def test_a_static_member_keeps_its_range_under_a_new_member_id(group: Group, data: st.DataObject) -> None:
    names = data.draw(st.permutations(range(len(group.members))))
    renamed = {
        member_id: f"n{names[place]}" if member.instance_id else member_id
        for place, (member_id, member) in enumerate(group.members.items())
    }
    other = Group({renamed[each]: member for each, member in group.members.items()}, group.topics)
    before, after = assign("range", group), assign("range", other)
    for member_id in group.members:
        assert before[member_id] == after[renamed[member_id]]

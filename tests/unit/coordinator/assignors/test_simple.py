"""Who shares which partitions."""

from random import Random

from tailrace.coordinator.assignors.simple import assign
from tailrace.model.ids import Uuid

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)


def test_every_partition_has_a_member_and_every_member_a_partition() -> None:
    for seed in range(200):
        random = Random(seed)
        members = {f"m{number:02}": {T, U} for number in range(random.randint(1, 30))}
        partitions = {T: set(range(random.randint(1, 9))), U: set(range(random.randint(0, 9)))}
        targets = assign(members, partitions, {})
        had = [(topic, each) for target in targets.values() for topic, chosen in target.items() for each in chosen]
        places = {(topic, each) for topic, chosen in partitions.items() for each in chosen}
        assert set(had) == places
        sizes = [sum(map(len, target.values())) for target in targets.values()]
        assert min(sizes) >= (1 if len(places) >= 1 else 0)
        assert max(sizes) - min(sizes) <= 1
        shared = [had.count(place) for place in places]
        assert max(shared) - min(shared) <= 1


def test_what_a_member_has_it_keeps() -> None:
    before = assign({"a": {T}, "b": {T}}, {T: set(range(6))}, {})
    after = assign({"a": {T}, "b": {T}, "c": {T}}, {T: set(range(6))}, before)
    for member in ("a", "b"):
        assert after[member][T] < before[member][T]
    assert len(after["c"][T]) == 2
    assert assign({"a": {T}, "b": {T}, "c": {T}}, {T: set(range(6))}, after) == after


def test_a_topic_goes_to_its_subscribers_alone() -> None:
    targets = assign({"a": {T}, "b": {U}, "c": {T, U}}, {T: {0}, U: {0}}, {})
    assert targets == {"a": {T: {0}}, "b": {U: {0}}, "c": {T: {0}, U: {0}}}

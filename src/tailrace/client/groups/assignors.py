"""Who gets which partitions of a classic group, as its leader decides: range, and cooperative-sticky (KIP-429).

Pure. An assignment names every member, and each partition of a topic that anybody subscribes to goes to one member who
does. The cooperative one gives a partition to a new owner only once the old one has given it up: the group assigns
again right after that, and nobody stops reading what stays his.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tailrace.client.groups.membership import Partitions
from tailrace.model.ids import PartitionIndex, TopicPartition

COOPERATIVE_STICKY = "cooperative-sticky"
RANGE = "range"


class Subscriber(NamedTuple):
    """What the leader knows of a member."""

    topics: frozenset[str]
    owned: Partitions = frozenset()
    # In which it got what it owns; who was away for longer does not count against who is there.
    generation: int = -1
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Mapping[str, int]], dict[str, list[TopicPartition]]]


def assign_ranges(
    members: Mapping[str, Subscriber], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Each member gets neighbouring partitions of each topic, in the members' order: equal topics are cut alike."""
    assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for topic, count in sorted(partition_counts.items()):
        subscribers = [member_id for member_id in _in_order(members) if topic in members[member_id].topics]
        start = 0
        for position, member_id in enumerate(subscribers):
            size = count // len(subscribers) + (position < count % len(subscribers))
            assignment[member_id] += [TopicPartition(topic, PartitionIndex(i)) for i in range(start, start + size)]
            start += size
    return assignment


def assign_sticky(
    members: Mapping[str, Subscriber], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """As even as subscriptions allow, moving as little as that takes."""
    owners = _owners(members)
    target = _balance(members, partition_counts, owners)
    assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for partition, member_id in sorted(target.items()):
        if owners.get(partition, member_id) == member_id:
            assignment[member_id].append(partition)
    return assignment


ASSIGNORS: dict[str, Assignor] = {COOPERATIVE_STICKY: assign_sticky, RANGE: assign_ranges}


def _in_order(members: Mapping[str, Subscriber]) -> list[str]:
    """Static members by their names, which last; then the others."""
    return sorted(
        members,
        key=lambda member_id: (members[member_id].instance_id is None, members[member_id].instance_id or member_id),
    )


def _owners(members: Mapping[str, Subscriber]) -> dict[TopicPartition, str]:
    """If two claim a partition, the one with the later generation has it; with equal ones neither is believed."""
    owners: dict[TopicPartition, str] = {}
    disputed: set[TopicPartition] = set()
    for member_id in sorted(members, key=lambda member_id: (-members[member_id].generation, member_id)):
        for partition in members[member_id].owned:
            rival = owners.setdefault(partition, member_id)
            if rival != member_id and members[rival].generation == members[member_id].generation:
                disputed.add(partition)
    return {partition: member_id for partition, member_id in owners.items() if partition not in disputed}


def _balance(
    members: Mapping[str, Subscriber], partition_counts: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> dict[TopicPartition, str]:
    order = _in_order(members)
    subscribers = {
        topic: [member_id for member_id in order if topic in members[member_id].topics] for topic in partition_counts
    }
    partitions = [
        TopicPartition(topic, PartitionIndex(index))
        for topic, count in sorted(partition_counts.items())
        if subscribers[topic]
        for index in range(count)
    ]
    load = dict.fromkeys(order, 0)
    target: dict[TopicPartition, str] = {}
    for partition in partitions:
        owner = owners.get(partition)
        if owner is not None and partition.topic in members[owner].topics:
            target[partition] = owner
            load[owner] += 1
    for partition in partitions:
        if partition not in target:
            member_id = min(subscribers[partition.topic], key=load.__getitem__)
            target[partition] = member_id
            load[member_id] += 1
    has_moved = True
    while has_moved:  # Each move makes the loads more even, so this ends.
        has_moved = False
        for partition in partitions:
            owner = target[partition]
            member_id = min(subscribers[partition.topic], key=load.__getitem__)
            if load[owner] - load[member_id] >= 2:
                target[partition] = member_id
                load[owner] -= 1
                load[member_id] += 1
                has_moved = True
    return target

"""Kafka's `simple` assignor of share groups: a partition may be with several members.

Every partition has a member, every member has a partition if its topics have any, and both are spread evenly: with more
members than partitions each partition is shared by as many. What a member has it keeps, as far as that allows.
Topics with the same subscribers are spread together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from tailrace.coordinator.assignors.spec import Partitions
from tailrace.model.ids import Uuid

Place = tuple[Uuid, int]


def assign(
    subscriptions: Mapping[str, AbstractSet[Uuid]],
    partitions: Mapping[Uuid, AbstractSet[int]],
    before: Mapping[str, Partitions],
) -> dict[str, Partitions]:
    """`subscriptions` are those of the members; `before`, what they have had until now."""
    subscribers: dict[tuple[str, ...], list[Place]] = {}
    for topic_id in sorted(partitions):
        members = tuple(sorted(member for member, topics in subscriptions.items() if topic_id in topics))
        if members:
            subscribers.setdefault(members, []).extend((topic_id, each) for each in sorted(partitions[topic_id]))
    targets: dict[str, dict[Uuid, set[int]]] = {member: {} for member in subscriptions}
    for members, places in subscribers.items():
        for member, chosen in _spread(members, places, before).items():
            for topic_id, partition in chosen:
                targets[member].setdefault(topic_id, set()).add(partition)
    return {
        member: {topic_id: frozenset(chosen) for topic_id, chosen in target.items()}
        for member, target in targets.items()
    }


def _spread(members: Sequence[str], places: Sequence[Place], before: Mapping[str, Partitions]) -> dict[str, set[Place]]:
    if not places:
        return {}
    sharers = -(-len(members) // len(places))
    each, extra = divmod(len(places) * sharers, len(members))
    room = dict.fromkeys(places, sharers)
    chosen: dict[str, set[Place]] = {}
    for member in members:
        kept: set[Place] = set()
        quota = each + (extra > 0)
        for topic_id, partitions in before.get(member, {}).items():
            for partition in sorted(partitions):
                if len(kept) < quota and room.get((topic_id, partition), 0) > 0:
                    kept.add((topic_id, partition))
                    room[topic_id, partition] -= 1
        if len(kept) > each:
            extra -= 1
        chosen[member] = kept
    left = deque(place for place in places for _ in range(room[place]))
    for member in members:
        kept = chosen[member]
        if len(kept) > each:
            continue
        quota = each
        if extra > 0:
            quota, extra = each + 1, extra - 1
        for _ in range(len(left)):
            if len(kept) >= quota:
                break
            place = left.popleft()
            if place in kept:
                left.append(place)
            else:
                kept.add(place)
    return chosen

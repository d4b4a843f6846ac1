"""The range assignor: each member gets neighbouring partitions, the same ones of every topic where that is possible.

Of each topic its members get equally many, and those who come first one more if it does not come out even. Members have
the same order for every topic, static ones first by their instance ids, then the others by their member ids: members
with the same subscription get the same partitions of topics of the same size (co-partitioning), and a static member
that comes back under a new member id gets what it had. Racks do not matter, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.coordinator.assignors.spec import Assignment, MemberSpec, Partitions, TopicSpec
from tailrace.model.ids import Uuid

# Ranges between two steps: some 0.2 ms.
_STEP_RANGES = 200


def assign_ranges(members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> Assignment:
    order = sorted(members, key=lambda member_id: _place(member_id, members[member_id]))
    # Most members subscribe to what others subscribe to: each set of topics is sorted once.
    topics_in_order: dict[frozenset[Uuid], list[Uuid]] = {}
    subscribers: dict[Uuid, int] = {}
    count = 0
    for member_id in order:
        subscription = members[member_id].subscribed_topic_ids
        if subscription not in topics_in_order:
            topics_in_order[subscription] = sorted(subscription & topics.keys())
        for topic_id in topics_in_order[subscription]:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
            count += 1
            if count % _STEP_RANGES == 0:
                yield
    # How many members have had their share of each topic.
    served = dict.fromkeys(subscribers, 0)
    targets: dict[str, Partitions] = {}
    for member_id in order:
        target: dict[Uuid, frozenset[int]] = {}
        for topic_id in topics_in_order[members[member_id].subscribed_topic_ids]:
            share, extra = divmod(topics[topic_id].partition_count, subscribers[topic_id])
            place = served[topic_id]
            served[topic_id] = place + 1
            start = place * share + min(place, extra)
            end = start + share + (place < extra)
            if start < end:
                target[topic_id] = frozenset(range(start, end))
            count += 1
            if count % _STEP_RANGES == 0:
                yield
        targets[member_id] = target
    return targets


def _place(member_id: str, member: MemberSpec) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member_id
    return False, member.instance_id

"""The uniform assignor: members get equally many partitions as far as subscriptions allow, and keep what they have.

Topics with the same subscribers make one pool, within which a partition can go to anyone; a group whose members all
subscribe to the same has a single one. What matters, in this order:

    balance      no member could give a partition to a subscriber of its topic who has at least two fewer
    stickiness   a member keeps what it has, unless balance takes it
    racks        of the partitions that are new to their members, as many as possible have a replica in the member's
                 rack. (Kafka 4 pays no attention to racks; its members fetch from the nearest replica all the same.)

First it is settled how many partitions of each pool each member has, then which. All orders are by id.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from tailrace.coordinator.assignors.racks import match_racks
from tailrace.coordinator.assignors.spec import Assignment, MemberSpec, Partitions, TopicSpec
from tailrace.model.ids import Uuid

# Between two steps: each operation takes about a microsecond.
_STEP_OPERATIONS = 200

_Steps = Generator[None, None, None]


def assign_uniformly(members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]) -> Assignment:
    pools = yield from _make_pools(members, topics)
    loads = dict.fromkeys(sorted(members), 0)
    for pool in pools:
        yield from pool.keep(members, loads)
    # Partitions with fewest takers first: the others even it out.
    pools.sort(key=lambda pool: len(pool.subscribers))
    for pool in pools:
        yield from pool.give_free(loads)
    is_moving = True
    while is_moving:
        is_moving = False
        for pool in pools:
            is_moving |= yield from pool.level(loads)
    targets: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in loads}
    for pool in pools:
        yield from pool.settle(members, targets)
    return (yield from _freeze(members, targets))


class _Pool:
    """Topics with the same subscribers."""

    def __init__(self, subscribers: list[str], topics: dict[Uuid, TopicSpec]) -> None:
        self.subscribers = subscribers
        self._topics = topics
        # What each member had and still may have, and how many of it it has to give up.
        self._kept: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in subscribers}
        self._kept_counts = dict.fromkeys(subscribers, 0)
        self._released = dict.fromkeys(subscribers, 0)
        # How many each gets that it did not have. A member that gets any gives none up.
        self._new = dict.fromkeys(subscribers, 0)
        self._is_taken = {topic_id: bytearray(topic.partition_count) for topic_id, topic in topics.items()}

    def keep(self, members: Mapping[str, MemberSpec], loads: dict[str, int]) -> _Steps:
        for member_id in self.subscribers:
            operations = 0
            for topic_id, partitions in sorted(members[member_id].assignment.items()):
                is_taken = self._is_taken.get(topic_id)
                if is_taken is None:
                    continue
                # Should two members have one partition, the first one keeps it.
                kept = {each for each in partitions if each < len(is_taken) and not is_taken[each]}
                for partition in kept:
                    is_taken[partition] = 1
                self._kept[member_id][topic_id] = kept
                self._kept_counts[member_id] += len(kept)
                operations += len(partitions)
                if operations >= _STEP_OPERATIONS:
                    operations = 0
                    yield
            loads[member_id] += self._kept_counts[member_id]
            yield

    def give_free(self, loads: dict[str, int]) -> _Steps:
        """Each partition that nobody has goes to who has fewest."""
        free = sum(is_taken.count(0) for is_taken in self._is_taken.values())
        heap = [(loads[member_id], member_id) for member_id in self.subscribers]
        heapify(heap)
        for count in range(free):
            load, member_id = heap[0]
            heapreplace(heap, (load + 1, member_id))
            loads[member_id] = load + 1
            self._new[member_id] += 1
            if count % _STEP_OPERATIONS == 0:
                yield

    def level(self, loads: dict[str, int]) -> Generator[None, None, bool]:
        """Takes from who has most and gives to who has fewest, while that evens it out. True if anything moved."""
        low = [(loads[member_id], member_id) for member_id in self.subscribers]
        high = [self._high_entry(member_id, loads) for member_id in self.subscribers if self._has_any(member_id)]
        heapify(low)
        heapify(high)
        moves = 0
        while high:
            load, receiver = low[0]
            if load != loads[receiver]:
                heappop(low)
                continue
            giver = high[0][2]
            if not self._has_any(giver) or high[0] != self._high_entry(giver, loads):
                heappop(high)
                continue
            if loads[giver] <= load + 1:
                break
            self._move(giver, receiver, loads)
            for member_id in (giver, receiver):
                heappush(low, (loads[member_id], member_id))
                heappush(high, self._high_entry(member_id, loads))
            moves += 1
            if moves % (_STEP_OPERATIONS // 10) == 0:
                yield
        yield
        return moves > 0

    def settle(self, members: Mapping[str, MemberSpec], targets: dict[str, dict[Uuid, set[int]]]) -> _Steps:
        """Which partitions: as many as were settled."""
        for member_id in self.subscribers:
            if self._released[member_id]:
                self._release(member_id, members[member_id].rack_id)
                yield
        free = []
        for topic_id, is_taken in self._is_taken.items():
            free += [(topic_id, partition) for partition, taken in enumerate(is_taken) if not taken]
            yield
        wanted = {member_id: count for member_id, count in self._new.items() if count}
        racks = {member_id: members[member_id].rack_id for member_id in wanted}
        given = yield from match_racks(free, wanted, racks, self._topics)
        for member_id in self.subscribers:
            target = targets[member_id]
            for topic_id, partitions in self._kept[member_id].items():
                if partitions:
                    target[topic_id] = partitions
            for topic_id, partition in given.get(member_id, ()):
                target.setdefault(topic_id, set()).add(partition)
            yield

    def _has_any(self, member_id: str) -> bool:
        return self._kept_counts[member_id] - self._released[member_id] + self._new[member_id] > 0

    def _high_entry(self, member_id: str, loads: dict[str, int]) -> tuple[int, bool, str]:
        # Among members with equally many, one that has something new gives first: nothing has to be moved for that.
        return -loads[member_id], self._new[member_id] == 0, member_id

    def _move(self, giver: str, receiver: str, loads: dict[str, int]) -> None:
        if self._new[giver]:
            self._new[giver] -= 1
        else:
            self._released[giver] += 1
        if self._released[receiver]:
            self._released[receiver] -= 1
        else:
            self._new[receiver] += 1
        loads[giver] -= 1
        loads[receiver] += 1

    def _release(self, member_id: str, rack_id: str | None) -> None:
        def is_far(topic_id: Uuid, partition: int) -> bool:
            racks = self._topics[topic_id].racks
            return bool(racks) and rack_id not in racks[partition]

        kept = [(topic_id, each) for topic_id, partitions in self._kept[member_id].items() for each in partitions]
        kept.sort(key=lambda each: (is_far(*each), each), reverse=True)
        for topic_id, partition in kept[: self._released[member_id]]:
            self._kept[member_id][topic_id].remove(partition)
            self._is_taken[topic_id][partition] = 0


def _make_pools(
    members: Mapping[str, MemberSpec], topics: Mapping[Uuid, TopicSpec]
) -> Generator[None, None, list[_Pool]]:
    # Most members subscribe to what others subscribe to: each set of topics is looked at once.
    members_by_subscription: dict[frozenset[Uuid], list[str]] = {}
    for member_id in sorted(members):
        members_by_subscription.setdefault(members[member_id].subscribed_topic_ids, []).append(member_id)
    subscriptions_by_topic: dict[Uuid, list[int]] = {}
    for number, subscription in enumerate(members_by_subscription):
        for topic_id in subscription:
            if topic_id in topics:
                subscriptions_by_topic.setdefault(topic_id, []).append(number)
        yield
    topics_by_subscriptions: dict[tuple[int, ...], dict[Uuid, TopicSpec]] = {}
    for topic_id, numbers in sorted(subscriptions_by_topic.items()):
        topics_by_subscriptions.setdefault(tuple(numbers), {})[topic_id] = topics[topic_id]
    subscribers = list(members_by_subscription.values())
    pools = []
    for numbers_key, pool_topics in topics_by_subscriptions.items():
        pools.append(_Pool(sorted(each for number in numbers_key for each in subscribers[number]), pool_topics))
        yield
    return pools


def _freeze(members: Mapping[str, MemberSpec], targets: dict[str, dict[Uuid, set[int]]]) -> Assignment:
    frozen: dict[str, Partitions] = {}
    for count, (member_id, target) in enumerate(targets.items()):
        old = members[member_id].assignment
        # What has not changed is the same object as before: most of a big group.
        frozen[member_id] = old if target == old else {each: frozenset(target[each]) for each in sorted(target)}
        if count % 20 == 0:
            yield
    return frozen

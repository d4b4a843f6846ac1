"""Gives partitions to members so that as many as possible have a replica in their member's rack.

Partitions with replicas in the same racks are alike, and so are members of the same rack: what is to be found is a
maximum flow from the ones to the others, in a graph as small as the number of racks. Members of no rack, and partitions
that no rack is left for, take what remains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence

from tailrace.coordinator.assignors.spec import TopicSpec
from tailrace.model.ids import Uuid

_TopicPartition = tuple[Uuid, int]
# The racks of a partition, those without a member left out, in order.
_Racks = tuple[str, ...]


def match_racks(
    free: Sequence[_TopicPartition],
    wanted: Mapping[str, int],
    racks: Mapping[str, str | None],
    topics: Mapping[Uuid, TopicSpec],
) -> Generator[None, None, dict[str, list[_TopicPartition]]]:
    """What each member gets: as many as it wants; all together they want what is free. Neighbours stay together."""
    room: dict[str, int] = {}
    for member_id, count in wanted.items():
        rack = racks[member_id]
        if rack is not None:
            room[rack] = room.get(rack, 0) + count
    alike: dict[_Racks, list[_TopicPartition]] = {}
    for number, (topic_id, partition) in enumerate(free):
        replica_racks = topics[topic_id].racks
        near = tuple(sorted(replica_racks[partition] & room.keys())) if room and replica_racks else ()
        alike.setdefault(near, []).append((topic_id, partition))
        if number % 200 == 0:
            yield
    flow = yield from _find_maximum_flow({near: len(partitions) for near, partitions in alike.items() if near}, room)
    near_by_rack: dict[str, list[_TopicPartition]] = {rack: [] for rack in room}
    rest: list[_TopicPartition] = []
    for near, partitions in alike.items():
        start = 0
        for rack in near:
            end = start + flow.get((near, rack), 0)
            near_by_rack[rack] += partitions[start:end]
            start = end
        rest += partitions[start:]
        yield
    # Backwards, as they are taken from the end.
    for stack in (*near_by_rack.values(), rest):
        stack.sort(reverse=True)
    yield
    given: dict[str, list[_TopicPartition]] = {}
    for member_id, count in wanted.items():
        near_stack = near_by_rack.get(racks[member_id] or "", [])
        given[member_id] = [(near_stack or rest).pop() for _ in range(count)]
        yield
    return given


def _find_maximum_flow(
    supply: Mapping[_Racks, int], room: Mapping[str, int]
) -> Generator[None, None, dict[tuple[_Racks, str], int]]:
    """How many partitions with these racks go to that rack; by augmenting paths, the shortest first."""
    left = dict(room)
    flow: dict[tuple[_Racks, str], int] = {}
    for near in sorted(supply):
        count = supply[near]
        while count:
            path = _find_path(near, left, flow, supply)
            yield
            if path is None:
                break
            # Each hop takes the place of one that moves on to the next rack; there is room in the last.
            amount = min([count, left[path[-1][1]]] + [flow[hop, path[i][1]] for i, (hop, _) in enumerate(path[1:])])
            for index, (hop, rack) in enumerate(path):
                flow[hop, rack] = flow.get((hop, rack), 0) + amount
                if index:
                    flow[hop, path[index - 1][1]] -= amount
            left[path[-1][1]] -= amount
            count -= amount
    return flow


def _find_path(
    near: _Racks, left: Mapping[str, int], flow: Mapping[tuple[_Racks, str], int], supply: Mapping[_Racks, int]
) -> list[tuple[_Racks, str]] | None:
    """Who goes to which rack, where each rack but the last one is full of those of the next hop."""
    came_by: dict[str, tuple[_Racks, str | None]] = dict.fromkeys(near, (near, None))
    queue = deque(near)
    while queue:
        rack = queue.popleft()
        if left[rack]:
            path = []
            step: str | None = rack
            while step is not None:
                hop, before = came_by[step]
                path.append((hop, step))
                step = before
            return path[::-1]
        for other in supply:
            if flow.get((other, rack)):
                for next_rack in other:
                    if next_rack not in came_by:
                        came_by[next_rack] = other, rack
                        queue.append(next_rack)
    return None

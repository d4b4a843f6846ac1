"""The largest set of pairs in which nobody occurs twice, by augmenting paths."""

from collections import deque
from collections.abc import Iterable, Mapping


def largest_matching(edges: Mapping[int, Iterable[int]]) -> dict[int, int]:
    """From each of the left to one of the right that it may have, for as many as possible."""
    right_of: dict[int, int] = {}
    left_of: dict[int, int] = {}
    for start in edges:
        came_from: dict[int, int] = {}
        waiting = deque([start])
        free: int | None = None
        while waiting and free is None:
            left = waiting.popleft()
            for right in edges[left]:
                if right in came_from:
                    continue
                came_from[right] = left
                if right not in left_of:
                    free = right
                    break
                waiting.append(left_of[right])
        while free is not None:
            left = came_from[free]
            given_up = right_of.get(left)
            right_of[left], left_of[free] = free, left
            free = given_up
    return right_of

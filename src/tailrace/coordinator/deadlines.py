"""What is due when: one time for each key, earliest first.

Setting a key again replaces its time. Heartbeats do that all the time, so the old entries stay in the heap until they
come up or outnumber the live ones.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# The heap is built anew when more than half of it, and more than this, is out of date.
_STALE_MAX = 1000


class Deadlines(Generic[K]):
    __slots__ = ("_counter", "_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[K, tuple[float, int]] = {}
        # The number tells entries of one time apart, in the order in which they were set: keys need no order.
        self._heap: list[tuple[float, int, K]] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, due_ms: float) -> None:
        self._counter += 1
        self._due[key] = due_ms, self._counter
        heappush(self._heap, (due_ms, self._counter, key))
        if len(self._heap) > _STALE_MAX + 2 * len(self._due):
            self._heap = [(due, number, each) for each, (due, number) in self._due.items()]
            heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def get(self, key: K) -> float | None:
        found = self._due.get(key)
        return None if found is None else found[0]

    def next_ms(self) -> float | None:
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: float) -> K | None:
        """The key that has been due for longest, which is then forgotten."""
        self._drop_stale()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due[key]
        return key

    def _drop_stale(self) -> None:
        heap, due = self._heap, self._due
        while heap:
            due_ms, number, key = heap[0]
            if due.get(key) == (due_ms, number):
                return
            heappop(heap)

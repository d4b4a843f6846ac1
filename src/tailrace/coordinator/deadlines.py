"""What is due when: one time for each key, earliest first.

Setting a key again replaces its time. Heartbeats put theirs off all the time, so that costs no more than a note: the
entry in the heap stays where it is, and is moved when it comes up. Those of cancelled keys stay until they come up, or
outnumber the live ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# The heap is built anew when more than half of it, and more than this, is out of date.
_STALE_MAX = 1000
# Entries that are moved in one call, each in about a microsecond.
_MOVES_MAX = 250


class Deadlines(Generic[K]):
    __slots__ = ("_counter", "_due", "_heap")

    def __init__(self) -> None:
        # The time of each key and the number that it was set with, then both of the entry that stands for it.
        self._due: dict[K, tuple[float, int, float, int]] = {}
        # The number tells entries of one time apart, in the order in which they were set: keys need no order.
        self._heap: list[tuple[float, int, K]] = []
        self._counter = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, due_ms: float) -> None:
        self._counter = number = self._counter + 1
        old = self._due.get(key)
        if old is not None and old[2] <= due_ms:
            self._due[key] = due_ms, number, old[2], old[3]
            return
        self._due[key] = due_ms, number, due_ms, number
        heappush(self._heap, (due_ms, number, key))
        if len(self._heap) > _STALE_MAX + 2 * len(self._due):
            self._heap = [(entry[2], entry[3], each) for each, entry in self._due.items()]
            heapify(self._heap)

    def cancel(self, key: K) -> None:
        self._due.pop(key, None)

    def get(self, key: K) -> float | None:
        found = self._due.get(key)
        return None if found is None else found[0]

    def next_ms(self) -> float | None:
        """Nothing is due before."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: float) -> K | None:
        """The key that has been due for longest, which is then forgotten. None also if very many were put off: as long
        as `next_ms` has come, it is to be asked again."""
        if not self._settle() or self._heap[0][0] > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due[key]
        return key

    def forget(self) -> Iterator[None]:
        """Everything, in steps."""
        while self._heap or self._due:
            del self._heap[-_MOVES_MAX:]
            for _ in range(min(_MOVES_MAX, len(self._due))):
                self._due.popitem()
            yield

    def _settle(self) -> bool:
        """Whether the first entry of the heap tells the time of its key."""
        heap, due = self._heap, self._due
        for _ in range(_MOVES_MAX):
            if not heap:
                return False
            _, number, key = heap[0]
            current = due.get(key)
            if current is None or current[3] != number:
                heappop(heap)
            elif current[1] == number:
                return True
            else:
                due_ms, number = current[:2]
                due[key] = due_ms, number, due_ms, number
                heapreplace(heap, (due_ms, number, key))
        return False

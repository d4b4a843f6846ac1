"""What is pending in one slot, and what was done, in words that fit into the metadata of a committed offset.

Records of a slot lie in the order in which they came, and leave in the order in which they are due. Three numbers tell
which are done:

    position            every record before this offset
    through, done       of those between position and `through`, all that were due no later than `done`

`done` is a pair of time and offset, so that any number of records may be due at one moment, and a step may take some of
them. Records behind `through` were not read when this was committed. Whoever begins anew reads from `position` on, and
passes over what is done: in the transaction that delivers records these numbers are committed, too. Pure.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class Moment(NamedTuple):
    at_ms: int
    offset: int


class Progress(NamedTuple):
    position: int
    through: int
    done: Moment

    @property
    def metadata(self) -> str:
        return f"{self.through}:{self.done.at_ms}:{self.done.offset}"


NOTHING_DONE = Moment(-1, -1)


def parse_progress(position: int, metadata: str | None) -> Progress:
    """What somebody else has committed, without these numbers, counts by its offset alone."""
    words = (metadata or "").split(":")
    if len(words) != 3 or not all(word.lstrip("-").isdigit() for word in words):
        return Progress(position, position, NOTHING_DONE)
    through, at_ms, offset = map(int, words)
    return Progress(position, through, Moment(at_ms, offset))


class Pending(Generic[Item]):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        # By the time at which they are due, each in the order of offsets: many are due at the same one.
        self._due: dict[int, deque[tuple[int, Item]]] = {}
        self._times: list[int] = []  # a heap
        self._count = 0
        # Offsets of what was taken, ascending; those done meanwhile stand in `_gone`.
        self._open: deque[int] = deque()
        self._gone: set[int] = set()
        self._read_to = progress.position
        # The first record that is not for this time, when it is: nothing behind it is read before.
        self.next: Moment | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def progress(self) -> Progress:
        return self._progress

    def take(self, offset: int, at_ms: int, item: Item, *, horizon_ms: int) -> bool:
        """A record that was read, in the order of offsets. Whether it is kept: what is done, or is for another time, is
        not."""
        assert offset >= self._read_to, "records come in order"
        if self.next is not None:
            return False
        if at_ms > horizon_ms:
            self.next = Moment(at_ms, offset)
            return False
        self._read_to = offset + 1
        if offset < self._progress.through and (at_ms, offset) <= self._progress.done:
            return False
        self._open.append(offset)
        at_once = self._due.get(at_ms)
        if at_once is None:
            at_once = self._due[at_ms] = deque()
            heapq.heappush(self._times, at_ms)
        at_once.append((offset, item))
        self._count += 1
        return True

    def pop_due(self, now_ms: int, *, count_max: int) -> list[tuple[Moment, Item]]:
        """What is due, the earliest first. It is given once. All that came late are among them, even if they are more:
        else those that leave would not be told from those that stay. Nothing leaves before everything was read again
        that an earlier life has read."""
        found: list[tuple[Moment, Item]] = []
        if self._read_to < self._progress.through:
            return found
        while self._times and self._times[0] <= now_ms:
            at_ms = self._times[0]
            at_once = self._due[at_ms]
            while at_once:
                if len(found) >= count_max and (at_ms, at_once[0][0]) > self._progress.done:
                    return found
                offset, item = at_once.popleft()
                found.append((Moment(at_ms, offset), item))
                self._count -= 1
            del self._due[heapq.heappop(self._times)]
        return found

    def decide_progress(self, popped: Sequence[tuple[Moment, Item]]) -> Progress:
        """What to commit together with the delivery of these."""
        done = max(self._progress.done, popped[-1][0]) if popped else self._progress.done  # They ascend.
        leaving = {moment.offset for moment, _ in popped}
        first = self._first
        assert first is None or first > done, "what stays is due later than what leaves"
        staying = (offset for offset in self._open if offset not in self._gone and offset not in leaving)
        return Progress(next(staying, self._read_to), max(self._read_to, self._progress.through), done)

    @property
    def _first(self) -> Moment | None:
        return Moment(self._times[0], self._due[self._times[0]][0][0]) if self._times else None

    def note_committed(self, progress: Progress, popped: Sequence[tuple[Moment, Item]]) -> None:
        self._progress = progress
        self._gone.update(moment.offset for moment, _ in popped)
        while self._open and self._open[0] in self._gone:
            self._gone.discard(self._open.popleft())

"""How far behind a group is, in time, and what is to be thought of it. Pure.

`EndRing` is what a leader remembers of where its log ended when: enough to say how old a record is without reading it.
`decide_verdict` judges by the last commits of a group in one partition, as Burrow does:

    OK       it has everything, or had it lately, or catches up
    WARN     it commits, and the lag has not shrunk from one commit to the next
    STALL    it commits the same offset again and again, and the lag does not shrink
    STOP     its last commit is longer ago than all the commits of the window took
    REWIND   it has gone back
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

# Entries of a ring: 1 KB. Above it every second one of the older half is dropped, so that it reaches back for long and
# is exact for what is new.
_RING_ENTRIES = 64


class EndRing:
    __slots__ = ("_ends", "_times")

    def __init__(self, now_ms: float, end_offset: int) -> None:
        self._times = array("q", [int(now_ms)])
        self._ends = array("q", [end_offset])

    def note(self, now_ms: float, end_offset: int, *, last_look_ms: float) -> None:
        """`last_look_ms`: when the end was looked at before, and was still the last one here."""
        if end_offset == self._ends[-1]:
            return
        if end_offset < self._ends[-1]:  # It was cut: of what it has now nothing is known.
            self._times, self._ends = array("q", [int(now_ms)]), array("q", [end_offset])
            return
        if last_look_ms > self._times[-1]:
            self._add(last_look_ms, self._ends[-1])
        self._add(now_ms, end_offset)

    def _add(self, now_ms: float, end_offset: int) -> None:
        if len(self._times) >= _RING_ENTRIES:
            half = _RING_ENTRIES // 2
            for entries in (self._times, self._ends):
                entries[:half] = entries[:half:2]
        self._times.append(int(now_ms))
        self._ends.append(end_offset)

    def age_ms(self, offset: int, now_ms: float, end_offset: int) -> float:
        """How long ago the record at this offset was appended, at least; 0 if there is none yet."""
        if offset >= end_offset:
            return 0.0
        place = bisect_right(self._ends, offset)  # The first end that has the record below it.
        if place == 0:
            return now_ms - self._times[0]
        before_ms, before = self._times[place - 1], self._ends[place - 1]
        is_known = place < len(self._ends)
        after_ms, after = (self._times[place], self._ends[place]) if is_known else (now_ms, end_offset)
        share = (offset - before) / max(1, after - before)
        return max(0.0, now_ms - (before_ms + share * (after_ms - before_ms)))


class Verdict(Enum):
    """From good to bad: a group has the worst of its partitions."""

    OK = 0
    WARN = 1
    STALL = 2
    STOP = 3
    REWIND = 4


class Commit(NamedTuple):
    at_ms: int
    offset: int
    lag: int


def decide_verdict(commits: Sequence[Commit], *, lag: int, now_ms: int, quiet_min_ms: int) -> Verdict:
    """`commits` are the last ones, oldest first, each with the lag that was seen next; `lag` is that of now. A group is
    not stopped before it was quiet for `quiet_min_ms`, however short the window is."""
    if lag <= 0 or not commits:
        return Verdict.OK
    first, last = commits[0], commits[-1]
    if now_ms - last.at_ms > max(last.at_ms - first.at_ms, quiet_min_ms):
        return Verdict.STOP
    if len(commits) < 2 or any(each.lag == 0 for each in commits):
        return Verdict.OK
    pairs = list(pairwise(commits))
    if any(later.offset < earlier.offset for earlier, later in pairs):
        return Verdict.REWIND
    if all(later.lag >= earlier.lag for earlier, later in pairs):
        return Verdict.STALL if first.offset == last.offset else Verdict.WARN
    return Verdict.OK

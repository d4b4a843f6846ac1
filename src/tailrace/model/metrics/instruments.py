"""Histograms of fixed buckets, and what was added to them in the last minute.

The buckets are half an octave wide, from 16 microseconds to more than a minute: a quantile that is read from them is
wrong by at most a fifth of its value.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

# Upper bounds in milliseconds, inclusive; the last bucket has what is above all of them.
TIME_BOUNDS_MS = tuple(2 ** (half / 2) for half in range(-12, 34))


class Histogram:
    __slots__ = ("cells",)

    def __init__(self) -> None:
        # The counts of the buckets, and last the sum of all times: whoever adds on the way of a request does so here.
        self.cells: list[float] = [0] * (len(TIME_BOUNDS_MS) + 1) + [0.0]

    def add(self, time_ms: float, weight: int = 1) -> None:
        """`weight`: how many it stands for, where only some are looked at."""
        self.cells[bisect_left(TIME_BOUNDS_MS, time_ms)] += weight
        self.cells[-1] += time_ms * weight

    @property
    def counts(self) -> list[int]:
        return [int(count) for count in self.cells[:-1]]

    @property
    def sum_ms(self) -> float:
        return self.cells[-1]

    @property
    def count(self) -> int:
        return int(sum(self.cells[:-1]))

    def cumulated(self, every: int) -> list[tuple[float, int]]:
        """Bounds in milliseconds, and how many lie at or below each; every so many buckets one."""
        total, found, counts = 0, [], self.counts
        for number, bound in enumerate(TIME_BOUNDS_MS):
            total += counts[number]
            if number % every == every - 1:
                found.append((bound, total))
        return found


def quantiles_ms(counts: Sequence[int], wanted: Sequence[float]) -> list[float]:
    """Each by interpolation within its bucket; 0 if there is nothing. What lies above all bounds counts as the last."""
    total = sum(counts)
    found: list[float] = []
    for quantile in wanted:
        rank, below = quantile * total, 0
        for number, count in enumerate(counts):
            if count and below + count >= rank:
                upper = TIME_BOUNDS_MS[min(number, len(TIME_BOUNDS_MS) - 1)]
                lower = TIME_BOUNDS_MS[number - 1] if number else 0.0
                found.append(lower + (upper - lower) * max(0.0, rank - below) / count)
                break
            below += count
        else:
            found.append(0.0)
    return found


class Window:
    """What a histogram had at the last few ticks: the difference to now is what was added since."""

    __slots__ = ("_past", "_source")

    def __init__(self, source: Histogram, ticks: int) -> None:
        self._source = source
        self._past: deque[list[int]] = deque([source.counts], maxlen=ticks)

    def tick(self) -> None:
        self._past.append(self._source.counts)

    def counts(self) -> list[int]:
        return [now - before for now, before in zip(self._source.counts, self._past[0], strict=True)]

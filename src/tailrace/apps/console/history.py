"""What the console remembers: numbers over time, in a bounded memory.

A series has two rings of the same size: the last hour in fine steps and the last day in coarse ones, each coarse step
the mean of the fine ones in it. A step that was missed is a gap, not a zero. Series that nobody has fed for a day go;
beyond `series_max` new ones are not taken, and `refused` counts them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import NamedTuple

HOUR_S = 3600
DAY_S = 24 * HOUR_S
STEPS = 720
FINE_S = HOUR_S // STEPS
COARSE_S = DAY_S // STEPS


class Point(NamedTuple):
    at_s: int
    value: float


class Series:
    def __init__(self) -> None:
        self._fine = _Ring(FINE_S)
        self._coarse = _Ring(COARSE_S)
        self.fed_s = 0

    def add(self, at_s: int, value: float) -> None:
        self._fine.add(at_s, value)
        self._coarse.add(at_s, value)
        self.fed_s = at_s

    def points(self, *, now_s: int, span_s: int) -> list[Point]:
        """Oldest first."""
        ring = self._fine if span_s <= HOUR_S else self._coarse
        return list(ring.points(now_s - span_s, now_s))


class _Ring:
    """Means of equal steps of time."""

    def __init__(self, step_s: int) -> None:
        self._step_s = step_s
        self._values = array("f", [math.nan]) * STEPS
        self._last_step = -1
        self._count = 0  # how many values the mean of the last step has

    def add(self, at_s: int, value: float) -> None:
        step = at_s // self._step_s
        if step < self._last_step:
            return  # The wall clock was set back: nothing is changed that was shown.
        if step > self._last_step:
            for missed in range(max(self._last_step + 1, step - STEPS + 1), step):
                self._values[missed % STEPS] = math.nan
            self._last_step, self._count = step, 1
            self._values[step % STEPS] = value
            return
        self._count += 1
        mean = self._values[step % STEPS]
        self._values[step % STEPS] = mean + (value - mean) / self._count

    def points(self, begin_s: int, end_s: int) -> Iterator[Point]:
        first = max(begin_s // self._step_s, self._last_step - STEPS + 1)
        for step in range(first, min(end_s // self._step_s, self._last_step) + 1):
            value = self._values[step % STEPS]
            if not math.isnan(value):
                yield Point(step * self._step_s, value)


class History:
    """Series by kind and name, such as ("lag", "billing")."""

    def __init__(self, *, series_max: int) -> None:
        self._series_max = series_max
        self._series: dict[tuple[str, str], Series] = {}
        self.refused = 0

    def add(self, kind: str, name: str, *, at_s: int, value: float) -> None:
        series = self._series.get((kind, name))
        if series is None:
            if len(self._series) >= self._series_max and not self._forget(at_s):
                self.refused += 1
                return
            series = self._series[kind, name] = Series()
        series.add(at_s, value)

    def points(self, kind: str, name: str, *, now_s: int, span_s: int = HOUR_S) -> list[Point]:
        series = self._series.get((kind, name))
        return [] if series is None else series.points(now_s=now_s, span_s=span_s)

    def latest(self, kind: str, name: str, *, now_s: int) -> float | None:
        """Of the last minute."""
        found = self.points(kind, name, now_s=now_s, span_s=60)
        return found[-1].value if found else None

    def _forget(self, now_s: int) -> bool:
        """Whether there is room now."""
        old = [key for key, series in self._series.items() if series.fed_s < now_s - DAY_S]
        for key in old:
            del self._series[key]
        return bool(old)

"""Numbers over time as a picture: SVG, made here, without a script.

Every chart has its meaning in words too: a title, the last and the highest value. A gap in time is a gap in the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.apps.console.history import COARSE_S, FINE_S, HOUR_S, Point

_WIDTH, _HEIGHT = 720, 120
_GRID = 4
_SPAN_MIN_S = 300
# Looking may take longer than a step where there is much to see.
_FINE_GAP_S = 6 * FINE_S


class Chart(NamedTuple):
    """`lines` are the points of polylines; `area` closes each of them at the bottom."""

    lines: tuple[str, ...]
    areas: tuple[str, ...]
    width: int
    height: int
    last: float | None
    highest: float
    grid: tuple[tuple[int, float], ...]  # (y, value)
    now_s: int
    span_s: int


def draw(points: Sequence[Point], *, now_s: int, span_s: int) -> Chart:
    """A short history fills the chart as well as a long one does."""
    known_s = now_s - points[0].at_s if points else 0
    span_s = min(span_s, max(known_s, _SPAN_MIN_S))
    highest = max((point.value for point in points), default=0.0)
    top = _round_up(highest)
    begin_s = now_s - span_s
    lines, areas = [], []
    for run in _runs(points, 3 * COARSE_S if span_s > HOUR_S else _FINE_GAP_S):
        places = [
            (
                round((point.at_s - begin_s) / span_s * _WIDTH, 1),
                round(_HEIGHT - point.value / top * (_HEIGHT - 4) if top else _HEIGHT, 1),
            )
            for point in run
        ]
        line = " ".join(f"{x},{y}" for x, y in places)
        lines.append(line)
        areas.append(f"{places[0][0]},{_HEIGHT} {line} {places[-1][0]},{_HEIGHT}")
    grid = tuple((round(_HEIGHT - step / _GRID * (_HEIGHT - 4)), top * step / _GRID) for step in range(1, _GRID + 1))
    last = points[-1].value if points else None
    return Chart(tuple(lines), tuple(areas), _WIDTH, _HEIGHT, last, highest, grid if top else (), now_s, span_s)


def _runs(points: Sequence[Point], gap_s: int) -> list[list[Point]]:
    runs: list[list[Point]] = []
    for point in points:
        if runs and point.at_s - runs[-1][-1].at_s <= gap_s:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten: what people read easily at the side of a chart."""
    if value <= 0:
        return 0.0
    step = 1.0
    while step < value:
        step *= 10
    for part in (0.2, 0.5):
        if step * part >= value:
            return step * part
    return step

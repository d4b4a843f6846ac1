"""Charts as SVG, written by hand: no script, no font, nothing from elsewhere, and the same bytes for the same numbers.

Two kinds: lines over time, and bars side by side. A reader without eyes for colours tells the series apart by the
legend's order and by the tooltips, which every point has. `picture` and `text_at` make other kinds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A picture that shows more cannot be read; the aggregate is to be made coarser.
POINTS_MAX = 5_000
# Okabe and Ito's, which most kinds of colour blindness tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c7a00", "#7f7f7f")
WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 40
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#444}.title{font-size:15px;font-weight:600;fill:#222}"
    ".grid{stroke:#ddd;stroke-width:1}.axis{stroke:#888;stroke-width:1}"
)


class Series(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]  # (seconds since 1970, value), in order


class Bars(NamedTuple):
    name: str
    values: Sequence[float]  # one for each category


def save_chart(
    windows: DataFrame,
    path: str | Path,
    *,
    value: str,
    time: str = "window.start",
    series: str | None = None,
    title: str = "",
) -> int:
    """Saves an aggregate by time as a picture: `time`, `value` and `series` are SQL expressions over its columns, and
    each series is one line. Returns the number of points. Raises ValueError if there are more than POINTS_MAX."""
    from pyspark.sql import functions as sf

    rows = (
        windows.select(
            sf.coalesce(sf.expr(series or "''").cast("string"), sf.lit("null")).alias("name"),
            (sf.unix_millis(sf.expr(time).cast("timestamp")) / 1000).alias("second"),
            sf.expr(value).cast("double").alias("value"),
        )
        .where("second IS NOT NULL AND value IS NOT NULL")
        .orderBy("name", "second")
        .limit(POINTS_MAX + 1)
        .collect()
    )
    if len(rows) > POINTS_MAX:
        raise ValueError(f"the chart would have more than {POINTS_MAX:,} points: aggregate by longer windows")
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        lines.setdefault(row.name, []).append((row.second, row.value))
    Path(path).write_text(line_chart(title, [Series(name, points) for name, points in lines.items()]), encoding="utf-8")
    return len(rows)


def line_chart(title: str, series: Sequence[Series]) -> str:
    """Lines over time. More series than colours share one, and are told apart by their tooltips."""
    times = [x for each in series for x, _ in each.points]
    first, last = (min(times), max(times)) if times else (0.0, 1.0)
    if first == last:
        first, last = first - 0.5, last + 0.5
    axis = ValueAxis(max((y for each in series for _, y in each.points), default=0))
    place: Callable[[float], float] = lambda x: LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)  # noqa: E731
    parts = [*axis.grid(), *_time_labels(first, last, place)]
    for index, each in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        at = [(place(x), axis.place(y)) for x, y in each.points]
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), (second, value) in zip(at, each.points, strict=True):
            told = f"{each.name} {_time_text(second, with_date=True)}: {number_text(value)}".strip()
            tip = f"<title>{escape(told)}</title>"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}">{tip}</circle>')
    return picture(title, [each.name for each in series], parts)


def bar_chart(title: str, categories: Sequence[str], bars: Sequence[Bars]) -> str:
    """Bars of all series side by side, category by category."""
    axis = ValueAxis(max((value for each in bars for value in each.values), default=0))
    parts = axis.grid()
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(categories))
    width = slot * 0.8 / max(1, len(bars))
    labelled_every = math.ceil(len(categories) / 12)
    for position, category in enumerate(categories):
        left = LEFT + slot * position + slot * 0.1
        if position % labelled_every == 0:
            middle = LEFT + slot * (position + 0.5)
            parts.append(text_at(middle, HEIGHT - BOTTOM + 18, shortened(category), anchor="middle"))
        for index, each in enumerate(bars):
            value = each.values[position]
            top = axis.place(value)
            tip = f"<title>{escape(f'{each.name} {category}: {number_text(value)}'.strip())}</title>"
            parts.append(
                f'<rect x="{left + width * index:.1f}" y="{top:.1f}" width="{max(width - 1, 0.5):.1f}" '
                f'height="{HEIGHT - BOTTOM - top:.1f}" fill="{COLOURS[index % len(COLOURS)]}">{tip}</rect>'
            )
    return picture(title, [each.name for each in bars], parts)


def number_text(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


class ValueAxis:
    """From 0 up to the next round number, in four or five steps."""

    def __init__(self, highest: float) -> None:
        step = _round_step(highest / 4) if highest > 0 else 1.0
        self._ticks = [step * index for index in range(math.ceil(max(highest, step) / step) + 1)]

    def place(self, value: float) -> float:
        return HEIGHT - BOTTOM - max(value, 0.0) / self._ticks[-1] * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        parts = []
        for tick in self._ticks:
            y = self.place(tick)
            kind = "grid" if tick else "axis"
            parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(text_at(LEFT - 8, y + 4, short_number(tick), anchor="end"))
        return parts


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, and not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def short_number(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _time_labels(first: float, last: float, place: Callable[[float], float]) -> list[str]:
    with_date = last - first > 86_400
    times = [first + (last - first) * index / 5 for index in range(6)]
    anchors = ("start", "middle", "middle", "middle", "middle", "end")
    return [
        text_at(place(time), HEIGHT - BOTTOM + 18, _time_text(time, with_date=with_date), anchor=anchor)
        for time, anchor in zip(times, anchors, strict=True)
    ]


def _time_text(second: float, *, with_date: bool) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S")


def shortened(text: str) -> str:
    return text if len(text) <= 16 else f"{text[:7]}…{text[-8:]}"


def text_at(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def picture(title: str, names: Sequence[str], parts: Sequence[str], *, height: int = HEIGHT) -> str:
    """The parts with a title and a legend, whose names have the colours in their order."""
    legend = []
    x = float(WIDTH - RIGHT)
    for index, name in reversed(list(enumerate(names[: len(COLOURS)]))):
        if name:
            # The width of a text is known to a browser alone: 7 pixels a letter is near enough.
            x -= 7 * len(shortened(name)) + 24
            legend.append(f'<rect x="{x:.1f}" y="11" width="11" height="11" fill="{COLOURS[index]}"/>')
            legend.append(text_at(x + 15, 21, shortened(name)))
    body = "\n".join([text_at(LEFT, 21, title, kind="title"), *legend, *parts])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title, quote=True)}">\n<style>{_STYLE}</style>\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )

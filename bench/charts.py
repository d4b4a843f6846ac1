"""The charts of docs/benchmarks.md: how one quantity grows with another, rivals row by row, and ratios around 1.

They are drawn with the means of `tailrace.spark.charts`: plain SVG, and the same bytes for the same numbers.
"""

import math
from collections.abc import Sequence
from html import escape

from tailrace.spark.charts import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Bars,
    Series,
    ValueAxis,
    picture,
    text_at,
)

# Names of rows stand left of their bars, as wide as the longest needs: a letter takes 7 pixels at most, most take less.
_LETTER, _LABEL_LETTERS = 6.6, 58
_BAR, _GAP = 12, 9
# Room for the number behind the longest bar.
_NUMBER = 64


def growth_chart(title: str, series: Sequence[Series]) -> str:
    """Lines over something that grows by factors: each step to the right multiplies it."""
    places = sorted({x for each in series for x, _ in each.points})
    low, high = math.log10(places[0]), math.log10(places[-1])
    axis = ValueAxis(max(y for each in series for _, y in each.points))

    def place(x: float) -> float:
        return LEFT + 12 + (math.log10(x) - low) / ((high - low) or 1) * (WIDTH - LEFT - RIGHT - 36)

    parts = axis.grid()
    parts += [text_at(place(x), HEIGHT - BOTTOM + 18, factor_text(x), anchor="middle") for x in places]
    for index, each in enumerate(series):
        colour = COLOURS[index % len(COLOURS)]
        corners = " ".join(f"{place(x):.1f},{axis.place(y):.1f}" for x, y in each.points)
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in each.points:
            tip = f"<title>{escape(f'{each.name} at {factor_text(x)}: {figure_text(y)}')}</title>"
            parts.append(f'<circle cx="{place(x):.1f}" cy="{axis.place(y):.1f}" r="3" fill="{colour}">{tip}</circle>')
    return picture(title, [each.name for each in series], parts)


def row_chart(title: str, rows: Sequence[str], bars: Sequence[Bars]) -> str:
    """Bars that lie, under each other row by row, each with its number. A value of 0 is one that is not there."""
    highest = max(value for each in bars for value in each.values) or 1.0
    labels = _labels_width(rows)
    parts = []
    top = float(TOP)
    for position, row in enumerate(rows):
        shown = [(index, each) for index, each in enumerate(bars) if each.values[position]]
        height = _BAR * len(shown)
        parts.append(text_at(labels - 8, top + height / 2 + 4, _label(row), anchor="end"))
        for index, each in shown:
            value = each.values[position]
            width = value / highest * (WIDTH - labels - _NUMBER)
            parts.append(_bar(labels, top, width, COLOURS[index], f"{each.name}, {row}: {figure_text(value)}"))
            parts.append(text_at(labels + width + 5, top + _BAR - 2, figure_text(value)))
            top += _BAR
        top += _GAP
    return picture(title, [each.name for each in bars], parts, height=int(top) + 4)


def ratio_chart(title: str, ratios: Sequence[tuple[str, float]], *, ahead: str, behind: str) -> str:
    """A bar to the right for each ratio above 1, to the left below it; twice as long is a factor squared."""
    powers = [math.log2(ratio) for _, ratio in ratios]
    most_left, most_right = max(0.0, -min(powers)), max(1.0, *powers)
    labels = _labels_width([name for name, _ in ratios])
    unit = (WIDTH - labels - 2 * _NUMBER) / (most_left + most_right)
    middle = labels + _NUMBER + most_left * unit
    parts = []
    top = float(TOP)
    for name, ratio in ratios:
        length = math.log2(ratio) * unit
        left, colour = (middle, COLOURS[0]) if ratio >= 1 else (middle + length, COLOURS[1])
        told = f"{figure_text(ratio)}x"
        parts.append(text_at(labels - 8, top + _BAR - 2, _label(name), anchor="end"))
        parts.append(_bar(left, top, abs(length), colour, f"{name}: {told}"))
        where, anchor = (middle + length + 5, "start") if ratio >= 1 else (left - 5, "end")
        parts.append(text_at(where, top + _BAR - 2, told, anchor=anchor))
        top += _BAR + 4
    parts.append(f'<line class="axis" x1="{middle:.1f}" x2="{middle:.1f}" y1="{TOP - 4}" y2="{top:.1f}"/>')
    return picture(title, [ahead, behind], parts, height=int(top) + 8)


def figure_text(value: float) -> str:
    """Three digits that count, or all of those before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.01 or not value else f"{value:.2g}"


def factor_text(value: float) -> str:
    """A value of what grows, short enough for an axis."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"


def _labels_width(names: Sequence[str]) -> float:
    return 16 + _LETTER * max(len(_label(name)) for name in names)


def _label(name: str) -> str:
    return name if len(name) <= _LABEL_LETTERS else f"{name[: _LABEL_LETTERS - 1]}…"


def _bar(left: float, top: float, width: float, colour: str, tip: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(width, 0.5):.1f}" height="{_BAR - 1}" '
        f'fill="{colour}"><title>{escape(tip)}</title></rect>'
    )

"""The part of the page that tells how cost grows: a table, charts and a remark on the knee for each dimension."""

from typing import Any

from bench.charts import factor_text, figure_text, growth_chart
from tailrace.spark.charts import Series

_PICTURES = "benchmarks"
_INTRODUCTION = """\
## How cost grows

Tailrace alone, one broker, everything else at the base case. Each step to the right in a chart multiplies. CPU is the
broker's, the kernel's work for it included.
"""


def growth_section(growth: dict[str, Any], knees: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The text, and the charts by name."""
    pictures: dict[str, str] = {}
    lines = [_INTRODUCTION]
    for name, dimension in growth["dimensions"].items():
        lines.append(f"### {dimension['title']}\n")
        taken = f"Commit {dimension['commit']}, {dimension['date'][:10]}, load before {dimension['load']:.1f}"
        lines.append(f"{taken}; {dimension['python']}.\n")
        points = dimension["points"]
        figures = list(dict.fromkeys(figure for point in points for figure in point["figures"]))
        units: dict[str, list[str]] = {}
        for figure in figures:
            units.setdefault(figure.rpartition(" ")[2], []).append(figure)
        for unit in dimension["charts"]:
            shown = units[unit]
            slug = f"growth-{name}-{_slug(unit)}"
            lines_shown = [Series(figure.rpartition(" ")[0], _points(points, figure)) for figure in shown]
            pictures[slug] = growth_chart(f"{unit} by {dimension['over']}", lines_shown)
            lines.append(f"![{unit} by {dimension['over']}]({_PICTURES}/{slug}.svg)\n")
        lines.append(f"| {dimension['over']} | {' | '.join(figures)} |")
        lines.append(f"|---|{'---|' * len(figures)}")
        for point in points:
            cells = [_cell(point["figures"].get(figure)) for figure in figures]
            lines.append(f"| {factor_text(point['x'])} | {' | '.join(cells)} |")
        lines.append(f"\n{knees[name].strip()}\n" if name in knees else "")
    return "\n".join(lines), pictures


def _cell(value: float | None) -> str:
    return "" if value is None else figure_text(value)


def _points(points: list[dict[str, Any]], figure: str) -> list[tuple[float, float]]:
    return [(point["x"], point["figures"][figure]) for point in points if figure in point["figures"]]


def _slug(unit: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in unit.lower())

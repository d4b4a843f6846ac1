"""The parts of the page that let a reader judge the rows: how brokers got warm, whether a row is the same when it is
taken again, and which rows do not hold."""

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from bench.charts import figure_text, growth_chart
from bench.versus.results import BASE, OURS, SAME, compared_ratio, not_warm
from bench.versus.warmth import Piece, WarmUp, windows
from tailrace.spark.charts import Series

_PICTURES = "benchmarks"
# In the chart: those whose warm-up took longest tell most.
_CURVES = 5
_WIDTH = 120
_AGAIN = f"""\
Rows share brokers, so that one which comes late could find them other than one which comes first. Some were taken
twice: first with brokers that had done nothing else and again after all the others, or with the others and again alone.
Where the two ratios differ by more than {SAME - 1:.0%} the row is not valid."""
_RULE = """\
Before a row counts its own work is done, in pieces as long as a round, until it costs the brokers the same: the second
half of the warm-up is cut into three windows, and each has to be within {tolerance:.0%} of their mean. Rounds that are
cheaper by more than {fall_max:.0%} join the warm-up, which goes on, and others are taken. Who is not there after
{seconds_max:g} s of such work ({seconds_max_of_cluster:g} s for three brokers), or still gets cheaper when the row is
taken for the {attempts}. time, makes the row invalid. The rule is the same for all."""
_CURVE = """\
Seconds of the warm-up, and the brokers' CPU for the same work: its first piece, and the three windows that ended it.
The last column is all the time that the row took, on all rivals."""


def invalid_section(rows: dict[str, Any]) -> str:
    """Empty if all rows hold."""
    invalid = {name: row["invalid"] for name, row in rows.items() if row["invalid"]}
    if not invalid:
        return ""
    lines = ["## Not valid\n", "Taken, and not shown anywhere else:\n"]
    lines += [f"- `{name}`: {'; '.join(reasons)}." for name, reasons in invalid.items()]
    return "\n".join(lines) + "\n"


def again_section(rows: dict[str, Any]) -> str:
    """Empty if none was taken again."""
    taken = [(name, row, when, again) for name, row in rows.items() for when, again in row["again"].items()]
    if not taken:
        return ""
    lines = [
        f"## The same again\n\n{_AGAIN}\n",
        "| row | in the run | again | | same |",
        "|---|---|---|---|---|",
    ]
    for name, row, when, again in taken:
        ratios = [compared_ratio(row), compared_ratio(row | again)]
        told = " | ".join(f"{figure_text(ratio)}x" if ratio else "" for ratio in ratios)
        lines.append(f"| `{name}` | {told} | {when} | {_same(row, again, ratios)} |")
    return "\n".join(lines) + "\n"


def _same(row: dict[str, Any], again: dict[str, Any], ratios: Sequence[float | None]) -> str:
    if not_warm(row | again):
        return "not warm that time: says nothing"
    first, second = ratios
    if not first or not second:
        return "failed"
    return "yes" if max(first, second) <= SAME * min(first, second) else "**no**"


def warm_up_section(rows: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The text, and its chart by name."""
    warmed = {name: row for name, row in rows.items() if row["warm_up"]}
    if not warmed:
        return "", {}
    rule = WarmUp()._asdict() | next(iter(warmed.values()))["rule"]
    lines = [f"## How warm they were\n\n{textwrap.fill(_RULE.format(**rule), _WIDTH)}\n"]
    curves = _curves(warmed)
    pictures = {}
    if curves:
        title = f"{BASE}: broker CPU for the same work, in times of what it is when warm, by seconds of the row's work"
        pictures["warm-up"] = growth_chart(title, curves)
        lines.append(f"![{title}]({_PICTURES}/warm-up.svg)\n")
    lines += [
        f"{_CURVE}\n",
        f"| row | cost | {OURS} | {BASE} | took s |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {_unit(row)} | {_warmed(row, OURS)} | {_warmed(row, BASE)} | {row['took_s']:.0f} |"
        for name, row in warmed.items()
    ]
    return "\n".join(lines) + "\n", pictures


def _unit(row: dict[str, Any]) -> str:
    return str(next(iter(row["warm_up"].values()))["figure"]).rpartition(" ")[2]


def _warmed(row: dict[str, Any], rival: str) -> str:
    if rival not in row["warm_up"]:
        return ""
    pieces = _pieces(row, rival)
    ends = " ".join(figure_text(cost) for cost in windows([piece.cost for piece in pieces]))
    return f"{pieces[-1].ended_s:.0f} s: {figure_text(pieces[0].cost)}, {ends or 'too few pieces'}"


def _pieces(row: dict[str, Any], rival: str) -> list[Piece]:
    return [Piece(*piece) for piece in row["warm_up"][rival]["pieces"]]


def _curves(warmed: dict[str, Any]) -> list[Series]:
    found = {name: _pieces(row, BASE) for name, row in warmed.items() if BASE in row["warm_up"] and not row["invalid"]}
    longest = sorted(found, key=lambda name: found[name][-1].ended_s, reverse=True)[:_CURVES]
    return [Series(name, _relative(found[name])) for name in longest]


def _relative(pieces: Sequence[Piece]) -> list[tuple[float, float]]:
    """A point for each doubling of the time: the mean cost since the last, in times of the windows' mean."""
    warm = statistics.fmean(windows([piece.cost for piece in pieces]))
    points = []
    until, since = 2.0, 0.0
    while since < pieces[-1].ended_s:
        costs = [piece.cost for piece in pieces if since < piece.ended_s <= until]
        if costs:
            points.append((until, statistics.fmean(costs) / warm))
        since, until = until, 2 * until
    return points

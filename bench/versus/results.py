"""results.json as the page sees it: every figure of every row, by rival, with its ratio; and which rows hold."""

import fnmatch
import statistics
from collections.abc import Iterable
from typing import Any, NamedTuple

from bench.versus.rows import Summary, summary
from bench.versus.warmth import Piece, fell

OURS = "Tailrace"
BASE = "Apache Kafka"
# In the row's own unit and direction. Any other figure is a cost: its name says its unit, and lower is better.
_MAIN = ("", "p50", "p99", "p99.9")
# The one of several main figures that a chart shows.
_HEADLINES = ("", "p99")
# The one of several that is compared when a row is taken again: tails differ from round to round.
_COMPARED = ("", "p50")
# A row is the same again if its ratios differ by no more: rounds of one row differ by a tenth where this was written.
SAME = 1.2
# Cores that other programs may keep busy in the median round: more would take them from whoever uses both.
LOAD_MAX = 0.3


class Measured(NamedTuple):
    """One figure of one row."""

    name: str  # the row's
    title: str
    section: str
    figure: str
    unit: str  # "" of a cost, whose figure names it
    lower_is_better: bool
    by_rival: dict[str, Summary]
    cold: bool = False

    @property
    def label(self) -> str:
        return f"{self.title}, {self.figure}" if self.figure else self.title

    @property
    def is_headline(self) -> bool:
        return self.figure in _HEADLINES

    @property
    def is_compared(self) -> bool:
        """With the row itself, taken again."""
        return self.figure in _COMPARED

    @property
    def ratio(self) -> float | None:
        """Above 1 if we are ahead, None if one of the two is missing or if they had just started."""
        if self.cold:
            return None
        ours, base = self.median(OURS), self.median(BASE)
        if not ours or not base:
            return None
        return base / ours if self.lower_is_better else ours / base

    @property
    def is_even(self) -> bool:
        """Whether the ranges of the two overlap."""
        ours, base = self.by_rival[OURS], self.by_rival[BASE]
        return ours.low <= base.high and base.low <= ours.high

    def median(self, rival: str) -> float:
        """0 if there is none."""
        found = self.by_rival.get(rival)
        return found.median if found else 0.0


def judge(row: dict[str, Any]) -> list[str]:
    """Why a row of results.json cannot be published; nothing if it can."""
    reasons = not_warm(row)
    load = statistics.median(taken["load"] for taken in row["taken"]) if row["taken"] else 0.0
    if load > LOAD_MAX:
        reasons.append(f"other programs kept {load:.1f} cores busy")
    ratio = compared_ratio(row)
    for when, again in row["again"].items():
        # Who is not warm when taken again says nothing about the row.
        other = compared_ratio(row | again)
        if ratio and other and not not_warm(row | again) and max(ratio, other) > SAME * min(ratio, other):
            reasons.append(f"the ratio is {ratio:.2f}x, and {when} {other:.2f}x")
    return reasons


def not_warm(row: dict[str, Any]) -> list[str]:
    """Which of those that were warmed up were not warm when it counted."""
    reasons = []
    for rival, curve in row["warm_up"].items():
        pieces = [Piece(*piece) for piece in curve["pieces"]]
        costs = [piece.cost for piece in pieces]
        counted = [
            taken["value"] for taken in row["taken"] if taken["rival"] == rival and taken["figure"] == curve["figure"]
        ]
        if not curve["is_flat"]:
            reasons.append(f"{rival} was not warm: its {curve['figure']} was not flat after {pieces[-1].ended_s:.0f} s")
        elif fell(costs, counted, row["rule"]["fall_max"]):
            reasons.append(f"{rival} was not warm: its {curve['figure']} still fell when it counted")
    return reasons


def compared_ratio(row: dict[str, Any]) -> float | None:
    found = [measured for measured in read_row("", row) if measured.is_compared]
    return found[0].ratio if found else None


def read_rows(results: dict[str, Any]) -> list[Measured]:
    """In the order of the file, without those that are not valid; the main figures of a row first."""
    return [found for name, row in results["rows"].items() if not row["invalid"] for found in read_row(name, row)]


def read_row(name: str, row: dict[str, Any]) -> list[Measured]:
    rows = []
    figures = distinct(taken["figure"] for taken in row["taken"])
    for figure in sorted(figures, key=lambda each: not is_main(each)):
        taken = [each for each in row["taken"] if each["figure"] == figure]
        values: dict[str, list[float]] = {}
        for each in taken:
            values.setdefault(each["rival"], []).append(each["value"])
        rows.append(
            Measured(
                name=name,
                title=row["title"],
                section=row["section"],
                figure=figure,
                unit=row["unit"] if is_main(figure) else "",
                lower_is_better=row["lower_is_better"] if is_main(figure) else True,
                by_rival={rival: summary(found) for rival, found in values.items()},
                cold=row["cold"],
            )
        )
    return rows


def is_main(figure: str) -> bool:
    return figure in _MAIN


def reason_for(name: str, reasons: dict[str, str]) -> str | None:
    return next((reason for pattern, reason in reasons.items() if fnmatch.fnmatch(name, pattern)), None)


def distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))

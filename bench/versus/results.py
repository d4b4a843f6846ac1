"""results.json as the page sees it: every figure of every row, by rival, with its ratio."""

import fnmatch
from collections.abc import Iterable
from typing import Any, NamedTuple

from bench.versus.rows import Summary, summary

OURS = "Tailrace"
BASE = "Apache Kafka"
# In the row's own unit and direction. Any other figure is a cost: its name says its unit, and lower is better.
_MAIN = ("", "p50", "p99", "p99.9")
# Of several main figures the one that a chart shows.
_HEADLINES = ("", "p99")


class Measured(NamedTuple):
    """One figure of one row."""

    name: str  # of the row
    title: str
    section: str
    figure: str
    unit: str  # "" of a cost, whose figure names it
    lower_is_better: bool
    by_rival: dict[str, Summary]

    @property
    def label(self) -> str:
        return f"{self.title}, {self.figure}" if self.figure else self.title

    @property
    def is_headline(self) -> bool:
        return self.figure in _HEADLINES

    @property
    def ratio(self) -> float | None:
        """Above 1 if we are ahead, None if one of the two is missing."""
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


def read_rows(results: dict[str, Any]) -> list[Measured]:
    """In the order of the file, the main figures of a row first."""
    rows = []
    for name, row in results["rows"].items():
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
                )
            )
    return rows


def is_main(figure: str) -> bool:
    return figure in _MAIN


def reason_for(name: str, reasons: dict[str, str]) -> str | None:
    return next((reason for pattern, reason in reasons.items() if fnmatch.fnmatch(name, pattern)), None)


def distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))

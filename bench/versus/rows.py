"""A row of the comparison: one figure, how it is taken, and on what. `taking` takes it."""

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.versus.processes import Rival, Running
from bench.versus.rivals import KAFKA, TAILRACE, WARM_CHECKS
from bench.versus.warmth import WarmUp


class Row(NamedTuple):
    """`measure` is called once a round, with brokers that are warm by such work, unless the row says otherwise.

    It gives one number, or several by name. The names "", "p50", "p99" and "p99.9" are in the row's unit and direction.
    Any other ends with a unit of its own, as in "broker CPU s/GB", and is better if it is lower. Rows that are warmed
    up have to tell their "broker CPU": it is what the warm-up is judged by."""

    name: str  # as `--only` takes it: produce-rf3-lz4
    title: str  # as the page shows it
    section: str
    unit: str
    measure: Callable[[Running, "Effort"], "float | dict[str, float]"]
    brokers: int = 1
    lower_is_better: bool = False
    # On top of the defaults; rows with the same brokers, settings and rivals share one start.
    settings: tuple[tuple[str, str], ...] = tuple(WARM_CHECKS.items())
    # What is measured is the start itself, or would disturb what comes after: each round gets brokers of its own, which
    # have done nothing before.
    fresh: bool = False
    # What warms, where it is not `measure`: a failover is too rare and too long.
    warm_with: "Callable[[Running, Effort], dict[str, float]] | None" = None
    # It is the first of those that share its brokers, alone with them so far, and is taken again after all of them.
    opens: bool = False
    # It leaves its brokers other than it found them, and comes last of those that share them.
    closes: bool = False
    # Its work is done by brokers that have just started: both have figures, and no ratio, since no broker stays so.
    cold: bool = False
    # For rows that last long, or give the same each time.
    rounds_max: int = 99
    rivals: tuple[Rival, ...] = (TAILRACE, KAFKA)
    # What a reader has to know to judge the row, for the page.
    note: str = ""


class Effort(NamedTuple):
    """How long one round takes, how many there are, and what comes before; the page says so."""

    # Long enough that CPU time, which comes in steps of 10 ms, tells one from the next.
    seconds: float = 1.2
    rounds: int = 3
    warm_up: WarmUp = WarmUp()
    # After each round: what a broker does in its background is done, and the other has the machine.
    pause_s: float = 0.2


class Taken(NamedTuple):
    """One round of one row on one rival."""

    row: str
    figure: str  # "" where a row has but one
    rival: str
    round: int
    value: float
    load: float  # the machine's other work meanwhile: cores that neither client nor brokers of this rival kept busy


class Missing(NamedTuple):
    """A row that could not be taken on a rival, or not all of its rounds."""

    row: str
    rival: str
    reason: str
    is_failure: bool


class Summary(NamedTuple):
    median: float
    low: float
    high: float


def summary(values: Sequence[float]) -> Summary:
    return Summary(statistics.median(values), min(values), max(values))

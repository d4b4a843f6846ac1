"""A row of the comparison: one figure, how it is taken, and on what."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from bench.machine import busy_s, own_s, warm_memory
from bench.versus.processes import Rival, Running
from bench.versus.rivals import KAFKA, TAILRACE, WARM_CHECKS

# A pause after each round: what a broker does in its background is done, and the other has the machine.
_PAUSE_S = 0.2
_REASON_CHARACTERS = 500
# Rows in it fill gigabytes of page cache, and are the ones that need memory to be there.
_BULK_UNIT = "MB/s"


class Row(NamedTuple):
    """`measure` is called once a round, with brokers that have done such work before (warm: the JIT has compiled, the
    page cache is recycled) unless the row says otherwise.

    It gives one number, or several by name. The names "", "p50", "p99" and "p99.9" are in the row's unit and direction.
    Any other ends with a unit of its own, as in "broker CPU s/GB", and is better if it is lower."""

    name: str  # as `--only` takes it: produce-rf3-lz4
    title: str  # as the page shows it
    section: str
    unit: str
    measure: Callable[[Running, "Effort"], "float | dict[str, float]"]
    brokers: int = 1
    lower_is_better: bool = False
    # On top of the defaults; rows with the same brokers, settings and rivals share one start.
    settings: tuple[tuple[str, str], ...] = tuple(WARM_CHECKS.items())
    # What is measured is the start itself, or would disturb what comes after: each round gets brokers of its own.
    fresh: bool = False
    # Rounds that do not count come first. Not where a round is rare and long, as a failover is.
    warm: bool = True
    # For rows that last long, or give the same each time.
    rounds_max: int = 99
    rivals: tuple[Rival, ...] = (TAILRACE, KAFKA)
    # What a reader has to know to judge the row, for the page.
    note: str = ""

    @property
    def is_warmed(self) -> bool:
        return self.warm and not self.fresh


class Effort(NamedTuple):
    """How long one round takes, and how many there are; the page says so."""

    seconds: float = 1.5
    rounds: int = 3
    # A JVM is several times slower before it has compiled what it runs: the first row of a section works that long
    # before it counts, the very first of all for as long for each broker, each other one for a round.
    warm_up_s: float = 10.0


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


def take(rows: Sequence[Row], effort: Effort, note: Callable[[str], None]) -> Iterable[Taken | Missing]:
    """In turns. Rows that need the same brokers follow each other; idle rivals stay up beside the one that works."""
    for group in _grouped(rows):
        with ExitStack() as stack:
            places = []
            for rival in group[0].rivals:
                if reason := rival.missing():
                    yield from (Missing(row.name, rival.name, reason, is_failure=False) for row in group)
                else:
                    places.append(stack.enter_context(_Place(rival, group[0])))
            for row in group:
                yield from _take_row(row, places, effort, note)


def _take_row(
    row: Row, places: list["_Place"], effort: Effort, note: Callable[[str], None]
) -> Iterable[Taken | Missing]:
    """A rival on which a round fails is left out of the rest of the row, and starts anew for the next."""
    fit = list(places)
    for number in range(0 if row.is_warmed else 1, min(effort.rounds, row.rounds_max) + 1):
        for place in list(fit):
            try:
                found, load = place.measure(row, effort) if number else place.warm_up(row, effort)
            except Exception as error:
                fit.remove(place)
                reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
                note(f"{row.name}: {place.rival.name}, round {number} failed: {reason}")
                yield Missing(row.name, place.rival.name, reason, is_failure=True)
                continue
            told = ", ".join(f"{name} {value:,.4g}".strip() for name, value in found.items())
            when = f"round {number}" if number else "warm-up"
            note(f"{row.name}: {place.rival.name}, {when}: {told} {row.unit} (other load {load:.1f})")
            if number:
                for figure, value in found.items():
                    yield Taken(row.name, figure, place.rival.name, number, value, load)
            time.sleep(_PAUSE_S)


class _Place:
    """Brokers of one rival, which start when they are first needed, and again after a failure."""

    def __init__(self, rival: Rival, first: Row) -> None:
        self.rival = rival
        self._brokers, self._settings = first.brokers, dict(first.settings)
        self._stack = ExitStack()
        self._running: Running | None = None
        # By section: for how long these brokers have done such work.
        self._worked_s: dict[str, float] = defaultdict(float)

    def __enter__(self) -> "_Place":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def warm_up(self, row: Row, effort: Effort) -> tuple[dict[str, float], float]:
        is_first = not self._worked_s
        wanted_s = effort.warm_up_s * (self._brokers if is_first else 1)
        while True:
            begun = time.perf_counter()
            found = self.measure(row, effort)
            self._worked_s[row.section] += time.perf_counter() - begun
            if self._worked_s[row.section] >= wanted_s:
                return found

    def measure(self, row: Row, effort: Effort) -> tuple[dict[str, float], float]:
        """The figures of one round, and the machine's other work meanwhile."""
        try:
            if self._running is None:
                self._running = self._stack.enter_context(self.rival.running(self._brokers, self._settings))
            if row.is_warmed and row.unit == _BULK_UNIT:
                warm_memory()
            begun, others_s = time.perf_counter(), self._others_s()
            found = row.measure(self._running, effort)
            load = (self._others_s() - others_s) / (time.perf_counter() - begun)
        except BaseException:
            self._stop()
            raise
        if row.fresh:
            self._stop()
        return (found if isinstance(found, dict) else {"": found}), max(0.0, round(load, 2))

    def _others_s(self) -> float:
        assert self._running is not None
        return busy_s() - own_s() - self._running.usage().cpu_s

    def _stop(self) -> None:
        self._stack.close()
        self._running = None
        self._worked_s.clear()


def _grouped(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.brokers, row.settings, row.fresh, row.rivals), []).append(row)
    return list(groups.values())


class Summary(NamedTuple):
    median: float
    low: float
    high: float


def summary(values: Sequence[float]) -> Summary:
    return Summary(statistics.median(values), min(values), max(values))

"""A row of the comparison: one figure, how it is taken, and on what."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from bench.versus.rivals import Rival, Running


class Row(NamedTuple):
    """`measure` is called once a round, with brokers that have done such work before (warm: the JIT has compiled, the
    page cache is recycled) unless the row says that it is cold. It gives one number, or several by name."""

    name: str  # as `--only` takes it: produce-1KB-64KB-rf3
    title: str  # as the page shows it
    section: str
    unit: str
    measure: Callable[[Running, "Effort"], "float | dict[str, float]"]
    brokers: int = 1
    lower_is_better: bool = False
    # On top of the defaults; rows with the same brokers and settings share one start.
    settings: tuple[tuple[str, str], ...] = ()
    # What is measured is the start itself, or leaves the brokers changed: each round gets brokers of its own.
    fresh: bool = False


class Effort(NamedTuple):
    """How long one round takes, and how many there are; the page says so."""

    seconds: float = 3.0
    rounds: int = 3


class Taken(NamedTuple):
    """One round of one row on one rival."""

    row: str
    figure: str  # "" where a row has but one
    rival: str
    round: int
    value: float
    load: float  # the machine's other work: load average of the minute when the round began


def take(rows: Sequence[Row], rivals: Sequence[Rival], effort: Effort, note: Callable[[str], None]) -> Iterable[Taken]:
    """In turns. Rows that need the same brokers follow each other; idle rivals stay up beside the one that works."""
    for (brokers, settings, fresh), group in _grouped(rows):
        if fresh:
            for row in group:
                yield from _take_fresh(row, rivals, effort, note)
            continue
        with ExitStack() as stack:
            running = [stack.enter_context(rival.running(brokers, dict(settings))) for rival in rivals]
            for row in group:
                yield from _take_in_turns(row, running, effort, note)


def _take_in_turns(row: Row, running: list[Running], effort: Effort, note: Callable[[str], None]) -> Iterable[Taken]:
    # The first round warms up and is not told: a JVM is several times slower before it has compiled what it runs.
    for number in range(effort.rounds + 1):
        for subject in running:
            load = os.getloadavg()[0]
            found = row.measure(subject, effort)
            note(f"{row.name}: {subject.name}, round {number}: {found}")
            if number:
                yield from _taken(row, subject.name, number, found, load)
            time.sleep(0.2)


def _take_fresh(row: Row, rivals: Sequence[Rival], effort: Effort, note: Callable[[str], None]) -> Iterable[Taken]:
    for number in range(1, effort.rounds + 1):
        for rival in rivals:
            load = os.getloadavg()[0]
            with rival.running(row.brokers, dict(row.settings)) as subject:
                found = row.measure(subject, effort)
            note(f"{row.name}: {subject.name}, round {number}: {found}")
            yield from _taken(row, subject.name, number, found, load)


def _taken(row: Row, rival: str, number: int, found: float | dict[str, float], load: float) -> Iterable[Taken]:
    for figure, value in (found if isinstance(found, dict) else {"": found}).items():
        yield Taken(row.name, figure, rival, number, value, load)


def _grouped(rows: Sequence[Row]) -> list[tuple[tuple[Any, ...], list[Row]]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.brokers, row.settings, row.fresh), []).append(row)
    return list(groups.items())


class Summary(NamedTuple):
    median: float
    low: float
    high: float


def summary(values: Sequence[float]) -> Summary:
    return Summary(statistics.median(values), min(values), max(values))

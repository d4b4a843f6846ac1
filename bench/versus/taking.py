"""How rows are taken: on every rival, in turns, each after a warm-up by its own work that ends by `warmth`'s rule.

Rows that need the same brokers share them, so that one that comes late finds them warmer than one that is taken alone.
Whether that matters is asked, not assumed: a row that `opens` its brokers is taken again after all the others, and
`take_alone` gives a row brokers that do nothing else.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from bench.machine import busy_s, own_s, warm_memory
from bench.versus.processes import Rival, Running
from bench.versus.rows import Effort, Missing, Row, Taken
from bench.versus.warmth import COST, Piece, Warmed, fell, is_flat

ALONE = "alone"
AFTER_THE_OTHERS = "after the others"
_REASON_CHARACTERS = 500
# Rows in it fill gigabytes of page cache, and are the ones that need memory to be there.
_BULK_UNIT = "MB/s"

Note = Callable[[str], None]


class Found(NamedTuple):
    """All of one row, taken once."""

    row: Row
    when: str  # "" where it counts; ALONE and AFTER_THE_OTHERS are compared with that
    taken: list[Taken]
    missing: list[Missing]
    warmed: list[Warmed]
    took_s: float


def take(rows: Sequence[Row], effort: Effort, note: Note) -> Iterable[Found]:
    """Rows that need the same brokers follow each other; idle rivals stay up beside the one that works."""
    for group in _grouped(rows):
        with ExitStack() as stack:
            places = [stack.enter_context(_Place(rival, group[0])) for rival in group[0].rivals if not rival.missing()]
            for row, when in _in_order(group):
                yield _take_row(row, places, effort, note, when)


def take_alone(rows: Sequence[Row], effort: Effort, note: Note) -> Iterable[Found]:
    """Each with brokers that have done nothing before, and do nothing else."""
    for row in rows:
        for found in take([row], effort, note):
            yield found._replace(when=ALONE)


def _grouped(rows: Sequence[Row]) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.brokers, row.settings, row.fresh, row.rivals), []).append(row)
    return list(groups.values())


def _in_order(group: Sequence[Row]) -> list[tuple[Row, str]]:
    """Whoever opens first, and again before those that close."""
    opening = [row for row in group if row.opens]
    middle = [row for row in group if not row.opens and not row.closes]
    again = [(row, AFTER_THE_OTHERS) for row in opening if middle]
    return [*((row, "") for row in opening + middle), *again, *((row, "") for row in group if row.closes)]


def _take_row(row: Row, places: list["_Place"], effort: Effort, note: Note, when: str) -> Found:
    """A rival on which a round fails is left out of the rest of the row, and starts anew for the next."""
    begun = time.perf_counter()
    absent = [(rival.name, reason) for rival in row.rivals if (reason := rival.missing())]
    missing = [Missing(row.name, name, why, is_failure=False) for name, why in absent]
    fit = list(places)
    warmed: dict[str, Warmed] = {}
    taken: list[Taken] = []

    def do(place: _Place, number: int) -> None:
        try:
            if number:
                figures, load = place.measure(row, effort)
                taken.extend(
                    Taken(row.name, name, place.rival.name, number, value, load) for name, value in figures.items()
                )
                note(f"{_called(row, when)}: {place.rival.name}, round {number}: {_told(figures, row, load)}")
            else:
                warmed[place.rival.name] = place.warm_up(row, effort, note, warmed.get(place.rival.name))
        except Exception as error:
            fit.remove(place)
            reason = f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
            note(f"{_called(row, when)}: {place.rival.name}, round {number} failed: {reason}")
            missing.append(Missing(row.name, place.rival.name, reason, is_failure=True))
        time.sleep(effort.pause_s)

    for attempts_left in reversed(range(1 if row.fresh else effort.warm_up.attempts)):
        taken.clear()
        # All are warm before the first round of any: in a round both have worked about as long ago.
        for number in range(0 if not row.fresh else 1, min(effort.rounds, row.rounds_max) + 1):
            for place in list(fit):
                do(place, number)
        fallen = [each for each in warmed.values() if fell(each.costs, _costs(each, taken), effort.warm_up.fall_max)]
        if not fallen or not attempts_left:
            break
        for each in fallen:
            note(f"{_called(row, when)}: {each.rival} got cheaper in its rounds: they join the warm-up, which goes on")
            warmed[each.rival] = each.joined_by(_costs(each, taken), effort.seconds, effort.warm_up.tolerance)
    took_s = round(time.perf_counter() - begun, 1)
    return Found(row, when, taken, missing, list(warmed.values()), took_s)


def _costs(warmed: Warmed, taken: Sequence[Taken]) -> list[float]:
    """Of its rounds, what the warm-up watched."""
    return [each.value for each in taken if each.rival == warmed.rival and each.figure == warmed.figure]


def _called(row: Row, when: str) -> str:
    return f"{row.name} ({when})" if when else row.name


def _told(figures: dict[str, float], row: Row, load: float) -> str:
    return (
        f"{', '.join(f'{name} {value:,.4g}'.strip() for name, value in figures.items())} {row.unit} (others {load:.1f})"
    )


def _prepare(row: Row) -> None:
    if row.unit == _BULK_UNIT:
        warm_memory()


def _cost_of(row: Row, figures: dict[str, float]) -> str:
    found = [name for name in figures if name.startswith(COST)]
    if len(found) != 1:
        raise RuntimeError(
            f"{row.name} gives {sorted(figures)}; its warm-up needs one figure that begins with {COST!r}"
        )
    return found[0]


class _Place:
    """Brokers of one rival, which start when they are first needed, and again after a failure."""

    def __init__(self, rival: Rival, first: Row) -> None:
        self.rival = rival
        self._brokers, self._settings = first.brokers, dict(first.settings)
        self._stack = ExitStack()
        self._running: Running | None = None

    def __enter__(self) -> "_Place":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def warm_up(self, row: Row, effort: Effort, note: Note, so_far: Warmed | None) -> Warmed:
        """By the row's own work, until it costs the same each time, or for as long as the settings allow."""
        rule = effort.warm_up
        work = row if row.warm_with is None else row._replace(measure=row.warm_with)
        pieces = list(so_far.pieces) if so_far else []
        figure = so_far.figure if so_far else ""
        is_warm = bool(so_far and so_far.is_flat)
        self._start()
        while not is_warm and (not pieces or pieces[-1].ended_s < rule.limit_s(row.brokers)):
            # As before a round: what memory costs is not what the brokers cost.
            _prepare(row)
            begun = time.perf_counter()
            figures, load = self._work(work, effort)
            figure = _cost_of(row, figures)
            ended_s = (pieces[-1].ended_s if pieces else 0.0) + time.perf_counter() - begun
            pieces.append(Piece(round(ended_s, 6), float(f"{figures[figure]:.4g}"), load))
            is_warm = is_flat([piece.cost for piece in pieces], rule.tolerance)
        first, last = pieces[0], pieces[-1]
        told = f"{first.cost:.4g} to {last.cost:.4g}" + ("" if is_warm else ", NOT FLAT")
        note(f"{row.name}: {self.rival.name}, warm-up of {last.ended_s:.0f} s, {len(pieces)} pieces: {figure} {told}")
        return Warmed(row.name, self.rival.name, figure, tuple(pieces), is_warm)

    def measure(self, row: Row, effort: Effort) -> tuple[dict[str, float], float]:
        """The figures of one round, and the machine's other work meanwhile."""
        if not row.fresh:
            _prepare(row)
        return self._work(row, effort)

    def _work(self, row: Row, effort: Effort) -> tuple[dict[str, float], float]:
        try:
            running = self._start()
            begun, others_s = time.perf_counter(), self._others_s()
            found = row.measure(running, effort)
            load = (self._others_s() - others_s) / (time.perf_counter() - begun)
        except BaseException:
            self._stop()
            raise
        if row.fresh:
            self._stop()
        return (found if isinstance(found, dict) else {"": found}), max(0.0, round(load, 2))

    def _start(self) -> Running:
        if self._running is None:
            self._running = self._stack.enter_context(self.rival.running(self._brokers, self._settings))
        return self._running

    def _others_s(self) -> float:
        assert self._running is not None
        return busy_s() - own_s() - self._running.usage().cpu_s

    def _stop(self) -> None:
        self._stack.close()
        self._running = None

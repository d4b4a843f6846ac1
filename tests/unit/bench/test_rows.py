"""Rows of the comparison are taken in turns, after a warm-up that ends by rule, and one that fails takes nothing else
with it."""

import itertools
import time
from pathlib import Path

from bench.versus.processes import Rival, Running
from bench.versus.rows import Effort, Missing, Row
from bench.versus.taking import AFTER_THE_OTHERS, ALONE, Found, take, take_alone
from bench.versus.warmth import WarmUp, fell
from bench.versus.workloads import ROWS, SAMPLE

EFFORT = Effort(seconds=0.0, rounds=2, pause_s=0.0)
# A cost that is the same from the beginning is warm after so many pieces.
PIECES = 6


class Rivals:
    """Two that do nothing, and a diary of what was asked of them."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.both = (Rival("A", "", self._start("A")), Rival("B", "", self._start("B")))

    def row(self, name: str, *, fails_on: str = "", cost=lambda: 3.0, **settings: object) -> Row:
        def measure(running: Running, _effort: Effort) -> dict[str, float]:
            self.diary.append(f"{name} on {running.rival}")
            if running.rival == fails_on:
                raise RuntimeError("it broke")
            return {"": 7.0, "broker CPU us": cost()}

        return Row(name, name, "section", "ms", measure, rivals=self.both, **settings)

    def _start(self, name: str):
        def start(_brokers: int, _settings: dict[str, str], folder: Path) -> Running:
            self.diary.append(f"start {name}")
            return Running(name, {}, {}, 0.0, folder)

        return start


def _take(*rows: Row, how=take) -> list[Found]:
    return list(how(rows, EFFORT, lambda _text: None))


def test_rivals_take_turns_after_a_warm_up_that_does_not_count():
    rivals = Rivals()
    (found,) = _take(rivals.row("one"))
    warm_up = [*["start A", *["one on A"] * PIECES], *["start B", *["one on B"] * PIECES]]
    assert rivals.diary == [*warm_up, *["one on A", "one on B"] * 2]
    assert [(each.rival, each.round, each.value) for each in found.taken if not each.figure] == [
        (rival, number, 7.0) for number in (1, 2) for rival in ("A", "B")
    ]
    assert [(each.rival, each.is_flat, len(each.pieces)) for each in found.warmed] == [
        ("A", True, PIECES),
        ("B", True, PIECES),
    ]


def test_a_warm_up_that_never_gets_flat_ends_all_the_same_and_says_so():
    falling = itertools.count(1)

    def cost() -> float:
        time.sleep(0.001)
        return 0.9 ** next(falling)

    row = Rivals().row("one", cost=cost)
    effort = EFFORT._replace(warm_up=WarmUp(seconds_max=0.05, attempts=1))
    (found,) = take([row], effort, lambda _text: None)
    assert [each.is_flat for each in found.warmed] == [False, False]
    assert found.warmed[0].pieces[-1].ended_s >= effort.warm_up.seconds_max
    assert [each.round for each in found.taken if each.rival == "A" and not each.figure] == [1, 2]


def test_rounds_that_get_cheaper_join_the_warm_up_and_others_are_taken():
    costs = {"A": itertools.repeat(3.0), "B": itertools.chain([9.0] * PIECES, itertools.repeat(4.0))}
    row = (
        Rivals().row("one")._replace(measure=lambda running, _: {"": 7.0, "broker CPU us": next(costs[running.rival])})
    )
    (found,) = _take(row)
    assert [each.value for each in found.taken if each.figure and each.rival == "B"] == [4.0, 4.0]
    steady, fallen = found.warmed
    assert len(steady.pieces) == PIECES
    # Two rounds of 4.0 after six pieces of 9.0 are not flat: it takes as many again.
    assert fallen.costs[: PIECES + EFFORT.rounds] == [9.0] * PIECES + [4.0] * EFFORT.rounds
    assert fallen.is_flat
    assert not fell(fallen.costs, [4.0, 4.0], EFFORT.warm_up.fall_max)


def test_a_row_is_not_taken_for_ever():
    falling = itertools.count(1)
    # It is flat in each warm-up, and cheaper in each round: what no rule of windows sees.
    costs = {"A": itertools.repeat(3.0), "B": (0.5 ** (next(falling) // PIECES) for _ in itertools.count())}
    row = (
        Rivals().row("one")._replace(measure=lambda running, _: {"": 7.0, "broker CPU us": next(costs[running.rival])})
    )
    effort = EFFORT._replace(warm_up=WarmUp(attempts=2, seconds_max=0.05))
    (found,) = take([row], effort, lambda _text: None)
    assert [each.round for each in found.taken if each.rival == "A" and not each.figure] == [1, 2]


def test_a_row_that_does_not_tell_its_cost_fails():
    row = Rivals().row("one")._replace(measure=lambda *_: 7.0)
    (found,) = _take(row)
    assert [each.is_failure for each in found.missing] == [True, True]
    assert "broker CPU" in found.missing[0].reason


def test_other_work_may_warm():
    rivals = Rivals()
    row = rivals.row("one")
    _take(row._replace(warm_with=rivals.row("other").measure))
    assert rivals.diary.count("other on A") == PIECES
    assert rivals.diary.count("one on A") == EFFORT.rounds


def test_rows_with_the_same_needs_share_brokers():
    rivals = Rivals()
    _take(rivals.row("one"), rivals.row("other", brokers=3), rivals.row("two"))
    assert [line for line in rivals.diary if line.startswith("start")] == ["start A", "start B"] * 2
    assert rivals.diary.index("two on A") < rivals.diary.index("other on A")


def test_whoever_opens_comes_first_and_again_and_whoever_closes_comes_last():
    rivals = Rivals()
    found = _take(rivals.row("last", closes=True), rivals.row("one"), rivals.row("first", opens=True))
    assert [(each.row.name, each.when) for each in found] == [
        ("first", ""),
        ("one", ""),
        ("first", AFTER_THE_OTHERS),
        ("last", ""),
    ]


def test_whoever_opens_and_has_no_others_is_not_taken_again():
    assert [each.when for each in _take(Rivals().row("first", opens=True))] == [""]


def test_alone_means_brokers_of_its_own():
    rivals = Rivals()
    found = _take(rivals.row("one"), rivals.row("two"), how=take_alone)
    assert [each.when for each in found] == [ALONE, ALONE]
    assert rivals.diary.count("start A") == 2


def test_fresh_rows_get_brokers_of_their_own_in_each_round_and_no_warm_up():
    rivals = Rivals()
    found = _take(rivals.row("one", fresh=True, rounds_max=1), rivals.row("two", fresh=True))
    assert rivals.diary.count("start A") == 1 + EFFORT.rounds
    assert rivals.diary.count("two on A") == EFFORT.rounds
    assert not any(each.warmed for each in found)


def test_a_failure_is_told_and_its_rival_starts_anew_for_the_next_row():
    rivals = Rivals()
    one, two = _take(rivals.row("one", fails_on="B"), rivals.row("two"))
    assert one.missing == [Missing("one", "B", "RuntimeError: it broke", True)]
    assert [each.rival for each in one.taken if not each.figure] == ["A"] * EFFORT.rounds
    assert not two.missing
    assert rivals.diary.count("one on B") == 1
    assert rivals.diary.count("start A") == 1
    assert rivals.diary.count("start B") == 2


def test_a_rival_that_is_not_there_is_left_out_with_the_reason():
    rivals = Rivals()
    absent = Rival("C", "", rivals.both[0].start, ("no-such-program",), "buy it")
    (found,) = _take(rivals.row("one")._replace(rivals=(rivals.both[0], absent)))
    assert found.missing == [Missing("one", "C", "no no-such-program on PATH; buy it", False)]


def test_every_row_has_a_name_of_its_own():
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


def test_rows_to_take_alone_are_warmed_and_come_late():
    rows = {row.name: row for row in ROWS}
    assert all(not rows[name].fresh and not rows[name].opens for name in SAMPLE)


def test_rows_of_brokers_that_just_started_say_so():
    cold = [row for row in ROWS if row.cold]
    assert cold
    assert all(row.fresh and "just started" in row.title and row.note for row in cold)
    # Work on fresh brokers is cold work: what is left measures the start or memory, and no speed.
    assert {row.unit for row in ROWS if row.fresh and not row.cold} <= {"s", "MB", "KB"}

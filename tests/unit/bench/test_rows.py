"""Rows of the comparison are taken in turns, after a warm-up, and one that fails takes nothing else with it."""

from pathlib import Path

from bench.versus.processes import Rival, Running
from bench.versus.rows import Effort, Missing, Row, Taken, take
from bench.versus.workloads import ROWS

EFFORT = Effort(seconds=0.0, rounds=2, warm_up_s=0.0)


class Rivals:
    """Two that do nothing, and a diary of what was asked of them."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.both = (Rival("A", "", self._start("A")), Rival("B", "", self._start("B")))

    def row(self, name: str, *, fails_on: str = "", **settings: object) -> Row:
        def measure(running: Running, _effort: Effort) -> float:
            self.diary.append(f"{name} on {running.rival}")
            if running.rival == fails_on:
                raise RuntimeError("it broke")
            return 7.0

        return Row(name, name, "section", "MB/s", measure, rivals=self.both, **settings)

    def _start(self, name: str):
        def start(_brokers: int, _settings: dict[str, str], folder: Path) -> Running:
            self.diary.append(f"start {name}")
            return Running(name, {}, {}, 0.0, folder)

        return start


def _take(*rows: Row) -> list[Taken | Missing]:
    return list(take(rows, EFFORT, lambda _text: None))


def test_rivals_take_turns_after_a_round_that_does_not_count():
    rivals = Rivals()
    taken = _take(rivals.row("one"))
    assert rivals.diary == ["start A", "one on A", "start B", "one on B", *["one on A", "one on B"] * 2]
    assert [(each.rival, each.round, each.value) for each in taken] == [
        (rival, number, 7.0) for number in (1, 2) for rival in ("A", "B")
    ]


def test_rows_with_the_same_needs_share_brokers():
    rivals = Rivals()
    _take(rivals.row("one"), rivals.row("other", brokers=3), rivals.row("two"))
    assert [line for line in rivals.diary if line.startswith("start")] == ["start A", "start B"] * 2
    assert rivals.diary.index("two on A") < rivals.diary.index("other on A")


def test_fresh_rows_get_brokers_of_their_own_in_each_round():
    rivals = Rivals()
    _take(rivals.row("one", fresh=True, rounds_max=1), rivals.row("two", fresh=True))
    assert rivals.diary.count("start A") == 1 + EFFORT.rounds
    assert rivals.diary.count("two on A") == EFFORT.rounds


def test_a_failure_is_told_and_its_rival_starts_anew_for_the_next_row():
    rivals = Rivals()
    taken = _take(rivals.row("one", fails_on="B"), rivals.row("two"))
    assert [each for each in taken if isinstance(each, Missing)] == [
        Missing("one", "B", "RuntimeError: it broke", True)
    ]
    assert [each.rival for each in taken if each.row == "one" and isinstance(each, Taken)] == ["A"] * EFFORT.rounds
    assert rivals.diary.count("one on B") == 1
    assert rivals.diary.count("start A") == 1
    assert rivals.diary.count("start B") == 2


def test_a_rival_that_is_not_there_is_left_out_with_the_reason():
    rivals = Rivals()
    absent = Rival("C", "", rivals.both[0].start, ("no-such-program",), "buy it")
    row = rivals.row("one")._replace(rivals=(rivals.both[0], absent))
    missing = [each for each in _take(row) if isinstance(each, Missing)]
    assert missing == [Missing("one", "C", "no no-such-program on PATH; buy it", False)]


def test_every_row_has_a_name_of_its_own():
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))

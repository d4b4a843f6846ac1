"""`python -m bench.versus [--only NAME ...] [--alone]`: takes the rows, and writes results.json."""

import argparse
import fnmatch
import json
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.interpreter import interpreter
from bench.machine import commit, machine
from bench.versus.results import judge
from bench.versus.rivals import KAFKA
from bench.versus.rows import Effort, Row
from bench.versus.taking import Found, take, take_alone
from bench.versus.warmth import Warmed, WarmUp
from bench.versus.workloads import ROWS, SAMPLE

RESULTS = Path(__file__).with_name("results.json")


def main() -> int:
    options = _parse()
    wanted = options.only or (SAMPLE if options.alone else ("*",))
    rows = [row for row in ROWS if any(fnmatch.fnmatch(row.name, pattern) for pattern in wanted)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        _say(f"no row is called {' or '.join(wanted)}; --list shows them all")
        return 2
    if reason := KAFKA.missing():
        _say(f"there is nothing to compare with: {reason}")
        return 2
    # Whoever ends it ends the brokers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    warm_up = WarmUp()._replace(tolerance=options.flat, seconds_max=options.warm_up)
    warm_up = warm_up._replace(seconds_max_of_cluster=2 * options.warm_up)
    results = Results(options.results, Effort(options.seconds, options.rounds, warm_up))
    _warn(results)
    begun = time.perf_counter()
    has_failed = False
    for found in (take_alone if options.alone else take)(rows, results.effort, _say):
        results.add(found)
        for each in found.missing:
            has_failed |= each.is_failure
            _say(f"not taken: {each.row} on {each.rival}: {each.reason}")
    for name, reasons in results.invalid().items():
        _say(f"not valid: {name}: {'; '.join(reasons)}")
    _say(f"{len(rows)} rows in {(time.perf_counter() - begun) / 60:.1f} minutes; figures in {options.results}")
    return 1 if has_failed else 0


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def _warn(results: "Results") -> None:
    python = results.python
    if not (python["pgo"] and python["lto"]):
        _say(
            f"this is {python['told']}: brokers are slower by it than with the Python of most users; "
            "use an optimized one: make bench-kafka VENV=.venv-other PYTHON=/usr/bin/python3"
        )
    if others := results.of_other_commits():
        _say(f"{len(others)} rows of {results.file} are of other commits, and stay if not taken now: {others[0]} ...")


def _parse() -> argparse.Namespace:
    default, warm_up = Effort(), WarmUp()
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description="Tailrace beside Apache Kafka.")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="rows to take; * and ? stand for more")
    parser.add_argument(
        "--alone",
        action="store_true",
        help=f"take rows (default: {' '.join(SAMPLE)}) with brokers that do nothing else, and compare the ratios",
    )
    parser.add_argument("--list", action="store_true", help="show the names of the rows, and do no more")
    parser.add_argument("--seconds", type=float, default=default.seconds, help="length of a round")
    parser.add_argument("--rounds", type=int, default=default.rounds, help="rounds of which the median is told")
    parser.add_argument(
        "--warm-up",
        type=float,
        default=warm_up.seconds_max,
        metavar="SECONDS",
        help=f"whoever is not warm by then makes the row invalid; twice that for three ({warm_up.seconds_max:g})",
    )
    parser.add_argument(
        "--flat",
        type=float,
        default=warm_up.tolerance,
        metavar="SHARE",
        help=f"warm is who costs the same in three windows, give or take ({warm_up.tolerance:g})",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"where to write (default: {RESULTS.name})")
    return parser.parse_args()


class Results:
    """The file. Rows that are not taken now stay as they are, each with the commit and Python that it was taken on."""

    def __init__(self, file: Path, effort: Effort) -> None:
        self.file = file
        self.effort = effort
        self.python = interpreter()
        self._commit = commit()
        rivals = dict.fromkeys(rival for row in ROWS for rival in row.rivals)
        self._rivals = {rival.name: rival.description for rival in rivals}
        self._rows: dict[str, Any] = json.loads(file.read_text())["rows"] if file.exists() else {}

    def add(self, found: Found) -> None:
        """Written as it goes: whoever stops a long run has what was taken."""
        name = found.row.name
        if not found.when:
            self._rows[name] = self._head(found.row) | _body(found)
        elif name in self._rows:
            again = {found.when: _body(found) | {"commit": self._commit}}
            self._rows[name]["again"] = self._rows[name]["again"] | again
        else:
            _say(f"{name} has not been taken with the others yet: there is nothing to compare with")
            return
        self._rows[name]["invalid"] = judge(self._rows[name])
        self._write()

    def invalid(self) -> dict[str, Sequence[str]]:
        return {name: row["invalid"] for name, row in self._rows.items() if row["invalid"]}

    def of_other_commits(self) -> list[str]:
        return [name for name, row in self._rows.items() if row["commit"] != self._commit]

    def _write(self) -> None:
        in_order = {row.name: self._rows[row.name] for row in ROWS if row.name in self._rows}
        head = json.dumps({"machine": machine(), "python": self.python, "rivals": self._rivals})
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in in_order.items())
        # A line for each row: whoever takes one again changes one line.
        self.file.write_text(f'{head[:-1]}, "rows": {{\n{rows}\n}}}}\n')

    def _head(self, row: Row) -> dict[str, Any]:
        return {
            "title": row.title,
            "section": row.section,
            "unit": row.unit,
            "lower_is_better": row.lower_is_better,
            "brokers": row.brokers,
            "settings": dict(row.settings),
            "note": row.note,
            "cold": row.cold,
            "commit": self._commit,
            "python": self.python["told"],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": self.effort.seconds,
            "rounds": min(self.effort.rounds, row.rounds_max),
            "rule": self.effort.warm_up._asdict(),
            "again": {},
        }


def _body(found: Found) -> dict[str, Any]:
    return {
        "taken": [{name: value for name, value in each._asdict().items() if name != "row"} for each in found.taken],
        "missing": {each.rival: each.reason for each in found.missing},
        "warm_up": {each.rival: _curve(each) for each in found.warmed},
        "took_s": found.took_s,
    }


def _curve(warmed: Warmed) -> dict[str, Any]:
    return {"figure": warmed.figure, "is_flat": warmed.is_flat, "pieces": [list(piece) for piece in warmed.pieces]}


if __name__ == "__main__":
    sys.exit(main())

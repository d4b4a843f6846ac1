"""`python -m bench.versus [--only NAME ...]`: takes the rows, and writes results.json."""

import argparse
import fnmatch
import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine import commit, machine
from bench.versus.rivals import KAFKA
from bench.versus.rows import Effort, Missing, Row, Taken, take
from bench.versus.workloads import ROWS

RESULTS = Path(__file__).with_name("results.json")


def main() -> int:
    options = _parse()
    rows = [row for row in ROWS if any(fnmatch.fnmatch(row.name, wanted) for wanted in options.only)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        _say(f"no row is called {' or '.join(options.only)}; --list shows them all")
        return 2
    if reason := KAFKA.missing():
        _say(f"there is nothing to compare with: {reason}")
        return 2
    # Whoever ends it ends the brokers too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    results = _Results(options.results, Effort(options.seconds, options.rounds, options.warm_up))
    begun = time.perf_counter()
    missing: list[Missing] = []
    for each in take(rows, results.effort, _say):
        results.add(each)
        if isinstance(each, Missing):
            missing.append(each)
    for each in missing:
        _say(f"not taken: {each.row} on {each.rival}: {each.reason}")
    _say(f"{len(rows)} rows in {(time.perf_counter() - begun) / 60:.1f} minutes; figures in {options.results}")
    return 1 if any(each.is_failure for each in missing) else 0


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description="Tailrace beside Apache Kafka.")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="rows to take; * and ? stand for more")
    parser.add_argument("--list", action="store_true", help="show the names of the rows, and do no more")
    parser.add_argument("--seconds", type=float, default=Effort().seconds, help="length of a round")
    parser.add_argument("--rounds", type=int, default=Effort().rounds, help="rounds of which the median is told")
    parser.add_argument("--warm-up", type=float, default=Effort().warm_up_s, help="seconds before a section counts")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"where to write (default: {RESULTS.name})")
    return parser.parse_args()


class _Results:
    """The file. Rows that are not taken now stay as they are, each with the commit that it was taken on."""

    def __init__(self, file: Path, effort: Effort) -> None:
        self.effort = effort
        self._file = file
        self._commit = commit()
        rivals = dict.fromkeys(rival for row in ROWS for rival in row.rivals)
        self._rivals = {rival.name: rival.description for rival in rivals}
        self._rows: dict[str, Any] = json.loads(file.read_text())["rows"] if file.exists() else {}
        self._begun: set[str] = set()

    def add(self, each: Taken | Missing) -> None:
        """Written as it goes: whoever stops a long run has what was taken."""
        if each.row not in self._begun:
            self._begun.add(each.row)
            self._rows[each.row] = self._head(next(row for row in ROWS if row.name == each.row))
        if isinstance(each, Taken):
            self._rows[each.row]["taken"].append({n: value for n, value in each._asdict().items() if n != "row"})
        else:
            self._rows[each.row]["missing"][each.rival] = each.reason
        in_order = {row.name: self._rows[row.name] for row in ROWS if row.name in self._rows}
        head = json.dumps({"machine": machine(), "rivals": self._rivals})
        rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in in_order.items())
        # A line for each row: whoever takes one again changes one line.
        self._file.write_text(f'{head[:-1]}, "rows": {{\n{rows}\n}}}}\n')

    def _head(self, row: Row) -> dict[str, Any]:
        return {
            "title": row.title,
            "section": row.section,
            "unit": row.unit,
            "lower_is_better": row.lower_is_better,
            "brokers": row.brokers,
            "settings": dict(row.settings),
            "note": row.note,
            "commit": self._commit,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": self.effort.seconds,
            "rounds": min(self.effort.rounds, row.rounds_max),
            "taken": [],
            "missing": {},
        }


if __name__ == "__main__":
    sys.exit(main())

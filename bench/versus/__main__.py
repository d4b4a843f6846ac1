"""`python -m bench.versus [--only NAME ...]`: takes the rows, and writes results.json."""

import argparse
import fnmatch
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from bench.machine import commit, machine
from bench.versus.rivals import KAFKA, TAILRACE
from bench.versus.rows import Effort, Taken, take
from bench.versus.workloads import ROWS

RESULTS = Path(__file__).with_name("results.json")


def main() -> int:
    options = _parse()
    rows = [row for row in ROWS if any(fnmatch.fnmatch(row.name, wanted) for wanted in options.only)]
    if options.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        print(f"no row is called {' or '.join(options.only)}; --list shows them all", file=sys.stderr)
        return 2
    effort = Effort(options.seconds, options.rounds)
    taken: list[Taken] = []
    for each in take(rows, (TAILRACE, KAFKA), effort, lambda text: print(text, file=sys.stderr, flush=True)):
        taken.append(each)
        # Written as it goes: whoever stops a long run has what was taken.
        _store(options.results, taken, effort)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.versus", description="Tailrace beside Apache Kafka.")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="rows to take; * and ? stand for more")
    parser.add_argument("--list", action="store_true", help="show the names of the rows, and do no more")
    parser.add_argument("--seconds", type=float, default=Effort().seconds, help="length of a round")
    parser.add_argument("--rounds", type=int, default=Effort().rounds, help="rounds of which the median is told")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"where to write (default: {RESULTS.name})")
    return parser.parse_args()


def _store(file: Path, taken: list[Taken], effort: Effort) -> None:
    """Rows that were not taken now stay as they are, each with the commit that it was taken on."""
    kept = json.loads(file.read_text())["rows"] if file.exists() else {}
    head = {"commit": commit(), "date": datetime.now(UTC).isoformat(timespec="seconds"), **effort._asdict()}
    for row in {each.row for each in taken}:
        rounds = [each._asdict() for each in taken if each.row == row]
        kept[row] = head | {"taken": [{name: r[name] for name in r if name != "row"} for r in rounds]}
    file.write_text(json.dumps({"machine": machine(), "rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

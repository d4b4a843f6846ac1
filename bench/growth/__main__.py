"""`python -m bench.growth`: takes the dimensions, and writes growth.json."""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.growth.dimensions import DIMENSIONS, Dimension
from bench.interpreter import interpreter
from bench.machine import commit, machine
from bench.measures import Plan

RESULTS = Path(__file__).with_name("growth.json")


def main() -> int:
    options = _parse()
    plan = Plan(options.seconds, options.rounds)
    for name in options.only:
        dimension = DIMENSIONS[name]
        head = _head(dimension, options)
        points: list[dict[str, Any]] = []
        for x, figures in dimension.measure(plan):
            rounded = {figure: float(f"{value:.4g}") for figure, value in figures.items()}
            print(f"{name} {x:,}: {rounded}", file=sys.stderr, flush=True)
            points.append({"x": x, "figures": rounded})
        _store(options.results, name, head | {"points": points})
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="How a broker's cost grows.")
    names = list(DIMENSIONS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="what to let grow")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of one round (default 1.5)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the median is told (default 3)")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"where to write (default: {RESULTS.name})")
    return parser.parse_args()


def _head(dimension: Dimension, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "title": dimension.title,
        "over": dimension.over,
        "charts": dimension.charts,
        "commit": commit(),
        "python": interpreter()["told"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": options.seconds,
        "rounds": options.rounds,
        "load": round(os.getloadavg()[0], 2),
    }


def _store(file: Path, name: str, taken: dict[str, Any]) -> None:
    """Dimensions that were not taken now stay as they are."""
    kept = json.loads(file.read_text())["dimensions"] if file.exists() else {}
    kept[name] = taken
    in_order = {each: kept[each] for each in DIMENSIONS if each in kept}
    file.write_text(json.dumps({"machine": machine(), "dimensions": in_order}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bench`: measures, prints a table, appends one line to bench/results.jsonl."""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.authorizer import authorizer
from bench.cluster import cluster
from bench.decode import decode
from bench.encode import encoding
from bench.groups import groups
from bench.interpreter import interpreter
from bench.machine import commit, machine
from bench.measures import Figure, Plan, all_figures
from bench.transactions import transactions

GROUPS = (
    "start",
    "latency",
    "requests",
    "batches",
    "throughput",
    "cold",
    "groups",
    "transactions",
    "cluster",
    "decode",
    "encode",
    "authorizer",
    "spark",
)
# Spark takes minutes and needs Java: it is measured where it is asked for.
DEFAULT_GROUPS = tuple(group for group in GROUPS if group != "spark")
RESULTS = Path(__file__).parent / "results.jsonl"


def main() -> int:
    options = _parse()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"this machine is busy (load {load:.1f}): the figures will be lower than they could be", file=sys.stderr)
    plan = Plan(options.seconds, options.rounds)
    alone = set(options.only) - {"groups", "transactions", "cluster", "decode", "encode", "authorizer", "spark"}
    figures = all_figures(plan, alone) if alone else []
    if "groups" in options.only:
        figures += groups(plan)
    if "transactions" in options.only:
        figures += transactions(plan)
    if "cluster" in options.only:
        figures += cluster(plan)
    if "decode" in options.only:
        figures += decode(plan)
    if "encode" in options.only:
        figures += encoding(plan)
    if "authorizer" in options.only:
        figures += authorizer(plan)
    if "spark" in options.only:
        from bench.spark import spark  # Starts a JVM.

        figures += spark(plan)
    _print(figures)
    if not options.no_record:
        with RESULTS.open("a") as results:
            results.write(json.dumps(_line(figures, options) | {"load_before": round(load, 2)}) + "\n")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the broker on this machine.")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=DEFAULT_GROUPS, help="groups of measures")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one round (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of which the median is told (default 3)")
    parser.add_argument("--no-record", action="store_true", help=f"do not append to {RESULTS.name}")
    return parser.parse_args()


def _print(figures: list[Figure]) -> None:
    table = Table(title="Tailrace on this machine, client included")
    table.add_column("measure")
    for heading in ("value", "goal", "to goal", "baseline", "to baseline"):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(
            figure.name,
            f"{_number(figure.value)} {figure.unit}",
            _number(figure.goal),
            _ratio(figure.to_goal),
            f"{_number(figure.baseline)} {figure.baseline_name}".strip(),
            _ratio(figure.to_baseline),
        )
    # A pipe has no width of its own; the table must not be cut there.
    Console(width=None if sys.stdout.isatty() else 170).print(table)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _line(figures: list[Figure], options: argparse.Namespace) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "python": interpreter()["told"],
        "seconds": options.seconds,
        "rounds": options.rounds,
        "figures": [
            {
                "name": figure.name,
                "value": round(figure.value, 3),
                "unit": figure.unit,
                "goal": figure.goal,
                "baseline": None if figure.baseline is None else round(figure.baseline, 3),
                "baseline_name": figure.baseline_name,
            }
            for figure in figures
        ],
    }


if __name__ == "__main__":
    sys.exit(main())

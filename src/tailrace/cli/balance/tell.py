"""A plan as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tailrace.balance.plan.picture import WORDS, Plan, Spread, seconds_for
from tailrace.cli.output import count_text, print_rows

# In the table; --json has all of them.
_SHOWN_MAX = 50


def plan_facts(plan: Plan, *, rate: int) -> dict[str, Any]:
    return {
        "moves": [
            {
                "topic": move.partition.topic,
                "partition": move.partition.partition,
                "from": list(move.old),
                "to": list(move.new),
                "bytes": move.size_bytes,
                "reason": move.reason,
            }
            for move in plan.moves
        ],
        "bytes": plan.size_bytes,
        "seconds": round(seconds_for(plan.moves, rate), 1),
        "before": _spread_facts(plan.before),
        "after": _spread_facts(plan.after),
        "problems": list(plan.problems),
        "remarks": list(plan.remarks),
    }


def _spread_facts(spreads: Iterable[Spread]) -> dict[str, float]:
    return {WORDS[spread.resource].replace(" ", "_"): round(spread.worst, 4) for spread in spreads}


def print_plan(plan: Plan, *, rate: int) -> None:
    print_rows(
        ("partition", "from", "to", "bytes", "reason"),
        [
            (str(move.partition), move.old, move.new, f"{move.size_bytes:,}", move.reason)
            for move in plan.moves[:_SHOWN_MAX]
        ],
    )
    if len(plan.moves) > _SHOWN_MAX:
        print(f"and {len(plan.moves) - _SHOWN_MAX:,} more: --json shows them all")
    after = {spread.resource: spread for spread in plan.after}
    print_rows(
        ("from even", "now", "then"),
        [
            (WORDS[spread.resource], f"{spread.worst:.1%}", f"{after[spread.resource].worst:.1%}")
            for spread in plan.before
            if spread.resource in after
        ],
    )
    print(
        f"{count_text(len(plan.moves), 'move')}, {plan.size_bytes:,} bytes to copy, "
        f"{seconds_for(plan.moves, rate):,.0f} s at {rate:,} bytes a second"
    )
    for line in plan.remarks:
        print(line)
    for line in plan.problems:
        print(f"cannot be done: {line}")

"""Looks after a table once, in a process that a test kills: for test_struck.

    python -m tests.spark.maintaining SINK

SINK is a TableSink as JSON. Nothing is kept because it is young.
"""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from tailrace.spark.pipelines import TableSink
from tailrace.spark.pipelines.landing.batches import Limits, lake_table


def everything() -> Limits:
    now = datetime.now(UTC)
    return Limits(1 << 20, now, now)


def main(arguments: Sequence[str]) -> None:
    (text,) = arguments
    declared = {name: tuple(value) if isinstance(value, list) else value for name, value in json.loads(text).items()}
    table = lake_table(TableSink(**declared))
    print("begins", flush=True)
    table.maintain(everything())


if __name__ == "__main__":
    main(sys.argv[1:])

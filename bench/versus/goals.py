"""What Tailrace wants to be beside Apache Kafka, on a small machine: ratios, in which above 1 is ahead."""

import fnmatch
from typing import NamedTuple

from bench.versus.results import Measured, is_main

# A row below it has to have its reason found and written down.
FLOOR = 0.8


class Goal(NamedTuple):
    title: str
    ratio: float
    rows: tuple[str, ...]
    figures: tuple[str, ...] = ("",)

    def covers(self, row: Measured) -> bool:
        is_meant = any(fnmatch.fnmatch(row.name, pattern) for pattern in self.rows)
        return is_meant and (row.figure in self.figures if self.figures else is_main(row.figure))


GOALS = (
    Goal("produce and consume: 1x", 1.0, ("produce-*", "consume-*")),
    # All but the row with acks=1.
    Goal("produce, three replicas, acks=all: 2x", 2.0, ("produce-rf3-[!a]*",)),
    Goal("p99 at 20,000 messages a second: 1/2 of the time", 2.0, ("ack-*-20k", "end-to-end-*-20k"), ("p99",)),
    Goal("start: 1/5 of the time", 5.0, ("start-*",)),
    Goal("memory, idle: 1/5", 5.0, ("start-*",), ("memory, idle MB",)),
    Goal("memory, under load: 1/5", 5.0, ("memory-*",)),
    Goal("failover: 1/2 of the time", 2.0, ("failover-*",)),
    Goal(f"every row: {FLOOR:g}x, or its reason", FLOOR, ("*",), ()),
)

"""What an application tells of itself: numbers since it began, what is stuck, how far behind it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.model.ids import TopicPartition


@dataclass(slots=True)
class Counts:
    """`handled` are records that are done with, whatever became of them; the others say what did."""

    handled: int = 0
    failed_attempts: int = 0
    retried: int = 0
    buried: int = 0
    skipped: int = 0  # another group's retries, and events that were seen before
    committed: int = 0


@dataclass(frozen=True)
class Running:
    """A handler at work."""

    partition: TopicPartition
    offset: int
    running_ms: int


@dataclass(frozen=True)
class Status:
    """Of one handler."""

    name: str
    group: str
    counts: Counts
    assignment: Sequence[TopicPartition] = ()
    # Handlers that have run for longer than `slow_handler_ms`, the longest first.
    slow: Sequence[Running] = ()
    last_error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "handler": self.name,
            "group": self.group,
            "assignment": [str(partition) for partition in self.assignment],
            "slow": [
                {"partition": str(each.partition), "offset": each.offset, "running_ms": each.running_ms}
                for each in self.slow
            ],
            "last_error": self.last_error,
            **{name: getattr(self.counts, name) for name in Counts.__slots__},
        }

"""What share groups promise of records: each is delivered, and none once it is known to be done with.

A record is done with when a member was told that its accept or reject counts. A delivery that was on its way before
that, and was seen later, has a lower count than the one that was settled, and says nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.verify.events import Value
from tailrace.verify.facts import Attempt
from tailrace.verify.findings import Findings, quoted

ENDS = ("accept", "reject")
SAYINGS = (*ENDS, "release")
Place = tuple[str, int]  # Partition and offset.


class Delivery(NamedTuple):
    process: str
    line: int
    delivery_count: int  # 0: not known.


class Settlement(NamedTuple):
    process: str
    line: int
    saying: str
    delivery_count: int


class QueueDrain(NamedTuple):
    group: str
    line: int
    partitions: frozenset[str] | None  # None: all.


class Queues:
    """All share groups of a history."""

    def __init__(self, findings: Findings) -> None:
        self.drains: list[QueueDrain] = []
        self.deliveries = 0
        self._findings = findings
        self._taken: dict[str, dict[Place, Delivery]] = {}
        self._values: dict[str, set[Value]] = {}
        self._settled: dict[str, dict[Place, Settlement]] = {}

    def take(self, group: str, place: Place, value: Value, delivery: Delivery) -> None:
        self.deliveries += 1
        settled = self._settled.get(group, {}).get(place)
        if settled is not None and not 0 < delivery.delivery_count < settled.delivery_count:
            self._findings.add(
                "taken-again",
                delivery.line,
                f"{quoted(value)} at offset {place[1]} of {place[0]} went to process {delivery.process} of group "
                f"{group} (line {delivery.line}), after process {settled.process} was told that its {settled.saying} "
                f"counts (line {settled.line})",
            )
        elif (before := self._taken.get(group, {}).get(place)) is not None:
            self._findings.add(
                "redelivered",
                delivery.line,
                f"{quoted(value)} of {place[0]} went to process {before.process} (line {before.line}) and to process "
                f"{delivery.process} (line {delivery.line}) of group {group}",
            )
        self._taken.setdefault(group, {})[place] = delivery
        self._values.setdefault(group, set()).add(value)

    def settle(self, group: str, place: Place, saying: str, process: str, line: int) -> None:
        """The member was told that what it has said counts."""
        if saying not in ENDS:
            return
        known = self._settled.setdefault(group, {})
        before = known.get(place)
        if before is not None:
            self._findings.add(
                "settled-twice",
                line,
                f"offset {place[1]} of {place[0]} was done with by process {before.process} (line {before.line}), and "
                f"again by process {process} (line {line}) of group {group}",
            )
            return
        taken = self._taken.get(group, {}).get(place)
        known[place] = Settlement(process, line, saying, 0 if taken is None else taken.delivery_count)

    def check(self, attempts: list[Attempt]) -> None:
        """Once all is known: what should have been delivered before a drain, and was not."""
        for drain in self.drains:
            values = self._values.get(drain.group, set())
            for attempt in attempts:
                partition = attempt.partition
                is_meant = partition is not None and (drain.partitions is None or partition.name in drain.partitions)
                if is_meant and 0 < attempt.committed_line < drain.line and attempt.value not in values:
                    self._findings.add(
                        "untaken",
                        drain.line,
                        f"process {attempt.process} sent {quoted(attempt.value)} (line {attempt.line}, acknowledged), "
                        f"and no member of group {drain.group} was given it before the queue was empty "
                        f"(line {drain.line})",
                    )

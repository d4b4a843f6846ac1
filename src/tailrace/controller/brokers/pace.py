"""How fast partitions may be rewritten because brokers come and go: a bound on changes a second, as a debt.

Every partition change that this controller decides adds to the debt, whoever asked for it. Nobody who needs a change
waits: a broker that falls silent for the first time in a while, one that is dead, or one that a partition needs. What
waits until the debt is paid is what can start over and over by itself, on machines that are too slow for it:

    a broker that has been silent before   is fenced later, and let in later
    leaders that are out of balance        go back to their preferred replicas later

Soft state of the active controller; times are those of its patient clock, in milliseconds.
"""

from collections.abc import Iterable

from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tailrace.wire.schema import Message


class Pace:
    def __init__(self, records_per_second: int) -> None:
        self._records_per_ms = records_per_second / 1000
        self._paid_ms = 0.0  # When the debt is paid.

    def spend(self, records: Iterable[Message], now_ms: float) -> None:
        count = sum(1 for record in records if isinstance(record, PartitionChangeRecord))
        if count:
            self._paid_ms = max(self._paid_ms, now_ms) + count / self._records_per_ms

    def wait_ms(self, now_ms: float) -> float:
        """How long what can wait has to; 0 if there is no debt."""
        return max(0.0, self._paid_ms - now_ms)

"""What a history is made of: partitions with what was read of them, sends, transactions, processes.

Plain data with its invariants; `history` fills it in, the checks look at it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from tailrace.verify.events import Value


class Outcome(Enum):
    OK = "ok"
    FAIL = "fail"  # It had no effect, and will have none.
    INFO = "info"  # Unknown.


class Read:
    """What readers found at one offset. The first of all reads, and the first at read_committed, are remembered."""

    __slots__ = ("committed_line", "committed_process", "line", "process", "value")

    def __init__(self, value: Value, process: str, line: int) -> None:
        self.value = value
        self.process = process
        self.line = line
        self.committed_process = ""
        self.committed_line = 0  # 0: nobody has read it at read_committed.


class Span:
    """What one consumer read of one partition while it kept its position: offsets that ascend."""

    __slots__ = ("is_committed", "line", "offsets", "process")

    def __init__(self, process: str, is_committed: bool, offset: int, line: int) -> None:
        self.process = process
        self.is_committed = is_committed
        self.offsets = array("q", (offset,))
        self.line = line  # The line of the last poll.


class Partition:
    __slots__ = ("acknowledged", "name", "reads", "spans")

    def __init__(self, name: str) -> None:
        self.name = name
        self.reads: dict[int, Read] = {}
        self.spans: list[Span] = []
        self.acknowledged: list[Attempt] = []  # In the order of their answers; all have an offset.


class Transaction:
    __slots__ = (
        "aborted_line",
        "commit_line",
        "inputs",
        "line",
        "outcome",
        "outcome_line",
        "process",
        "seen",
        "with_offsets",
    )

    def __init__(self, process: str, line: int) -> None:
        self.process = process
        self.line = line
        self.commit_line = 0  # The line of the first request to commit that was not refused; 0: none.
        # OK: committed. FAIL: no request to commit can have had an effect. INFO: it may be either.
        self.outcome = Outcome.FAIL
        self.outcome_line = 0  # Where it was known to be committed.
        self.aborted_line = 0  # Where an abort was confirmed.
        self.with_offsets = False
        self.inputs: list[tuple[Partition, int, bool]] = []  # (partition, offset, at read_committed)
        self.seen: Read | None = None  # A record of it that someone read at read_committed.


class Attempt:
    """One record of one send. The same value may be sent again, when an earlier attempt was aborted, say."""

    __slots__ = (
        "end_line", "is_idempotent", "is_seen", "line", "offset",
        "outcome", "partition", "process", "transaction", "value",
    )  # fmt: skip

    def __init__(
        self, value: Value, partition: Partition | None, process: Process, line: int, is_idempotent: bool
    ) -> None:
        self.value = value
        self.partition = partition  # None: the partitioner has not told.
        self.offset = -1  # -1: not known.
        self.process = process.name
        self.transaction = process.current
        self.line = line
        self.end_line = 0
        self.outcome = Outcome.INFO
        self.is_idempotent = is_idempotent or self.transaction is not None
        self.is_seen = False

    @property
    def committed_line(self) -> int:
        """Where it was certain that everyone will see it; 0: it is not."""
        if self.outcome is not Outcome.OK:
            return 0
        if self.transaction is None:
            return self.end_line
        return max(self.end_line, self.transaction.outcome_line) if self.transaction.outcome is Outcome.OK else 0


class Process:
    __slots__ = ("has_transactions", "inputs", "is_ending", "left", "name", "open", "spans", "transaction")

    def __init__(self, name: str) -> None:
        self.name = name
        self.open: dict[object, Operation] = {}  # By `id`.
        self.transaction: Transaction | None = None
        self.has_transactions = False
        self.is_ending = False  # What it polls and sends now is no part of its transaction any more.
        self.inputs: list[tuple[Partition, int, bool]] = []  # Polled since its last transaction, for its next one.
        self.spans: dict[str, Span] = {}
        self.left: dict[str, int] = {}  # Where it was in partitions that were assigned anew since.

    @property
    def current(self) -> Transaction | None:
        return None if self.is_ending else self.transaction


class Drain(NamedTuple):
    line: int
    partitions: frozenset[str] | None  # None: all.


class Operation(NamedTuple):
    name: str
    line: int
    attempts: list[Attempt]
    transaction: Transaction | None
    is_proof: bool = True  # Whether a good answer to it promises anything.
    # What a member of a share group has said: group, partition, offset, and what.
    said: Sequence[tuple[str, str, int, str]] = ()

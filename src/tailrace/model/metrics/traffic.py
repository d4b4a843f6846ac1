"""What went in and out of one partition since this replica was opened, and how often its in-sync set has changed.

Kafka's meanings: sizes are those of record batches as they are stored, and a request counts once for each partition
that it names.
"""

from __future__ import annotations

from tailrace.model.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
# What Kafka does not count as failed: clients know what to do, or were told something that they can mend.
_EXPECTED = (
    *_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class Traffic:
    """Raised by whoever does it. `rejected_bytes` are batches larger than the topic takes."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetch_requests",
        "failed_produce_requests",
        "fetch_requests",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produce_requests",
        "rejected_bytes",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = self.rejected_bytes = 0
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.produce_requests = self.fetch_requests = 0
        self.failed_produce_requests = self.failed_fetch_requests = 0
        self.isr_shrinks = self.isr_expands = 0

    def note_appended(self, messages: int, size_bytes: int, requests: int = 1) -> None:
        self.messages_in += messages
        self.bytes_in += size_bytes
        self.produce_requests += requests

    def note_refused(self, code: int, size_bytes: int) -> None:
        """Of a produce."""
        self.produce_requests += 1
        if code in _TOO_LARGE:
            self.rejected_bytes += size_bytes
        self.failed_produce_requests += code not in _EXPECTED

    def note_isr(self, change: int) -> None:
        """By so many the in-sync set has grown while this replica led; below zero, it has shrunk."""
        self.isr_expands += change > 0
        self.isr_shrinks += change < 0

    def add(self, other: Traffic) -> None:
        for name in Traffic.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

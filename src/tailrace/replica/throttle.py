"""Replication throttles (KIP-73): while partitions move, their traffic must not starve the clients.

Only replicas outside the in-sync set are held back: an in-sync one that waited would hold producers up, and then leave
the set. What is sent or fetched beyond the rate is paid for by waiting afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence


class Throttle:
    """One direction of one broker."""

    __slots__ = ("_free_at_ms",)

    def __init__(self) -> None:
        self._free_at_ms = 0.0  # What has gone so far is within the rate by then.

    def note(self, size_bytes: int, *, bytes_per_second: int, now_ms: float) -> None:
        # Below a byte a second it would never end; Kafka sets no bound.
        self._free_at_ms = max(self._free_at_ms, now_ms) + size_bytes * 1000 / max(bytes_per_second, 1)

    def is_exceeded(self, now_ms: float) -> bool:
        return self._free_at_ms > now_ms


def is_throttled(replicas: Sequence[str], *, partition: int, node_id: int) -> bool:
    """Whether a topic's list of throttled replicas, `*` or `partition:broker` pairs, has this one."""
    return bool(replicas) and (replicas[0] == "*" or f"{partition}:{node_id}" in replicas)

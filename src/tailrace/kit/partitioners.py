"""Which partition a record goes to, where the caller does not say.

Without a partitioner it is Kafka's own way: murmur2 of the key, and records without a key stick to a partition until it
has had a batch's worth. A partitioner is any function of the topic, the key as bytes and the number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.client.partitioner import partition_for_key

Partitioner = Callable[[str, bytes | None, int], int]


class RoundRobin:
    """One partition after the other, whatever the key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, count: int) -> int:  # noqa: ARG002 - as all partitioners
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return turn % count


def murmur2(topic: str, key: bytes | None, count: int) -> int:  # noqa: ARG001 - as all partitioners
    """As Kafka's Java client; a record without a key goes to the partition of the empty key."""
    return partition_for_key(key or b"", count)

"""Which partition a record goes to, as Kafka's Java producer decides it.

A record with a key goes where murmur2 of the key says, so that every client that does the same puts equal keys into the
same partition. Records without a key stick to one partition until it has had a batch's worth, then move on to another
(KIP-480, KIP-794): fuller batches, and the same share for all in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tailrace.model.ports import Random
from tailrace.wire.murmur2 import murmur2

# Keys come again and again, and the hash of one costs more than all else that is done with its record.
_KEYS_REMEMBERED = 8192
_LONG_KEY_BYTES = 64


def partition_for_key(key: bytes, partition_count: int) -> int:
    hashed = murmur2(key) if len(key) > _LONG_KEY_BYTES else _remembered(key)
    return (hashed & 0x7FFFFFFF) % partition_count


_remembered = lru_cache(_KEYS_REMEMBERED)(murmur2)


class StickyChoice:
    """Where records without a key go now, for one topic."""

    def __init__(self, random: Random, batch_bytes: int) -> None:
        self._random = random
        self._batch_bytes = batch_bytes
        self._partition = -1
        self._left_bytes = 0  # how much more goes there
        self._available: Sequence[int] = ()  # of which it was chosen last

    def choose(self, available: Sequence[int], size_bytes: int) -> int:
        """`available` are the partitions that have a leader, or all if none has."""
        if self._left_bytes <= 0 or (available is not self._available and self._partition not in available):
            others = [index for index in available if index != self._partition] or list(available)
            self._partition = others[self._random.randrange(len(others))]
            self._left_bytes = self._batch_bytes
        self._available = available
        self._left_bytes -= size_bytes
        return self._partition

"""Which partition a record goes to, as Kafka's Java producer decides it.

A record with a key goes where murmur2 of the key says, so that every client that does the same puts equal keys into the
same partition. Records without a key stick to one partition until it has had a batch's worth, then move on to another
(KIP-480, KIP-794): fuller batches, and the same share for all in the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.model.ports import Random

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24


def murmur2(data: bytes) -> int:
    """The 32-bit hash, unsigned."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        state = state * _M & _MASK ^ word
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyChoice:
    """Where records without a key go now, for one topic."""

    def __init__(self, random: Random, batch_bytes: int) -> None:
        self._random = random
        self._batch_bytes = batch_bytes
        self._partition = -1
        self._left_bytes = 0  # how much more goes there

    def choose(self, available: Sequence[int], size_bytes: int) -> int:
        """`available` are the partitions that have a leader, or all if none has."""
        if self._left_bytes <= 0 or self._partition not in available:
            others = [index for index in available if index != self._partition] or list(available)
            self._partition = others[self._random.randrange(len(others))]
            self._left_bytes = self._batch_bytes
        self._left_bytes -= size_bytes
        return self._partition

"""What cold reads have in memory, on one broker: pieces of segments, and answers until their last byte is sent.

    two thirds   pieces: on their way, used last, read ahead
    a third      answers

The fuller the answers' part is, the smaller is the next answer. So nobody waits for memory, and readers who stand still
never hold up the others: each costs `ANSWER_MIN_BYTES` at most beyond the bound, or one batch where that is larger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ANSWER_MIN_BYTES = 64 << 10
# One answer has at most this part of what is free: the first few readers leave room for those to come.
_SHARE = 8


class ReaderMemory:
    def __init__(self, max_bytes: int) -> None:
        self.pieces_max_bytes = max_bytes * 2 // 3
        self.answers_bytes = 0  # Given out and not sent yet, or being read.
        self._answers_max_bytes = max_bytes - self.pieces_max_bytes

    @contextmanager
    def reserve(self, asked_bytes: int) -> Iterator[int]:
        """Room for one answer while it is read: how large it may be."""
        free_bytes = self._answers_max_bytes - self.answers_bytes
        size_bytes = min(asked_bytes, max(free_bytes // _SHARE, ANSWER_MIN_BYTES))
        self.answers_bytes += size_bytes
        try:
            yield size_bytes
        finally:
            self.answers_bytes -= size_bytes

    def hold(self, size_bytes: int) -> bytearray:
        """An answer to be filled. It counts until nobody refers to it, or to a view of it, any more."""
        return _Answer(self, size_bytes)


class _Answer(bytearray):
    __slots__ = ("_memory", "_size_bytes")

    def __init__(self, memory: ReaderMemory, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._memory = memory
        self._size_bytes = size_bytes
        memory.answers_bytes += size_bytes

    def __del__(self) -> None:
        self._memory.answers_bytes -= self._size_bytes

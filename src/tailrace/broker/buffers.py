"""Receive buffers, lent to connections only while they hold unread bytes.

An idle connection holds no buffer, so a thousand of them cost nothing. All buffers lent at one time are bounded by
`queued.max.request.bytes`: above it a connection waits for its turn instead of reading, and TCP holds its peer back.
Buffers of up to KEPT_MAX_BYTES each are kept for the next borrower, `socket.buffer.pool.bytes` in all; larger ones are
dropped, so that one huge request does not become a permanent cost.
"""

from collections import deque
from collections.abc import Callable

START_BYTES = 64 * 1024
KEPT_MAX_BYTES = 1024 * 1024


class BufferPool:
    """Never blocks and never calls back at once: waiters are told through `call_soon`."""

    def __init__(
        self, *, lent_max_bytes: int, kept_max_bytes: int, call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._kept_max_bytes = kept_max_bytes
        self._lent_max_bytes = lent_max_bytes  # Negative: no bound.
        self._call_soon = call_soon
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()  # At most one entry a connection.
        self.lent_bytes = 0

    def lend(self, size_bytes: int) -> bytearray | None:
        """A buffer of at least that size, or None while too much is lent already. The first buffer is always
        given: a request larger than the whole bound must not wait for ever."""
        size = _rounded(size_bytes)
        if 0 <= self._lent_max_bytes < self.lent_bytes + size and self.lent_bytes:
            return None
        self.lent_bytes += size
        kept = self._kept.get(size)
        if kept:
            self._kept_bytes -= size
            return kept.pop()
        return bytearray(size)

    def give_back(self, buffer: bytearray) -> None:
        size = len(buffer)
        self.lent_bytes -= size
        if size <= KEPT_MAX_BYTES and self._kept_bytes + size <= self._kept_max_bytes:
            self._kept.setdefault(size, []).append(buffer)
            self._kept_bytes += size
        if self._waiting:
            self._call_soon(self._waiting.popleft())

    def wait(self, callback: Callable[[], None]) -> None:
        """Calls back once, when something has been given back; the caller then tries again."""
        self._waiting.append(callback)

    @property
    def is_short(self) -> bool:
        return bool(self._waiting)


def _rounded(size_bytes: int) -> int:
    """To a power of two, so that a few sizes serve everyone."""
    return START_BYTES if size_bytes <= START_BYTES else 1 << (size_bytes - 1).bit_length()

"""Receive buffers, lent to connections only while they hold unread bytes.

An idle connection holds no buffer, so a thousand of them cost nothing. All buffers lent at one time, with the requests
whose handlers wait, are bounded by `queued.max.request.bytes`: above it a connection waits for its turn instead of
reading, and TCP holds its peer back. Buffers of up to KEPT_MAX_BYTES each are kept for the next borrower,
`socket.buffer.pool.bytes` in all; larger ones are dropped, so that one huge request does not become a permanent cost.
"""

from collections.abc import Callable
from typing import NamedTuple

START_BYTES = 64 * 1024
KEPT_MAX_BYTES = 1024 * 1024

_NO_BOUND = 1 << 62


class _Wish(NamedTuple):
    size_bytes: int
    held_bytes: int  # By whom it comes from, and given back for it.


class BufferPool:
    """Never blocks and never calls back at once: waiters are told through `call_soon`."""

    def __init__(
        self, *, lent_max_bytes: int, kept_max_bytes: int, call_soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._kept_max_bytes = kept_max_bytes
        self._lent_max_bytes = lent_max_bytes if lent_max_bytes >= 0 else _NO_BOUND
        self._call_soon = call_soon
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0
        # Who waits, and for what, in order of arrival. At most one entry a connection.
        self._waiting: dict[Callable[[], None], _Wish] = {}
        self.lent_bytes = 0

    def lend(self, size_bytes: int, *, in_place_of: int = 0) -> bytearray | None:
        """A buffer of at least that size, or None while too much is lent already. The caller will give `in_place_of`
        bytes back for it. Whoever is the only borrower always gets one: a request larger than the whole bound must
        not wait for ever."""
        size = _rounded(size_bytes)
        lent_to_others = self.lent_bytes - in_place_of
        if lent_to_others and lent_to_others + size > self._lent_max_bytes:
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
            self.wake()

    def hold(self, size_bytes: int) -> None:
        """A request that lies outside the buffers while its handler waits counts as lent, so that handlers that wait
        cannot hold more than the bound either; it is never refused, for it is in memory already."""
        self.lent_bytes += size_bytes

    def let_go(self, size_bytes: int) -> None:
        self.lent_bytes -= size_bytes
        if self._waiting:
            self.wake()

    def wait(self, size_bytes: int, callback: Callable[[], None], *, in_place_of: int = 0) -> None:
        """Calls back once, when such a buffer may be had; the caller then tries again."""
        self._waiting[callback] = _Wish(_rounded(size_bytes), in_place_of)

    def forget(self, callback: Callable[[], None]) -> None:
        """Whoever waited is gone: its turn passes on."""
        if self._waiting.pop(callback, None) is not None:
            self.wake()

    def wake(self) -> None:
        """Tells all who now fit, in their order. One who asks for much does not hold those behind it back: it may be
        waiting for what they hold."""
        room_bytes = self._lent_max_bytes - self.lent_bytes
        told: list[Callable[[], None]] = []
        for callback, wish in self._waiting.items():
            if wish.size_bytes - wish.held_bytes <= room_bytes or (wish.held_bytes == self.lent_bytes and not told):
                told.append(callback)
                room_bytes -= wish.size_bytes - wish.held_bytes
                if room_bytes < START_BYTES:
                    break
        for callback in told:
            del self._waiting[callback]
            self._call_soon(callback)

    @property
    def is_short(self) -> bool:
        return bool(self._waiting)


def _rounded(size_bytes: int) -> int:
    """To a power of two, so that a few sizes serve everyone."""
    return START_BYTES if size_bytes <= START_BYTES else 1 << (size_bytes - 1).bit_length()

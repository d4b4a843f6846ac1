"""Receive buffers, lent to connections only while they hold unread bytes.

An idle connection holds no buffer, so a thousand of them cost nothing. All that is lent at one time, with the requests
whose handlers wait, is bounded by `queued.max.request.bytes`, and the part of it that one address has, beyond 64 KB for
each of its connections, by `queued.max.request.bytes.per.ip`. Above either a connection waits for its turn instead of
reading, and TCP holds its peer back; but `socket.reserved.request.bytes` are never refused, so that small requests are
served whatever others hold.

What a connection borrows are bytearrays, of up to HEAP_MAX_BYTES. For a request that is larger than that there are
mappings: the kernel gives them pages as bytes arrive, so that a claim costs nothing and growing copies nothing, and
takes them back at once. Buffers of up to KEPT_MAX_BYTES are kept for the next borrower, `socket.buffer.pool.bytes` in
all, for new pages cost more than the copying into them; half of those that lie idle are dropped every ten seconds.
"""

from collections.abc import Callable
from typing import NamedTuple

from tailrace.model.ports import Buffer, Memory

START_BYTES = 64 * 1024
HEAP_MAX_BYTES = 1024 * 1024
KEPT_MAX_BYTES = 16 * 1024 * 1024

_NO_BOUND = 1 << 62
_AGEING_INTERVAL_MS = 10_000
# An allocator keeps what it is given back: once this much was dropped it is worth the milliseconds to have it looked
# through, when no more is being dropped; or, if that never ends, after a minute or once it is this much.
_TRIM_MIN_BYTES = 8 * 1024 * 1024
_TRIM_AT_ONCE_BYTES = 64 * 1024 * 1024
_TRIM_MAX_MS = 60_000


class Account:
    """What is lent to the connections of one address, but for buffers of START_BYTES: these are not worth counting."""

    __slots__ = ("__weakref__", "lent_bytes")

    def __init__(self) -> None:
        self.lent_bytes = 0


class _Wish(NamedTuple):
    size_bytes: int
    held_bytes: int  # By whom it comes from, and given back for it.
    account: Account


class BufferPool:
    """Never blocks and never calls back at once: waiters are told through `call_soon`."""

    def __init__(
        self,
        *,
        lent_max_bytes: int,
        account_max_bytes: int,
        reserved_bytes: int,
        kept_max_bytes: int,
        memory: Memory,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._lent_max_bytes = lent_max_bytes if lent_max_bytes >= 0 else _NO_BOUND
        self._account_max_bytes = account_max_bytes if account_max_bytes >= 0 else _NO_BOUND
        self.reserved_bytes = reserved_bytes
        self._kept_max_bytes = kept_max_bytes
        self._memory = memory
        self._call_soon = call_soon
        self._kept: dict[int, list[Buffer]] = {}
        self._kept_bytes = 0
        # Who waits, and for what, in order of arrival. At most one entry a connection.
        self._waiting: dict[Callable[[], None], _Wish] = {}
        self.lent_bytes = 0
        self._dropped_bytes = 0  # Since the last trim.
        self._seen_dropped_bytes = 0
        self._last_aged_ms = -float("inf")
        self._last_trim_ms = -float("inf")

    def lend(self, size_bytes: int, account: Account, *, in_place_of: int = 0) -> Buffer | None:
        """A buffer of that size, a power of two; or None while too much is lent already. The caller will give
        `in_place_of` bytes back for it."""
        lent_bytes = self.lent_bytes + size_bytes
        if size_bytes == START_BYTES and lent_bytes <= self._lent_max_bytes:  # As it nearly always is.
            self.lent_bytes = lent_bytes
        elif not self.grant(size_bytes, account, in_place_of=in_place_of):
            return None
        kept = self._kept.get(size_bytes)
        if kept:
            self._kept_bytes -= size_bytes
            return kept.pop()
        return bytearray(size_bytes)

    def lend_mapping(self, size_bytes: int) -> Buffer:
        """For a request of that size, of which no part is granted with it. OSError if the system has none."""
        if size_bytes <= KEPT_MAX_BYTES:
            size_bytes = 1 << (size_bytes - 1).bit_length()
            kept = self._kept.get(size_bytes)
            if kept:
                self._kept_bytes -= size_bytes
                return kept.pop()
        return self._memory.allocate(size_bytes)

    def lend_reserved(self) -> Buffer:
        """What each connection may have whatever others hold: enough for a small request."""
        self.lent_bytes += self.reserved_bytes
        return bytearray(self.reserved_bytes)

    def give_back(self, buffer: Buffer, granted_bytes: int, account: Account) -> None:
        self.lent_bytes -= granted_bytes
        if granted_bytes > START_BYTES:
            account.lent_bytes -= granted_bytes
        size = len(buffer)
        if START_BYTES <= size <= KEPT_MAX_BYTES and self._kept_bytes + size <= self._kept_max_bytes:
            self._kept.setdefault(size, []).append(buffer)
            self._kept_bytes += size
        elif isinstance(buffer, bytearray):
            self._dropped_bytes += size
        if self._waiting:
            self.wake()

    def grant(self, size_bytes: int, account: Account, *, in_place_of: int = 0) -> bool:
        """Counts so much as lent, unless that is too much. Whoever is the only borrower always gets it: a request
        larger than the whole bound must not wait for ever."""
        lent_to_others = self.lent_bytes - in_place_of
        if lent_to_others and lent_to_others + size_bytes > self._lent_max_bytes:
            return False
        if size_bytes > START_BYTES:
            if not self._fits_account(size_bytes, account, in_place_of):
                return False
            account.lent_bytes += size_bytes
        self.lent_bytes += size_bytes
        return True

    def hold(self, size_bytes: int, account: Account) -> None:
        """A request that lies outside the buffers while its handler waits counts as lent, so that handlers that wait
        cannot hold more than the bound either; it is never refused, for it is in memory already."""
        self.lent_bytes += size_bytes
        if size_bytes > START_BYTES:
            account.lent_bytes += size_bytes

    def let_go(self, size_bytes: int, account: Account) -> None:
        self.lent_bytes -= size_bytes
        if size_bytes > START_BYTES:
            account.lent_bytes -= size_bytes
        if self._waiting:
            self.wake()

    def wait(self, size_bytes: int, account: Account, callback: Callable[[], None], *, in_place_of: int) -> None:
        """Calls back once, when so much may be had; the caller then tries again."""
        self._waiting[callback] = _Wish(size_bytes, in_place_of, account)

    def is_waiting(self, callback: Callable[[], None]) -> bool:
        return callback in self._waiting

    def forget(self, callback: Callable[[], None]) -> None:
        """Whoever waited is gone: its turn passes on."""
        if self._waiting.pop(callback, None) is not None:
            self.wake()

    def wake(self) -> None:
        """Tells all who now fit, in their order. One who asks for much does not hold those behind it back: it may be
        waiting for what they hold."""
        room_bytes = self._lent_max_bytes - self.lent_bytes
        told: list[Callable[[], None]] = []
        for callback, (size_bytes, held_bytes, account) in self._waiting.items():
            more_bytes = size_bytes - held_bytes
            is_alone = held_bytes == self.lent_bytes and not told
            if (more_bytes <= room_bytes or is_alone) and self._fits_account(size_bytes, account, held_bytes):
                told.append(callback)
                room_bytes -= more_bytes
                if room_bytes <= 0:
                    break
        for callback in told:
            del self._waiting[callback]
            self._call_soon(callback)

    def _fits_account(self, size_bytes: int, account: Account, held_bytes: int) -> bool:
        others_bytes = account.lent_bytes - (held_bytes if held_bytes > START_BYTES else 0)
        return not others_bytes or size_bytes <= START_BYTES or others_bytes + size_bytes <= self._account_max_bytes

    @property
    def is_short(self) -> bool:
        return bool(self._waiting)

    def find_short(self) -> set[Account] | None:
        """Those whose memory would help someone who waits; None if that of everybody would."""
        short: set[Account] = set()
        for size_bytes, held_bytes, account in self._waiting.values():
            if self._fits_account(size_bytes, account, held_bytes):
                return None
            short.add(account)
        return short

    # ---- what is given back to the system

    def trim(self) -> None:
        self._memory.trim()

    def note_dropped(self, size_bytes: int) -> None:
        """Other memory of connections that has gone."""
        self._dropped_bytes += size_bytes

    def age(self, now_ms: float) -> bool:
        """Called now and then; drops what nobody has borrowed for a while. Whether the allocator should be asked to
        give back to the system what it was given."""
        if now_ms - self._last_aged_ms < _AGEING_INTERVAL_MS:
            return False
        self._last_aged_ms = now_ms
        is_quiet = self._dropped_bytes == self._seen_dropped_bytes or now_ms - self._last_trim_ms > _TRIM_MAX_MS
        for size, kept in self._kept.items():
            idle = (len(kept) + 1) // 2
            del kept[:idle]
            self._kept_bytes -= idle * size
            if size <= HEAP_MAX_BYTES:
                self._dropped_bytes += idle * size
        self._seen_dropped_bytes = self._dropped_bytes
        is_quiet = is_quiet or self._dropped_bytes >= _TRIM_AT_ONCE_BYTES
        if self._dropped_bytes < _TRIM_MIN_BYTES or not is_quiet:
            return False
        self._dropped_bytes = self._seen_dropped_bytes = 0
        self._last_trim_ms = now_ms
        return True

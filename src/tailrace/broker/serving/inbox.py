"""What a connection has received and not yet taken: `buffer[start:end]`, and where there is room for more.

The buffer is lent by the pool, and is given back as soon as it is empty. It grows as the bytes of a large request
arrive, never by what the request claims: a claim costs nothing. `view` ends where the connection may receive up to.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from tailrace.broker.serving.arrival import Arrival, ArrivalRules
from tailrace.broker.serving.buffers import HEAP_MAX_BYTES, START_BYTES, Account, BufferPool
from tailrace.model.ports import Buffer

_unpack_size = Struct(">i").unpack_from
_NOTHING = memoryview(b"")
# The view doubles up to this, then grows by it: as much as a connection receives in a turn, by default.
_STEP_MAX_BYTES = 1024 * 1024


class Inbox:
    """Owned by one connection, which moves `start` as it takes requests and `end` as it receives."""

    __slots__ = (
        "_hint_max_bytes",
        "_pool",
        "_size_hint",
        "account",
        "arrival",
        "buffer",
        "end",
        "last_taken_bytes",
        "start",
        "view",
    )

    def __init__(self, pool: BufferPool, account: Account, *, hint_max_bytes: int) -> None:
        self._pool = pool
        self.account = account
        self._size_hint = START_BYTES  # What to borrow, as large as the client's last request that needed more.
        self._hint_max_bytes = hint_max_bytes
        self.buffer: Buffer | None = None
        self.view = _NOTHING
        self.start = 0
        self.end = 0
        self.last_taken_bytes = 0  # In the last turn: the next one is likely to bring as much.
        self.arrival: Arrival | None = None  # Of the request at `start`, if it is not whole.

    @property
    def missing_bytes(self) -> int:
        """What is missing of the request at `start`; at most 0 if it is whole. At least 1 while its size is not known,
        or there is none."""
        unread = self.end - self.start
        if unread < 4 or self.buffer is None:
            return 4 - unread
        size: int = _unpack_size(self.buffer, self.start)[0]
        return size + 4 - unread

    def expected_bytes(self, missing_bytes: int) -> int:
        """What may be received next: the rest of a request that is begun; and who has sent much is likely to again."""
        if self.end:
            return missing_bytes if self.arrival is not None else 0
        return self.last_taken_bytes

    def room(self, missing_bytes: int, max_bytes: int) -> memoryview:
        """Where to receive next. Large requests are received up to their end and no further: of what follows a part
        would have to be moved to the front of the buffer, to make room for its rest. That costs more than another
        system call."""
        wanted = missing_bytes if self.end > self.start else self.last_taken_bytes
        return self.view[self.end : self.end + (wanted if START_BYTES < wanted < max_bytes else max_bytes)]

    def borrow(self) -> None:
        buffer = self._pool.lend(self._size_hint, self.account)
        if buffer is None:
            buffer = self._pool.lend_reserved()
        self.buffer, self.view = buffer, memoryview(buffer)
        self.start = self.end = 0

    def give_back(self) -> None:
        buffer, view = self.buffer, self.view
        self.view = _NOTHING
        self.buffer = self.arrival = None
        self.start = self.end = 0
        if buffer is not None:
            self._pool.give_back(buffer, len(view), self.account)

    def set_aside(self) -> bytes:
        """What is unread, of which nothing is kept here. Nothing, if it is too much to be copied at once."""
        if self.end - self.start > HEAP_MAX_BYTES:
            return b""
        unread = bytes(self.view[self.start : self.end])
        self.give_back()
        return unread

    def take_up(self, unread: bytes) -> None:
        """What was set aside. It is in memory already, and so never refused."""
        size_bytes = max(START_BYTES, 1 << (len(unread) - 1).bit_length())
        buffer = self._pool.lend(size_bytes, self.account)
        if buffer is None:
            self._pool.hold(size_bytes, self.account)
            buffer = bytearray(size_bytes)
        self.buffer, self.view = buffer, memoryview(buffer)
        self.view[: len(unread)] = unread
        self.start, self.end = 0, len(unread)

    def compact(self) -> None:
        """Moves what is unread to the front."""
        if self.start:
            unread = self.end - self.start
            # A copy: a bytearray cannot move bytes within itself while views of it exist.
            self.view[:unread] = bytes(self.view[self.start : self.end])
            self.start, self.end = 0, unread

    def grow(self) -> bool:
        """For more of the request that fills the whole view; False while there is no memory. OSError if the system has
        none."""
        size_bytes, wanted_bytes = len(self.view), self._next_size()
        if not self._pool.grant(wanted_bytes, self.account, in_place_of=size_bytes):
            return False
        if self.buffer is not None and len(self.buffer) >= wanted_bytes:
            self._pool.let_go(size_bytes, self.account)
            self.view = memoryview(self.buffer)[:wanted_bytes]
            return True
        request_bytes = self.end - self.start + self.missing_bytes
        try:
            mapping = self._pool.lend_mapping(request_bytes)
        except OSError:
            self._pool.let_go(wanted_bytes, self.account)
            raise
        hint_bytes = 1 << (request_bytes - 1).bit_length()
        self._size_hint = max(START_BYTES, min(hint_bytes, self._hint_max_bytes))
        self._move_to(mapping, wanted_bytes)
        return True

    def wait_for_memory(self, callback: Callable[[], None]) -> None:
        self._pool.wait(self._next_size(), self.account, callback, in_place_of=len(self.view))

    def shrink(self) -> None:
        """Others wait for memory: keeps no more than a small request needs, if that is enough for what is here."""
        reserved_bytes = self._pool.reserved_bytes
        if self.buffer is not None and self.end - self.start < reserved_bytes < len(self.view):
            self._size_hint = START_BYTES
            self._move_to(self._pool.lend_reserved(), reserved_bytes)

    def decide_late(self, now_ms: float, rules: ArrivalRules, *, is_short: bool) -> str | None:
        """What is wrong with how the bytes of a request come in that is not whole, if something is."""
        if self.arrival is None or self.missing_bytes <= 0:
            return None
        return self.arrival.decide_late(
            now_ms,
            rules,
            received_bytes=self.end - self.start,
            held_bytes=len(self.view),
            is_short=is_short,
        )

    def _next_size(self) -> int:
        """Of the view, for a request that fills it."""
        size_bytes = len(self.view)
        grown_bytes = max(START_BYTES, size_bytes + min(size_bytes, _STEP_MAX_BYTES))
        return min(grown_bytes, self.end - self.start + self.missing_bytes)

    def _move_to(self, buffer: Buffer, size_bytes: int) -> None:
        """The pool has counted both; the old one is given back."""
        view = memoryview(buffer)[:size_bytes]
        unread = self.end - self.start
        view[:unread] = self.view[self.start : self.end]
        arrival = self.arrival
        self.give_back()
        self.buffer, self.view, self.arrival = buffer, view, arrival
        self.end = unread

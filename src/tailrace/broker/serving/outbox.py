"""What a connection still has to send: bytes and file slices, in order, and the places of answers not known yet.

Writes are joined: a turn of the loop puts many answers here and flushes once. File slices go out by `sendfile` and are
not read into Python, but for small ones: a copy of those costs less than two more system calls and a second packet.
Before a slice is sent its next window is probed; if it is not in memory, a helper thread reads it first, so that a cold
disk stalls a thread and not the loop. Large pieces stand in line (`turns`) once a few went out in a round
of the loop.
"""

from __future__ import annotations

import errno
from asyncio import Future, ensure_future
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from tailrace.broker.context import Pending
from tailrace.broker.serving.measuring import Measurement
from tailrace.broker.serving.turns import Client, Turns
from tailrace.model.ports import Background, Bytes, FileSlice, Stream

if TYPE_CHECKING:
    from tailrace.broker.serving.commits.taking import Short

# A slice is probed and sent in windows of this size: enough to keep a disk streaming, small enough to begin early.
WINDOW_BYTES = 1024 * 1024
# Given to one reader before the other connections have their turn: one that reads as fast as we send would hold the
# loop for a whole answer, else: 55 MB by default.
TURN_BYTES = 2 * WINDOW_BYTES
# Of pieces above this size only a few are sent in a round of the loop.
LARGE_BYTES = WINDOW_BYTES // 4
# Slices of up to this size are read and joined with what is around them, as long as the joint piece is no larger.
JOINED_BYTES = 32 * 1024


class Slot:
    """The place of an answer among the others of its connection."""

    __slots__ = ("count", "measurement", "parts", "pending")

    def __init__(
        self,
        pending: Pending[Any] | Short | None,
        parts: list[Bytes | FileSlice] | None = None,
        *,
        count: int = 1,
        measurement: Measurement | None = None,
    ) -> None:
        self.pending = pending
        self.parts = parts  # None until the answer is known.
        self.count = count  # How many answers: those of an express run come together.
        self.measurement = measurement


class Slots:
    """The answers of one connection that wait, each in its place: for itself to be known, or for one before it."""

    __slots__ = ("_outbox", "_slots", "count")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._slots: deque[Slot] = deque()
        self.count = 0  # Of answers, which are more than slots where runs are among them.

    def put(self, parts: list[Bytes | FileSlice], measurement: Measurement | None) -> None:
        """An answer that is known: at once, if none has to go before it."""
        if self.count:
            self.add(Slot(None, parts, measurement=measurement))
        else:
            self._outbox.put(parts, measurement)

    def add(self, slot: Slot) -> None:
        self._slots.append(slot)
        self.count += slot.count

    def settle(self, slot: Slot, parts: list[Bytes | FileSlice] | None) -> None:
        """What was waited for, and all behind it that is known, is put out; None if neither can be."""
        slot.pending, slot.parts = None, parts
        if parts is None:
            self.drop(since=slot)
        slots = self._slots
        while slots and slots[0].parts is not None:
            first = slots.popleft()
            self.count -= first.count
            self._outbox.put(first.parts or [], first.measurement)

    def drop(self, *, since: Slot | None = None) -> None:
        """The answers from that one on, or all, will not be sent."""
        while self._slots:
            slot = self._slots.pop()
            self.count -= slot.count
            if slot.pending is not None:
                slot.pending.abandon()
            elif slot.measurement is not None and slot.parts is not None:
                slot.measurement.note_lost()
            if slot is since:
                return


class Outbox:
    """Owned by one connection, which must not put more in while `is_empty` is false (back-pressure)."""

    __slots__ = (
        "_background",
        "_client",
        "_has_slices",
        "_has_turn",
        "_is_closed",
        "_is_waiting",
        "_on_broken",
        "_on_drained",
        "_parts",
        "_put_bytes",
        "_stream",
        "_turns",
        "_unmeasured",
        "_warming",
        "sent_bytes",
    )

    def __init__(
        self,
        stream: Stream,
        background: Background,
        turns: Turns,
        client: Client,
        *,
        on_drained: Callable[[], None],
        on_broken: Callable[[OSError], None],
    ) -> None:
        self._stream = stream
        self._background = background
        self._turns = turns
        self._client = client
        self._on_drained = on_drained
        self._on_broken = on_broken
        self._parts: list[Bytes | FileSlice] = []
        self._has_slices = False
        self._has_turn = False
        self._is_waiting = False  # For room in the socket, for a cold window or for its turn.
        self._is_closed = False
        # Answers to be measured, each with what will be sent in all when its last byte is. Bounded by the answers that
        # may be outstanding.
        self._unmeasured: list[tuple[int, Measurement]] = []
        self._put_bytes = 0  # In all; kept while there are such answers.
        self._warming: Future[None] | None = None  # Held, for the loop keeps only weak references to its tasks.
        self.sent_bytes = 0  # In all: a reader that has stopped reading shows by it.

    @property
    def is_empty(self) -> bool:
        return not self._parts

    @property
    def is_blocked(self) -> bool:
        """The socket takes no more for now, or a cold disk or others have to be waited for."""
        return self._is_waiting

    def put(self, parts: list[Bytes | FileSlice], measurement: Measurement | None = None) -> None:
        self._parts += parts
        if measurement is not None or self._unmeasured:
            self._note_put(parts, measurement)
        if len(parts) > 1 and not self._has_slices:
            self._has_slices = any(isinstance(part, FileSlice) for part in parts)

    def put_all(self, answers: list[Bytes], measurement: Measurement | None = None) -> None:
        """Without slices."""
        self._parts += answers
        if measurement is not None or self._unmeasured:
            self._note_put(answers, measurement)

    def flush(self) -> None:
        """Sends as much as the socket takes now; the rest follows by itself, then `on_drained` is called."""
        if self._is_waiting or not self._parts:
            return
        try:
            if self._has_slices:
                self._send_windows()
            else:
                self._send_bytes()
        except OSError as error:
            self._on_broken(error)
            return
        if self._unmeasured:
            self._note_sent()
        if self._parts and not self._is_waiting:
            self._is_waiting = True
            self._stream.watch_writes(self._on_room)

    def take_turn(self) -> bool:
        """To send one large piece."""
        self._is_waiting, self._has_turn = False, True
        self.flush()
        self._has_turn = False
        if self._parts or self._is_closed:
            return True
        self._on_drained()  # Which goes on with requests.
        return False

    def close(self) -> None:
        self._is_closed = True
        self._turns.leave(self, self._client)
        self._parts.clear()
        for _end, measurement in self._unmeasured:
            measurement.note_lost()
        self._unmeasured.clear()

    def _note_put(self, parts: Sequence[Bytes | FileSlice], measurement: Measurement | None) -> None:
        if self._unmeasured:
            self._put_bytes += sum(map(len, parts))
        else:
            self._put_bytes = self.sent_bytes + sum(map(len, self._parts))
        if measurement is not None:
            self._unmeasured.append((self._put_bytes, measurement))

    def _note_sent(self) -> None:
        while self._unmeasured and self._unmeasured[0][0] <= self.sent_bytes:
            self._unmeasured.pop(0)[1].note_sent()

    def _on_room(self) -> None:
        self._is_waiting = False
        self._stream.watch_writes(None)
        self._flush_again()

    def _flush_again(self) -> None:
        self.flush()
        if not self._parts and not self._is_closed:
            self._on_drained()

    def _send_bytes(self) -> None:
        parts = self._parts
        taken = self._stream.send(parts)
        if len(parts) == 1 and taken == len(parts[0]):  # As it nearly always is.
            self.sent_bytes += taken
            parts.clear()
        else:
            self._advance(taken, len(parts))

    def _send_windows(self) -> None:
        """One window after another, while each goes out whole and the turn lasts."""
        turn_ends_bytes = self.sent_bytes + TURN_BYTES
        while self._parts:
            if self.sent_bytes >= turn_ends_bytes:
                return
            count, size, cold = self._next_window()
            if cold is not None:
                self._warm(cold)
                return
            if size > LARGE_BYTES and not self._has_turn and not self._turns.admits_piece(self):
                self._is_waiting = True
                self._turns.join(self, self._client)
                return
            self._has_turn = False
            taken = self._stream.send(self._parts[:count])
            self._advance(taken, count)
            if taken < size:
                return
        self._has_slices = False

    def _next_window(self, *, is_warm: bool = False) -> tuple[int, int, FileSlice | None]:
        """Cuts the queue after its first slice (or a window of it) that is sent as such: how many parts, their size,
        and that slice if it is not in memory. The first slice of the queue is not probed if it `is_warm`."""
        parts = self._parts
        size = 0
        for index, part in enumerate(parts):
            if isinstance(part, FileSlice):
                window = part
                if part.size > WINDOW_BYTES:
                    window = FileSlice(part.file, part.position, WINDOW_BYTES)
                    rest = FileSlice(part.file, part.position + WINDOW_BYTES, part.size - WINDOW_BYTES)
                    parts[index : index + 1] = (window, rest)
                size += window.size
                if not is_warm and not window.file.is_resident(window.position, window.size):
                    return index + 1, size, window
                if size > JOINED_BYTES:
                    return index + 1, size, None
                parts[index] = _read_whole(window)
                is_warm = False
            else:
                size += len(part)
        return len(parts), size, None

    def _advance(self, taken: int, count: int) -> None:
        """Drops `taken` bytes from the front of the first `count` parts."""
        self.sent_bytes += taken
        parts = self._parts
        whole = 0
        for part in islice(parts, count):
            if taken < len(part):
                break
            taken -= len(part)
            whole += 1
        del parts[:whole]
        if taken:
            part = parts[0]
            if isinstance(part, FileSlice):
                parts[0] = FileSlice(part.file, part.position + taken, part.size - taken)
            else:
                parts[0] = memoryview(part)[taken:]

    def _warm(self, window: FileSlice) -> None:
        self._is_waiting = True
        self._warming = ensure_future(self._read_ahead(window))

    async def _read_ahead(self, window: FileSlice) -> None:
        try:
            await self._background.run(lambda: len(window.read()))
            broken = None
        except OSError as error:
            broken = error
        self._is_waiting = False
        if self._is_closed:
            return
        if broken is not None:
            self._on_broken(broken)
            return
        self._send_warm_window()

    def _send_warm_window(self) -> None:
        """Without probing again: a page that is evicted in between costs one stall, a loop of probes could starve."""
        try:
            count, _size, cold = self._next_window(is_warm=True)
            if cold is not None:
                count -= 1  # A later one, which has its turn next.
            self._advance(self._stream.send(self._parts[:count]), count)
        except OSError as error:
            self._on_broken(error)
            return
        self._note_sent()
        self._flush_again()


def _read_whole(window: FileSlice) -> bytes:
    data = window.read()
    if len(data) < window.size:
        raise OSError(errno.EIO, f"the file ends before position {window.position + window.size}", window.file.path)
    return data

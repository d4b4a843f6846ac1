"""Who waits for a partition: answers to Produce for the high watermark, fetches for records.

Both are cheap, since they lie on the hot path: an append with nobody waiting looks at two empty containers. Whoever
has timed out or is gone is discarded at once: on a disk that hangs, nobody else would ever remove it.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from tailrace.model.errors import KafkaError


class OffsetWaiters:
    """Callbacks to be told when the high watermark reaches their offset. Bounded by the answers that connections
    may have outstanding."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # Appends are in order, so that the next to be told is nearly always the first. A duplicate's original lies
        # before the end, so a wait may stand behind one for a later offset; both are told in time.
        self._waiting: OrderedDict[Callable[[KafkaError | None], None], int] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def wait_until(self, offset: int, tell: Callable[[KafkaError | None], None]) -> None:
        """`tell` must be a callback of this wait alone: it also names it."""
        self._waiting[tell] = offset

    def discard(self, tell: Callable[[KafkaError | None], None]) -> None:
        self._waiting.pop(tell, None)

    def release(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting:
            tell, offset = waiting.popitem(last=False)
            if offset > high_watermark:
                waiting[tell] = offset
                waiting.move_to_end(tell, last=False)
                return
            tell(None)

    def fail(self, error: KafkaError) -> None:
        """The wait will not end: leadership is lost, or the disk failed."""
        waiting, self._waiting = self._waiting, OrderedDict()
        for tell in waiting:
            tell(error)


class Reader(Protocol):
    """A parked fetch."""

    def on_readable(self) -> None:
        """There may be more to read. Must not read at once: it is called in the middle of an append."""


class ReadWaiters:
    """Parked fetches. Each is told once and registers again if it still has to wait."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Reader, None] = {}  # In order of arrival, and cheap to remove from.

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, reader: Reader) -> None:
        self._waiting[reader] = None

    def discard(self, reader: Reader) -> None:
        self._waiting.pop(reader, None)

    def tell(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            reader.on_readable()

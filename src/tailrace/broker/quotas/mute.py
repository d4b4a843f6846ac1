"""A connection that is not read for a while, because its client has used more than its quotas let it (KIP-219).

A connection has one mute at a time, and the longest wins. What was asked before it is answered. What was received and
not taken is set aside, so that a muted connection holds nothing of the memory that is lent for requests; but for one
that has begun and is larger than 1 MB: it keeps what has come, for copying that would hold the loop. Whoever hangs up
meanwhile is seen when it ends. A muted client is not idle: it is the broker that does not read.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.broker.serving.inbox import Inbox


class Mute:
    """Made by a connection when it begins, and let go by it at `on_end`."""

    __slots__ = ("_inbox", "_loop", "_on_end", "_set_aside", "_timer")

    def __init__(self, inbox: Inbox, on_end: Callable[[], None]) -> None:
        self._inbox = inbox
        self._on_end = on_end
        self._loop = get_running_loop()
        self._timer: TimerHandle | None = None
        self._set_aside = b""

    def extend(self, throttle_ms: int) -> None:
        """Lasts so long from now at least."""
        ends = self._loop.time() + throttle_ms / 1000
        if self._timer is not None:
            if self._timer.when() >= ends:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(ends, self._end)

    def set_aside(self) -> None:
        """Called when nobody looks at the buffer any more."""
        self._set_aside += self._inbox.set_aside()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        if self._set_aside:
            self._inbox.take_up(self._set_aside)
        self._on_end()

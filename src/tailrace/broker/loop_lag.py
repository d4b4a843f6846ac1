"""How late timers fire: what every connection waits for when one of them, or the kernel, holds the loop.

The clock is told of each round, so that deadlines know how long nobody was heard (`model.attention`).
"""

from __future__ import annotations

import asyncio

from tailrace.model import events
from tailrace.model.attention import LOOK_INTERVAL_MAX_MS
from tailrace.model.config import BrokerConfig
from tailrace.model.ports import Clock

_log = events.logger("broker")

_LOOK_SHARE = 0.1
_WINDOW_SECONDS = 15.0
_LOOK_INTERVAL_MIN_MS = 5.0


class LoopLag:
    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._clock = clock
        self._warning_seconds = config.loop_lag_warning_ms / 1000
        # A fetch of the quorum counts as of two looks before it is read: these are a small part of its timeout.
        interval_ms = min(LOOK_INTERVAL_MAX_MS, config.controller_quorum_fetch_timeout_ms * _LOOK_SHARE)
        self._interval_seconds = max(interval_ms, _LOOK_INTERVAL_MIN_MS) / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.last_ms = 0.0
        self.max_ms = 0.0
        # The largest of this window and of the one before it.
        self._window_ends = 0.0
        self._window_max_ms = self._before_max_ms = 0.0
        # A start holds the loop now and then, and nobody waits for it yet.
        self.is_serving = False

    def start(self) -> None:
        self._clock.note_look()
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._interval_seconds
        self._timer = loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        late = asyncio.get_running_loop().time() - self._due
        if self.is_serving:
            self.last_ms = late * 1000
            self.max_ms = max(self.max_ms, self.last_ms)
            self._note_recent()
            if late > self._warning_seconds:
                _log.warning("the event loop was held up", lag_ms=int(self.last_ms))
        self.start()

    @property
    def recent_max_ms(self) -> float:
        """Of the last fifteen seconds, at least, and thirty at most."""
        return max(self._window_max_ms, self._before_max_ms)

    def _note_recent(self) -> None:
        if self._due >= self._window_ends:
            self._window_ends = self._due + _WINDOW_SECONDS
            self._before_max_ms, self._window_max_ms = self._window_max_ms, 0.0
        self._window_max_ms = max(self._window_max_ms, self.last_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

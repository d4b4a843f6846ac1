"""How late timers fire: what every connection waits for when one of them, or the kernel, holds the loop."""

from __future__ import annotations

import asyncio

from tailrace.model import events

_log = events.logger("broker")

_LAG_PROBE_SECONDS = 0.1


class LoopLag:
    def __init__(self, warning_ms: int) -> None:
        self._warning_seconds = warning_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self.last_ms = 0.0
        self.max_ms = 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + _LAG_PROBE_SECONDS
        self._timer = loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        late = asyncio.get_running_loop().time() - self._due
        self.last_ms = late * 1000
        self.max_ms = max(self.max_ms, self.last_ms)
        if late > self._warning_seconds:
            _log.warning("the event loop was held up", lag_ms=int(self.last_ms))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

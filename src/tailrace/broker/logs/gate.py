"""A bound on the lines of one log: nobody can fill the disk by asking often enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.model.events import EventLogger
    from tailrace.model.ports import Clock

_SECOND_MS = 1000.0


class Gate:
    """Lets so many lines pass in a second. What was left out is told with the first line of a later second."""

    def __init__(self, clock: Clock, log: EventLogger) -> None:
        self._clock = clock
        self._log = log
        self._began_ms = clock.monotonic_ms()
        self._passed = 0
        self._left_out = 0

    def is_open(self, lines_max: int) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._began_ms >= _SECOND_MS:
            if self._left_out:
                self._log.warning("more happened than is written", left_out=self._left_out, lines_per_second=lines_max)
            self._began_ms, self._passed, self._left_out = now_ms, 0, 0
        if self._passed >= lines_max:
            self._left_out += 1
            return False
        self._passed += 1
        return True

"""A clock for tests, which is put forward: what waits for a time does not wait for real."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from tailrace.real.clock import RealClock


class MovableClock(RealClock):
    """For `App(clock=...)`, `Delays(clock=...)` and `Claims(clock=...)`. It goes on by itself, too. Use it on one
    loop."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0
        self._watchers: list[Callable[[], None]] = []

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def advance(self, by: timedelta) -> None:
        """Records of retry topics that are due by then are handled now."""
        self.ahead_ms += by // timedelta(milliseconds=1)
        for watcher in self._watchers:
            watcher()

    def watch(self, watcher: Callable[[], None]) -> None:
        """It is called after each `advance`."""
        self._watchers.append(watcher)

    def forget(self, watcher: Callable[[], None]) -> None:
        self._watchers.remove(watcher)

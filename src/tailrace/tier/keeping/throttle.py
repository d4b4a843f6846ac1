"""So many bytes a second, for all copies of a broker together or for all cold reads."""

from __future__ import annotations

import asyncio

from tailrace.model.ports import Clock

UNLIMITED = (1 << 63) - 1


class Throttle:
    """A second's worth may be taken at once; whoever takes more waits until it would have been saved up."""

    def __init__(self, clock: Clock, bytes_per_second: int = UNLIMITED) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._free_at_ms = float("-inf")  # When all that was taken is paid for.

    async def take(self, size_bytes: int) -> None:
        if self.bytes_per_second >= UNLIMITED:
            return
        now_ms = self._clock.monotonic_ms()
        self._free_at_ms = max(self._free_at_ms, now_ms) + size_bytes * 1000 / self.bytes_per_second
        wait_ms = self._free_at_ms - now_ms - 1000
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)

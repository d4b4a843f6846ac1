"""A bound of what is under way: so many calls, and so many bytes in memory. Who waits is served in order.

One piece larger than all there is waits until nothing else is under way, and then goes: nobody waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class Budget:
    def __init__(self, *, calls_max: int, bytes_max: int) -> None:
        assert calls_max > 0, "somebody has to be able to go on"
        self.calls = 0
        self.bytes = 0
        self.calls_max = calls_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size_bytes: int) -> None:
        """`give` has to follow, unless it was cancelled."""
        if not self._waiting and self._fits(size_bytes):
            self._note(size_bytes)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size_bytes)  # It was its turn in the moment it was cancelled.
            else:
                with suppress(ValueError):  # `_serve` may have dropped it already.
                    self._waiting.remove((size_bytes, turn))
                self._serve()
            raise

    def give(self, size_bytes: int) -> None:
        self.calls -= 1
        self.bytes -= size_bytes
        assert self.calls >= 0, "what is given back was taken"
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._note(size_bytes)
                turn.set_result(None)

    def _fits(self, size_bytes: int) -> bool:
        return self.calls == 0 or (self.calls < self.calls_max and self.bytes + size_bytes <= self._bytes_max)

    def _note(self, size_bytes: int) -> None:
        self.calls += 1
        self.bytes += size_bytes

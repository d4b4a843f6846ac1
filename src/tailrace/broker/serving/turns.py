"""Whose requests are taken next, where connections have more of them waiting than a turn holds.

One loop serves all. A client that pipelines thousands of requests, and need not even read the answers, is served for
a turn, then waits in line with its like: one of them has a turn in each round of the loop. In every round all others
are read and answered too. So whoever has one request at a time waits for one such turn, however many stand in line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

# After this time no further request of a connection is begun, and how much that is while others stand in line. A round
# of the loop costs about 20 us beside.
_TURN_MS = 2.0
_SHARED_TURN_MS = 1.0


class Waiting(Protocol):
    def take_turn(self) -> None: ...


class Turns:
    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._line: dict[Waiting, None] = {}  # In order of arrival. Bounded by the connections.
        self._is_scheduled = False
        # How long whoever begins to take requests may go on. While there is a line that is for one request: the rest
        # of a pipeline stands in line as well.
        self.turn_ms = _TURN_MS

    def join(self, connection: Waiting) -> None:
        self._line[connection] = None
        self._go_on()

    def leave(self, connection: Waiting) -> bool:
        """Whether it stood in line."""
        return self._line.pop(connection, self) is None

    def _go_on(self) -> None:
        self.turn_ms = 0.0 if self._line else _TURN_MS
        if self._line and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._give_turn)

    def _give_turn(self) -> None:
        self._is_scheduled = False
        try:
            if self._line:
                connection = next(iter(self._line))
                del self._line[connection]
                self.turn_ms = _SHARED_TURN_MS if self._line else _TURN_MS
                connection.take_turn()
        finally:
            self._go_on()

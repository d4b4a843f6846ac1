"""Whose requests are taken next, where connections have more of them than a turn holds, or larger ones or answers.

One loop serves all. A client that pipelines thousands of requests, and need not even read the answers, is served for a
turn, then waits in line with its like; so do those whose requests or answers are large, once a few pieces of them were
received or sent in a round of the loop. In every other round one of the line has a turn of a millisecond, or those who
receive or send have a third of one, and all others are read and answered. So whoever has one small request at a time
waits for about that long, however many stand in line. Turns come after what is readable: a request that arrives during
one is taken before the next.

Clients have turns one after the other, and the connections of a client among themselves: many connections are not many
turns. A client is who comes from one address as one principal: users behind a proxy are several, and so are the
instances of a service on several machines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from typing import Protocol

from tailrace.model.ports import Clock
from tailrace.model.security import Principal

# After this time no further request of a connection is begun; and the same for a whole round while there is a line. A
# round of the loop costs about 20 us beside.
_TURN_MS = 2.0
_ROUND_MS = 1.0
# After this time no further piece of a large request (up to socket.read.bytes.per.turn) or answer (1 MB) is begun in a
# round, with a line or without one. With the last piece of a request that is taken as well: 0.5 ms for 900 KB.
_PIECES_MS = 0.3
# No round with pieces lasts longer: what is asked for later is asked for in another one.
_PIECES_ROUND_MAX_MS = 3.0
# Of small requests, as much as is worth a turn.
RUN_BYTES = 16 * 1024


class Waiting(Protocol):
    def take_turn(self) -> bool:
        """Whether it has only received or sent. Requests take longer than their turn shows: some go on as a task."""


class Client(Protocol):
    """Whose turn it is."""

    @property
    def principal(self) -> Principal: ...

    @property
    def address(self) -> Hashable: ...


class Turns:
    def __init__(self, clock: Clock, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._clock = clock
        self._call_soon = call_soon
        # By client, each with its own in order of arrival; whose turn is next stands first. Bounded by the connections.
        self._line: dict[tuple[Hashable, Principal], dict[Waiting, None]] = {}
        self._count = 0  # Of all in line.
        self._is_scheduled = False
        # Whose piece was let in last, or who has its turn now.
        self._admitted: Waiting | None = None
        # Whose piece was the first of this round, and when.
        self._first: Waiting | None = None
        self._pieces_since_ms = -inf
        # How long whoever begins to take requests may go on. While there is a line that is for one request: the rest
        # of a pipeline stands in line as well.
        self.turn_ms = _TURN_MS

    def join(self, connection: Waiting, client: Client) -> None:
        members = self._line.setdefault((client.address, client.principal), {})
        self._count += connection not in members
        members[connection] = None
        self._go_on()

    def leave(self, connection: Waiting, client: Client) -> bool:
        """Whether it stood in line."""
        members = self._line.get((client.address, client.principal)) if self._line else None
        if members is None or connection not in members:
            return False
        self._remove(connection, (client.address, client.principal), members)
        return True

    def _take_next(self) -> Waiting:
        """The first of the first client, who goes to the end."""
        client = next(iter(self._line))
        members = self._line.pop(client)
        self._line[client] = members
        connection = next(iter(members))
        self._remove(connection, client, members)
        return connection

    def _remove(self, connection: Waiting, client: tuple[Hashable, Principal], members: dict[Waiting, None]) -> None:
        del members[connection]
        self._count -= 1
        if not members:
            del self._line[client]

    def admits_piece(self, connection: Waiting) -> bool:
        """Whether a piece of a large request may be received now, or one of an answer be sent; else whoever asks should
        join. A round ends when the first asks again: to be told of its end would cost who is alone another round."""
        if self._line:
            return False
        now_ms = self._clock.monotonic_ms()
        round_ms = now_ms - self._pieces_since_ms
        if connection is self._first or round_ms >= _PIECES_ROUND_MAX_MS:
            self._first, self._pieces_since_ms = connection, now_ms
        elif round_ms >= _PIECES_MS:
            return False
        self._admitted = connection
        return True

    def begin_run(self, connection: Waiting, more_bytes: int) -> float:
        """How long whoever begins to take requests may go on, with so much behind the first. Many that came together
        are a piece too, else a client with many connections would have as many turns in a round: 0 is for one."""
        if more_bytes < RUN_BYTES or self._admitted is connection or not self.turn_ms or self.admits_piece(connection):
            return self.turn_ms
        return 0.0

    def _go_on(self) -> None:
        self.turn_ms = 0.0 if self._line else _TURN_MS
        if self._line and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._let_others_read)

    def _let_others_read(self) -> None:
        """The loop calls what was scheduled before what has become readable meanwhile: so turns wait for another round,
        in which that is read."""
        self._call_soon(self._give_turns)

    def _give_turns(self) -> None:
        self._is_scheduled = False
        ends_ms = self._clock.monotonic_ms() + _PIECES_MS
        try:
            for _ in range(self._count):
                if not self._line:
                    break  # Those who were left have gone.
                connection = self._take_next()
                self.turn_ms = _ROUND_MS if self._line else _TURN_MS
                self._admitted = connection
                has_only_moved = connection.take_turn()
                if not has_only_moved or self._clock.monotonic_ms() >= ends_ms:
                    break
        finally:
            self._admitted, self._pieces_since_ms = None, -inf
            self._go_on()

"""Who is connected to this node: its connections, and what each client has said of itself at the beginning.

What was said is forgotten with its connection, though not at once: at most twice as much is kept as there are
connections, and a thousand more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tailrace.broker.context import BoundListener
    from tailrace.model.security import Principal

_FEW = 1000


class Connected(Protocol):
    last_active_ms: float
    principal: Principal

    @property
    def peer(self) -> str: ...

    @property
    def listener(self) -> BoundListener: ...


class Door(Protocol):
    """What has connections: an acceptor."""

    @property
    def connections(self) -> Collection[Connected]: ...


class Greeting(NamedTuple):
    client_id: str
    software: str
    at_ms: int


_SILENT = Greeting("", "", -1)


class Roster:
    def __init__(self, doors: Sequence[Door]) -> None:
        self._doors = doors
        self._said: dict[str, Greeting] = {}
        self._room = _FEW

    def note(self, peer: str, greeting: Greeting) -> None:
        if len(self._said) >= self._room:
            connected = {each.peer for each in self._everyone()}
            self._said = {peer: said for peer, said in self._said.items() if peer in connected}
            self._room = 2 * len(self._said) + _FEW
        self._said[peer] = greeting

    @property
    def count(self) -> int:
        return sum(len(each.connections) for each in self._doors)

    def some(self, count: int, *, skip: int) -> list[tuple[Connected, Greeting]]:
        """In the order in which they came, by door."""
        return [(each, self._said.get(each.peer, _SILENT)) for each in islice(self._everyone(), skip, skip + count)]

    def _everyone(self) -> Iterator[Connected]:
        return (each for door in self._doors for each in door.connections)

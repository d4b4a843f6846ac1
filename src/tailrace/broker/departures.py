"""Who is told when a client's connection ends: what a client holds on this broker is for others then."""

from __future__ import annotations

from collections.abc import Callable


class Departures:
    """Of each connection, by its client's end (`host:port`), at most one is told."""

    __slots__ = ("_watched",)

    def __init__(self) -> None:
        self._watched: dict[str, Callable[[str], None]] = {}

    def watch(self, peer: str, tell: Callable[[str], None]) -> None:
        self._watched[peer] = tell

    def tell(self, peer: str) -> None:
        watcher = self._watched.pop(peer, None)
        if watcher is not None:
            watcher(peer)

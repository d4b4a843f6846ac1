"""What is asked at the door of one listener, and the bounds of those who stand there."""

from __future__ import annotations

from asyncio import Future, ensure_future
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.broker.auth.identities import Identity
from tailrace.broker.auth.login import Mechanisms
from tailrace.broker.auth.principals import Rule, map_subject
from tailrace.model.ports import Background, Want
from tailrace.model.security import ANONYMOUS, Principal


class Limits(NamedTuple):
    """All of them settings."""

    login_max_ms: int
    failure_delay_ms: int
    receive_max_bytes: int


@dataclass
class Door:
    listener_name: str
    limits: Limits
    handshakes: Handshakes
    identity: Identity | None = None  # With TLS: as whom this node answers.
    rules: tuple[Rule, ...] = (Rule(None),)
    # With SASL: what may be spoken. None without.
    mechanisms: Mechanisms | None = field(default=None, repr=False)

    def name(self, subject: str | None) -> Principal | None:
        """Who a client is by its certificate; None if no rule lets it in."""
        if subject is None:
            return ANONYMOUS
        name = map_subject(self.rules, subject)
        return None if name is None else Principal("User", name)


Step = Callable[[], Want]
Done = Callable[["Future[Want]"], None]


class Handshakes:
    """Steps of handshakes, in helper threads: a few at a time, in the order of arrival."""

    def __init__(self, background: Background, under_way_max: int) -> None:
        self._background = background
        self._under_way_max = under_way_max
        self._under_way_count = 0
        self._waiting: deque[tuple[Step, Done]] = deque()  # One for each connection at the door.

    def run(self, step: Step, done: Done) -> None:
        self._waiting.append((step, done))
        self._begin()

    def _begin(self) -> None:
        while self._waiting and self._under_way_count < self._under_way_max:
            step, done = self._waiting.popleft()
            self._under_way_count += 1
            future = ensure_future(self._background.run(step))
            future.add_done_callback(lambda ended, done=done: self._end(ended, done))  # type: ignore[misc]

    def _end(self, ended: Future[Want], done: Done) -> None:
        self._under_way_count -= 1
        try:
            done(ended)
        finally:
            self._begin()

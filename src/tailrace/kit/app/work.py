"""What an application has in hand of one partition, beside its window of records."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.kit.app.window import Entry, Window
from tailrace.kit.messages import Message
from tailrace.kit.retries.headers import Headers, Trail
from tailrace.model.ids import TopicPartition


class Outgoing(NamedTuple):
    """A record to write: a retry, a dead letter, an output. Without a partition its key decides."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(slots=True, eq=False)
class Held:
    """A record in a window, and where it stands in its retries."""

    message: Message
    trail: Trail
    tries: int = 0  # where it is now
    begun_ms: float | None = None  # by the monotonic clock, while its handler runs
    # Its writes when it is finished, beside those of its handler.
    marks: tuple[Outgoing, ...] = ()


Place = Entry[Held, Outgoing]


class Work:
    def __init__(self, partition: TopicPartition, window: Window[Held, Outgoing]) -> None:
        self.partition = partition
        self.window = window
        self.running = 0
        self.is_paused = False
        # Given up, or about to be: nothing more of it is started.
        self.is_closing = False
        # Somebody else may have it: what its handlers find counts no more.
        self.is_gone = False
        self._is_quiet = asyncio.Event()

    def note_start(self) -> None:
        self.running += 1
        self._is_quiet.clear()

    def note_end(self) -> None:
        self.running -= 1
        if not self.running:
            self._is_quiet.set()

    async def wait_quiet(self, timeout_ms: float) -> bool:
        """Whether none of its handlers runs any more."""
        if self.running:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._is_quiet.wait()
            except TimeoutError:
                return False
        return True

"""What an application has in hand of one partition, beside its window of records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from tailrace.kit.app.window import Entry, Window
from tailrace.kit.messages import Message
from tailrace.kit.retries.headers import Headers, Origin, Trail, is_moved, read_trail
from tailrace.model.ids import TopicPartition

# What the objects of a record take beside its bytes.
_RECORD_MEMORY_BYTES = 512
_VALUE = itemgetter(3)


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


@dataclass(slots=True, eq=False)
class Batch:
    """Records that a handler gets together: of one partition, one behind the other, and none of them moved before."""

    messages: list[Message]
    begun_ms: float | None = None  # as of one that is held


Item = Held | Batch
Place = Entry[Item, Outgoing]


def hold(message: Message) -> Held:
    origin = Origin(message.topic, message.partition, message.offset, message.timestamp)
    return Held(message, read_trail(origin, message.headers))


def size_of(message: Message) -> int:
    size = _RECORD_MEMORY_BYTES + len(message.raw_key or b"") + len(message.raw_value or b"")
    return size + sum(len(name) + len(content or b"") for name, content in message.headers)


def batches_of(messages: Iterable[Message], count_max: int) -> Iterator[list[Message]]:
    """Of one partition; one that was moved is alone. Those without headers, as most are, cost next to nothing here."""
    for has_headers, found in groupby(messages, key=_has_headers):
        run = list(found)
        size = 1 if has_headers and any(is_moved(message.headers) for message in run) else count_max
        yield from (run[start : start + size] for start in range(0, len(run), size))


def _has_headers(message: Message) -> bool:
    return bool(message[4])


def bytes_of(messages: Sequence[Message]) -> int:
    """As `size_of` each of them, but for headers and keys, which count as little."""
    return _RECORD_MEMORY_BYTES * len(messages) + sum(map(len, filter(None, map(_VALUE, messages))))


class Work:
    def __init__(self, partition: TopicPartition, window: Window[Item, Outgoing]) -> None:
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

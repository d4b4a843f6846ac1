"""Records that a share-partition has given up, until their dead letters are written.

Letters are written in the order in which records were given up, one write at a time. What cannot be written is tried
again, ever more seldom, and meanwhile the group goes on with other records. Members that have rejected records hear of
it when the first try has ended, whichever way: until the letter is written, a new leader delivers its record again.

Only if what waits leaves no room for anything else (`make_room`) it is archived without a letter, and the log says so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.model import events
from tailrace.model.errors import KafkaError

if TYPE_CHECKING:
    from tailrace.broker.shares.tally import Tally
    from tailrace.coordinator.share_partition.delivery import Dead, Delivery

_log = events.logger("shares")

Tell = Callable[[KafkaError | None], None]

_PAUSE_SECONDS = 0.2
_PAUSE_MAX_SECONDS = 30.0


class _Entry(NamedTuple):
    dead: Sequence[Dead]
    tell: Tell | None

    @property
    def deliveries(self) -> list[Delivery]:
        return [each.delivery for each in self.dead]


class GivenUp:
    def __init__(
        self,
        write: Callable[[Dead], Awaitable[None]],
        archive: Callable[[list[Delivery], Tell | None], None],
        begin: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        tally: Tally,
        *,
        on_failure: Callable[[], None],
        name: str,
    ) -> None:
        """`archive` is told when records have their letters, and what to tell of it once that is stored."""
        self.failure: str | None = None  # Of the last try, if it was in vain.
        self._write = write
        self._archive = archive
        self._begin = begin
        self._tally = tally
        self._on_failure = on_failure
        self._name = name
        self._entries: deque[_Entry] = deque()
        self._written_count = 0  # Of the first entry.
        self._task: asyncio.Task[None] | None = None

    @property
    def is_failing(self) -> bool:
        return self.failure is not None

    @property
    def is_writing(self) -> bool:
        return bool(self._entries) and not self.is_failing

    def add(self, dead: Sequence[Dead], tell: Tell | None) -> None:
        if tell is not None and self.is_failing:
            tell(None)
            tell = None
        self._entries.append(_Entry(dead, tell))
        if self._task is None:
            self._task = self._begin(self._run())

    def make_room(self) -> None:
        """There is no room for other records. What was tried in vain is given up without letters."""
        if not self.is_failing:
            return
        given_up = [delivery for entry in self._entries for delivery in entry.deliveries]
        count = sum(each.size for each in given_up)
        self._tally.lost += count
        _log.error(
            "records were given up without dead letters: their topic cannot be written, and there was no room for more",
            share_partition=self._name,
            records=count,
            first_offset=given_up[0].first,
            last_offset=given_up[-1].last,
        )
        self.close()
        self._archive(given_up, None)

    def close(self, error: KafkaError | None = None) -> None:
        """What waits is forgotten."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.failure, self._written_count = None, 0
        entries = list(self._entries)
        self._entries.clear()
        for entry in entries:
            if entry.tell is not None:
                entry.tell(error)

    async def _run(self) -> None:
        try:
            await self._write_all()
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _write_all(self) -> None:
        pause = _PAUSE_SECONDS
        while self._entries:
            entry = self._entries[0]
            try:
                for dead in entry.dead[self._written_count :]:
                    await self._write(dead)
                    self._written_count += 1
            except KafkaError as error:
                self._note_failure(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE_MAX_SECONDS)
                continue
            if self.is_failing:
                _log.info("dead letters are written again", share_partition=self._name)
            pause, self.failure = _PAUSE_SECONDS, None
            entry, self._written_count = self._entries.popleft(), 0  # It may not be told any more.
            self._archive(entry.deliveries, entry.tell)

    def _note_failure(self, error: KafkaError) -> None:
        if not self.is_failing:
            _log.warning(
                "dead letters cannot be written; they are tried again",
                share_partition=self._name,
                error=error.code.name,
                cause=error.message,
            )
        self.failure = error.message or error.code.name
        told = [entry.tell for entry in self._entries if entry.tell is not None]
        self._entries = deque(entry._replace(tell=None) for entry in self._entries)
        for tell in told:
            tell(None)
        self._on_failure()

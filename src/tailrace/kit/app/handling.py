"""One attempt at one record: given to the handler, and what follows: writes, another attempt, or the end.

Knows no window and no state of a partition. Raises only `HandlerStopError`, for a record that must not be passed over.

A handler gets a record that was moved as it was at first: topic, partition, offset and timestamp of its origin, so that
they name an event for good. Its headers tell of the attempts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tailrace.kit.app.calling import Caller
from tailrace.kit.app.outputs import Outputs
from tailrace.kit.app.status import Counts
from tailrace.kit.app.work import Held, Outgoing
from tailrace.kit.claims.claims import ClaimDamagedError, ClaimMissingError, Claims
from tailrace.kit.messages import Message
from tailrace.kit.retries.headers import STAGE_HANDLER, STAGE_VALUE, Failure, Trail, buried_headers, moved_headers
from tailrace.kit.retries.plan import Again, Bury, Later, Retries, decide_next
from tailrace.kit.serdes import DeserializationError
from tailrace.model.ports import Clock, StoreError

# Until the record is tried again.
_STORE_AWAY_MS = 5000

_log = logging.getLogger("tailrace.app")


class HandlerStopError(Exception):
    """A record has failed for the last time, and has nowhere to go."""


class Handling:
    def __init__(
        self,
        *,
        group: str,
        topic: str,
        caller: Caller,
        retries: Retries,
        outputs: Outputs | None,
        claims: Claims | None,
        clock: Clock,
        counts: Counts,
        takes_lists: bool = False,
    ) -> None:
        self._group = group
        self._topic = topic
        self._caller = caller
        self._retries = retries
        self._outputs = outputs
        self._claims = claims
        self._clock = clock
        self._counts = counts
        # The handler gets batches, and a record that goes alone as a list of one.
        self._takes_lists = takes_lists
        self.last_error: str | None = None

    async def attempt_all(self, messages: list[Message]) -> bool:
        """Of records that were never moved. False if it has failed: which of them are good is not known then, and no
        attempt of theirs is counted."""
        try:
            await self._caller.call(messages)
        except asyncio.CancelledError as error:
            if _is_to_end():
                raise
            self._note_failed_batch(messages, error)
            return False
        except Exception as error:
            self._note_failed_batch(messages, error)
            return False
        return True

    def _note_failed_batch(self, messages: list[Message], error: BaseException) -> None:
        first, last = messages[0], messages[-1]
        self.last_error = f"{first.topic}-{first.partition} at offsets {first.offset} to {last.offset}: {error!r}"
        _log.info("a batch is handled record by record: %s", self.last_error)

    async def attempt(self, held: Held) -> Sequence[Outgoing] | Again:
        held.tries += 1
        message = _as_at_first(held.message, held.trail)
        try:
            result = await self._caller.call([message] if self._takes_lists else message)
            if self._outputs is None:
                return ()
            await self._outputs.prepare()
            return self._outputs.of(message, result)
        except asyncio.CancelledError as error:
            if _is_to_end():
                raise
            found = self._judge(held, error)
        except Exception as error:
            found = self._judge(held, error)
        return await self._with_objects(found)

    async def give_up(self, held: Held, error: Exception) -> Sequence[Outgoing] | Again:
        """Without another attempt."""
        return await self._with_objects(self._judge(held, error, is_hopeless=True))

    @property
    def has_dead_letters(self) -> bool:
        return self._retries.dead_letters

    async def _with_objects(self, moves: Sequence[Outgoing] | Again) -> Sequence[Outgoing] | Again:
        """A topic that keeps a record longer keeps its object, too."""
        if self._claims is None or isinstance(moves, Again):
            return moves
        moved: list[Outgoing] = []
        for move in moves:
            try:
                value = await self._claims.move(move.topic, move.value, move.headers)
            except StoreError as error:
                _log.warning("a record that failed cannot move while the store is away: %s", error)
                return Again(_STORE_AWAY_MS)
            except (ClaimMissingError, ClaimDamagedError):
                value = move.value  # It moves all the same: whoever looks at it is told.
            moved.append(move._replace(value=value))
        return moved

    def _judge(self, held: Held, error: BaseException, *, is_hopeless: bool = False) -> Sequence[Outgoing] | Again:
        self._counts.failed_attempts += 1
        origin = held.trail.origin
        self.last_error = f"{origin.topic}-{origin.partition} at offset {origin.offset}: {error!r}"
        is_unreadable = isinstance(error, DeserializationError)
        level, tries = held.trail.level, held.tries
        decision = decide_next(
            self._retries, self._topic, level=level, tries=tries, error=error, is_hopeless=is_unreadable or is_hopeless
        )
        if isinstance(decision, Again):
            return decision
        failure = Failure(error, STAGE_VALUE if is_unreadable else STAGE_HANDLER, self._clock.wall_ms())
        message = held.message
        trail = held.trail._replace(group=self._group, attempts=held.trail.attempts + tries)
        if isinstance(decision, Later):
            self._counts.retried += 1
            trail = trail._replace(level=decision.level, due_ms=failure.at_ms + decision.delay_ms)
            headers = moved_headers(message.headers, trail, failure)
            return (Outgoing(decision.topic, message.raw_value, message.raw_key, headers),)
        if isinstance(decision, Bury):
            self._counts.buried += 1
            _log.warning("to %s after %d attempts: %s", decision.topic, trail.attempts, self.last_error)
            headers = buried_headers(message.headers, trail, failure)
            return (Outgoing(decision.topic, message.raw_value, message.raw_key, headers),)
        raise HandlerStopError(
            f"the handler of {self._topic} in group {self._group} has failed for the last time with {self.last_error}. "
            "It has no dead letters: mend the handler, or let it have some by Retries(dead_letters=True)"
        ) from error


def _is_to_end() -> bool:
    """This task is to end. Else something that the handler waited for was cancelled: its own failure."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _as_at_first(message: Message, trail: Trail) -> Message:
    if not message.headers:
        return message
    topic, partition, offset, timestamp = trail.origin
    return message.as_from(topic, partition, offset, timestamp)

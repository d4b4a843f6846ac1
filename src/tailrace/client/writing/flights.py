"""Batches of one partition under way to its leader: up to five together, in order.

A broker finds duplicates among the last five batches of a producer (KIP-98): so whatever is sent again is stored once.
If one of them fails in a way that may pass, all the others are waited for, which may have failed because of it, and
those that have failed are sent again in their order. The first batch under an identity goes alone: of a producer that
it does not know a broker takes any batch, the second as well, and the first could not be stored any more. Without
idempotence one is under way at a time, since nothing would restore the order.

Whoever gives up the first of them has to write the others under another identity, if they may be written again at all.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from tailrace.client.metadata import Cluster
from tailrace.client.writing.request import ProduceResult
from tailrace.client.writing.terms import (
    ANONYMOUS,
    SEQUENCE_MODULUS,
    Author,
    ProducerIdentity,
    ProducerOptions,
    UnknownOutcomeError,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_SEQUENCE, TopicPartition
from tailrace.model.ports import Bytes

UNDER_WAY_MAX = 5


class Sealable(Protocol):
    """Records that become a batch under an identity."""

    @property
    def record_count(self) -> int: ...

    def seal(self, identity: ProducerIdentity, base_sequence: int, *, transactional: bool) -> Bytes: ...


B = TypeVar("B", bound=Sealable)


class Flight(Generic[B]):
    """One batch, attempted until it is acknowledged. It is sealed once: what is sent again is the same to the last
    byte."""

    __slots__ = ("answer", "attempts", "batch", "deadline_ms", "follows_others", "is_uncertain", "sealed", "sequence")

    def __init__(self, batch: B, sequence: int | None = None) -> None:
        self.batch = batch
        self.sequence = sequence
        self.sealed: Bytes | None = None
        self.deadline_ms = 0.0
        self.attempts = 0
        self.follows_others = False
        # An attempt may have arrived, whatever later ones met.
        self.is_uncertain = False
        self.answer: asyncio.Task[ProduceResult]

    @property
    def is_acknowledged(self) -> bool:
        return self.answer.done() and not self.answer.cancelled() and self.answer.exception() is None

    def failure(self) -> KafkaError:
        """Raises what is no KafkaError."""
        error = self.answer.exception()
        assert error is not None, "asked only after a failure"
        if not isinstance(error, KafkaError):
            raise error
        return error

    @property
    def may_pass(self) -> bool:
        code = self.failure().code
        # Batches before it were under way, and one of them may have been refused at the time.
        is_gap = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.follows_others
        return code.retriable or is_gap

    def cancel(self) -> None:
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # Known to nobody, and no news for the log: another failure is reported.


class Flights(Generic[B]):
    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        author: Author,
        partition: TopicPartition,
        *,
        produce: Callable[[Bytes], Awaitable[ProduceResult]],
        on_answer: Callable[[], None] = lambda: None,
        most: int = UNDER_WAY_MAX,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._author = author
        self._partition = partition
        self._produce = produce  # one attempt
        self._on_answer = on_answer
        self._most = most
        self._identity = ANONYMOUS
        self._next_sequence = 0
        self._is_known = False  # The broker has acknowledged a batch under the present identity.
        self.under_way: deque[Flight[B]] = deque()

    @property
    def has_room(self) -> bool:
        most = self._most if self._is_known and self._identity != ANONYMOUS else 1
        return len(self.under_way) < most

    async def begin(self, flight: Flight[B], *, has_failed: bool = False) -> None:
        """Raises KafkaError if nothing may be written in the author's name; then it is not under way."""
        identity = await self._cluster.with_retries(
            lambda: self._author.identify(self._partition, has_failed=has_failed),
            timeout_ms=self._options.delivery_timeout_ms,
        )
        if identity != self._identity:
            assert not self.under_way, "an author changes its name while nothing is under way"
            self._identity, self._next_sequence, self._is_known = identity, 0, False
        if flight.sequence is None:
            flight.sequence = self._next_sequence
            self._next_sequence = (flight.sequence + flight.batch.record_count) % SEQUENCE_MODULUS
        if flight.sealed is None:
            sequence = NO_SEQUENCE if identity == ANONYMOUS else flight.sequence
            is_transactional = self._author.transactional_id is not None
            flight.sealed = flight.batch.seal(identity, sequence, transactional=is_transactional)
            flight.deadline_ms = self._cluster.ports.clock.monotonic_ms() + self._options.delivery_timeout_ms
        self._attempt(flight, follows_others=bool(self.under_way))
        self.under_way.append(flight)

    def _attempt(self, flight: Flight[B], *, follows_others: bool) -> None:
        assert flight.sealed is not None, "it was sealed when it began"
        flight.follows_others = follows_others
        flight.answer = asyncio.ensure_future(self._try(flight, flight.sealed))
        flight.answer.add_done_callback(lambda _: self._on_answer())

    async def _try(self, flight: Flight[B], sealed: Bytes) -> ProduceResult:
        try:
            return await self._produce(sealed)
        except UnknownOutcomeError:
            flight.is_uncertain = True
            raise

    def take_acknowledged(self) -> list[Flight[B]]:
        """Those from the first one on."""
        found = []
        while self.under_way and self.under_way[0].is_acknowledged:
            found.append(self.under_way.popleft())
            self._is_known = True
        return found

    @property
    def is_stuck(self) -> bool:
        """The first one has failed."""
        return bool(self.under_way) and self.under_way[0].answer.done() and not self.under_way[0].is_acknowledged

    async def take_others(self) -> list[Flight[B]]:
        """Once all have an answer: those that are acknowledged, though one before them is not."""
        await asyncio.wait([flight.answer for flight in self.under_way])
        found = [flight for flight in self.under_way if flight.is_acknowledged]
        self.under_way = deque(flight for flight in self.under_way if not flight.is_acknowledged)
        return found

    async def try_again(self) -> None:
        """All that have failed, after a pause, once all have an answer. Raises the failure of the first if that does
        not pass, or not in time."""
        first = self.under_way[0]
        error = first.failure()
        pause_ms = self._cluster.backoff_ms(first.attempts)
        if not first.may_pass or self._cluster.ports.clock.monotonic_ms() + pause_ms > first.deadline_ms:
            raise error
        first.attempts += 1
        await asyncio.sleep(pause_ms / 1000)
        for index, flight in enumerate(self.under_way):
            self._attempt(flight, follows_others=index > 0)

    def cancel(self) -> list[Flight[B]]:
        """Nothing is under way any more. Those that were; a broker may get them all the same."""
        found = list(self.under_way)
        self.under_way.clear()
        for flight in found:
            flight.cancel()
        return found

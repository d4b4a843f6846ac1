"""The records on their way to one partition: they gather in a lane, and leave it in batches. They are encoded as they
come, so that nothing but their bytes is kept of them; who wants to know where a record went has a future in its batch.

Records wait until a batch is full or `linger_ms` have passed. As many batches as the options allow are under way
together, in order (`writing.flights`); a lane alone counts the sequence numbers of its partition, from 0 on under each
identity that the `Author` gives. A failure that may pass (a lost connection, a new leader) is tried again until
`delivery_timeout_ms` have passed. Then the batch fails. Those that were under way behind it go on under another
identity, but for those that may have been written: they fail as well, and nobody knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.client.metadata import Cluster
from tailrace.client.writing.flights import Flight, Flights
from tailrace.client.writing.request import ProduceResult, produce_batch
from tailrace.client.writing.terms import (
    ACKS_ALL,
    ACKS_NONE,
    ANONYMOUS,
    SEQUENCE_MODULUS,
    Author,
    ProducerIdentity,
    ProducerOptions,
    UnknownOutcomeError,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Bytes
from tailrace.wire.records import encode_record, seal_batch

__all__ = [
    "ACKS_ALL",
    "ACKS_NONE",
    "ANONYMOUS",
    "SEQUENCE_MODULUS",
    "Author",
    "Delivered",
    "Headers",
    "Lane",
    "Many",
    "ProduceResult",
    "ProducerIdentity",
    "ProducerOptions",
    "UnknownOutcomeError",
    "produce_batch",
]

Headers = Sequence[tuple[str, bytes | None]]


class Delivered(NamedTuple):
    """Where a record went. The offset is -1 if the broker did not say (acks=0)."""

    partition: TopicPartition
    offset: int
    timestamp: int


class Many:
    """The records of one call that sent many: `sent` is their number once all are written, or the first failure."""

    def __init__(self) -> None:
        self.sent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._count = -1  # Not known while records are still added.
        self._batches = 0
        self._failure: KafkaError | None = None

    def begin_batch(self) -> None:
        self._batches += 1

    def end_batch(self, failure: KafkaError | None) -> None:
        self._batches -= 1
        self._failure = self._failure or failure
        self._settle()

    def complete(self, count: int) -> None:
        self._count = count
        self._settle()

    def _settle(self) -> None:
        if self._batches or self._count < 0 or self.sent.done():
            return
        if self._failure is None:
            self.sent.set_result(self._count)
        else:
            self.sent.set_exception(_copy(self._failure))
            # Whoever sent them may have left without waiting, on purpose: that is no news for the log.
            self.sent.exception()


class Batch:
    __slots__ = (
        "_futures",
        "_many",
        "_options",
        "base_timestamp",
        "held_bytes",
        "max_timestamp",
        "payload",
        "record_count",
    )

    def __init__(self, timestamp: int, options: ProducerOptions) -> None:
        self._options = options
        self.payload = bytearray()
        self.record_count = 0
        self.base_timestamp = self.max_timestamp = timestamp
        # What the producer's bound counts for it.
        self.held_bytes = 0
        self._futures: list[tuple[int, int, asyncio.Future[Delivered]]] = []  # with their index and timestamp
        self._many: list[Many] = []

    def add(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        waiter: asyncio.Future[Delivered] | Many,
    ) -> None:
        """Raises TypeError or AttributeError, and changes nothing, if these are not bytes."""
        self.payload += encode_record(timestamp - self.base_timestamp, self.record_count, key, value, headers)
        self.max_timestamp = max(self.max_timestamp, timestamp)
        if not isinstance(waiter, Many):
            self._futures.append((self.record_count, timestamp, waiter))
        elif not self._many or self._many[-1] is not waiter:
            self._many.append(waiter)
            waiter.begin_batch()
        self.record_count += 1

    def seal(self, identity: ProducerIdentity, base_sequence: int, *, transactional: bool) -> Bytes:
        return seal_batch(
            self.payload,
            self.record_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            compression=self._options.compression,
            level=self._options.level,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )

    def note_delivered(self, partition: TopicPartition, base_offset: int, append_time_ms: int) -> None:
        for index, timestamp, future in self._futures:
            if not future.done():
                offset = base_offset + index if base_offset >= 0 else -1
                future.set_result(Delivered(partition, offset, append_time_ms if append_time_ms >= 0 else timestamp))
        for many in self._many:
            many.end_batch(None)

    def note_failed(self, error: KafkaError) -> None:
        for _, _, future in self._futures:
            if not future.done():
                future.set_exception(_copy(error))
                # As with `Many`.
                future.exception()
        for many in self._many:
            many.end_batch(error)


def _copy(error: KafkaError) -> KafkaError:
    kind = UnknownOutcomeError if isinstance(error, UnknownOutcomeError) else KafkaError
    return kind(error.code, error.message)


class Lane:
    """`close` it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        author: Author,
        partition: TopicPartition,
        release: Callable[[int], None],
    ) -> None:
        self._options = options
        self._author = author
        self._partition = partition
        # Told how many bytes were acknowledged or have failed.
        self._release = release
        self._waiting: deque[Batch] = deque()  # bounded by buffer_bytes; the last one takes records
        self._due = 0  # So many of them, from the first one on, wait for nothing but their turn.
        self._wake = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None  # of the last one
        self._beginning: Batch | None = None  # in between: neither waiting nor under way
        self._flights: Flights[Batch] = Flights(
            cluster,
            options,
            author,
            partition,
            produce=lambda sealed: produce_batch(cluster, options, author, partition, sealed),
            on_answer=self._wake.set,
            most=options.under_way_max,
        )
        self._has_failed = False
        self._task = asyncio.create_task(self._run())

    @property
    def unacknowledged(self) -> int:
        """How many records have no answer yet."""
        return sum(batch.record_count for batch in self._unfinished)

    @property
    def _unfinished(self) -> list[Batch]:
        beginning = [] if self._beginning is None else [self._beginning]
        return [*(flight.batch for flight in self._flights.under_way), *beginning, *self._waiting]

    def add(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        waiter: asyncio.Future[Delivered] | Many,
        *,
        size_bytes: int,
        held_bytes: int,
        is_urgent: bool,
    ) -> bool:
        """Whether this record has filled a batch; it takes up to `size_bytes` there. An urgent one does not linger."""
        waiting, limit = self._waiting, self._options.batch_bytes
        batch = waiting[-1] if waiting else None
        is_full = False
        if batch is None or len(batch.payload) + size_bytes > limit:
            is_full = batch is not None
            batch = Batch(timestamp, self._options)
            batch.add(timestamp, key, value, headers, waiter)
            if is_full:
                self.hurry()
            waiting.append(batch)
        else:
            batch.add(timestamp, key, value, headers, waiter)
        batch.held_bytes += held_bytes
        is_full = is_full or len(batch.payload) >= limit
        if is_urgent or len(batch.payload) >= limit:
            self.hurry()
        elif self._linger is None and self._due < len(waiting):
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(self._options.linger_ms / 1000, self.hurry)
        return is_full

    def hurry(self) -> None:
        """What has gathered so far goes as soon as it may."""
        self._stop_lingering()
        if self._waiting:
            self._due = len(self._waiting)
            self._wake.set()

    def _stop_lingering(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def close(self) -> None:
        self._task.cancel()
        self._stop_lingering()
        self._drop(
            UnknownOutcomeError(ErrorCode.NETWORK_EXCEPTION, "the producer was closed before this was acknowledged")
        )

    def abandon(self, error: KafkaError) -> bool:
        """Everything in this lane fails with the error at once. Whether a batch was under way, which the broker may
        have, or may still get: the identity that it was written under must not be used for this partition again."""
        was_under_way = self._beginning is not None or bool(self._flights.under_way)
        if was_under_way:
            self._task.cancel()
            self._task = asyncio.create_task(self._run())
        self._drop(error)
        return was_under_way

    def _drop(self, error: KafkaError) -> None:
        unfinished = self._unfinished
        self._beginning = None
        self._waiting.clear()
        self._due = 0
        self._flights.cancel()
        for batch in unfinished:
            self._fail(batch, error)

    async def _run(self) -> None:
        flights = self._flights
        while True:
            self._note_delivered(flights.take_acknowledged())
            if flights.is_stuck:
                self._note_delivered(await flights.take_others())
                try:
                    await flights.try_again()
                except Exception as error:  # A bug must fail these records, not leave whoever waits for them waiting.
                    self._give_up(error)
            elif self._due and flights.has_room:
                await self._begin()
            else:
                await self._wake.wait()
                self._wake.clear()

    async def _begin(self) -> None:
        self._beginning = batch = self._waiting.popleft()
        self._due -= 1
        if not self._waiting:
            self._stop_lingering()
        try:
            await self._flights.begin(Flight(batch), has_failed=self._has_failed)
            self._has_failed = False
            self._beginning = None
        except Exception as error:  # As above.
            self._beginning = None
            self._note_failure(batch, error)

    def _give_up(self, error: Exception) -> None:
        """The first of those under way, none of which is acknowledged."""
        first, *others = self._flights.cancel()
        fate = _knowing(error, is_uncertain=first.is_uncertain)
        lost = [flight.batch for flight in others if flight.is_uncertain]
        again = [flight.batch for flight in others if not flight.is_uncertain]
        self._waiting.extendleft(reversed(again))
        self._due += len(again)
        self._note_failure(first.batch, fate)
        for batch in lost:
            self._fail(batch, UnknownOutcomeError(fate.code, fate.message))

    def _note_failure(self, batch: Batch, error: Exception) -> None:
        self._has_failed = True
        failure = error if isinstance(error, KafkaError) else _bug(error)
        self._author.note_failure(failure)
        self._fail(batch, failure)

    def _note_delivered(self, flights: Sequence[Flight[Batch]]) -> None:
        for flight in flights:
            result = flight.answer.result()
            flight.batch.note_delivered(self._partition, result.base_offset, result.log_append_time_ms)
            self._release(flight.batch.held_bytes)

    def _fail(self, batch: Batch, error: KafkaError) -> None:
        batch.note_failed(error)
        self._release(batch.held_bytes)


def _knowing(error: Exception, *, is_uncertain: bool) -> KafkaError:
    """Whatever the last attempt met, an earlier one may have arrived."""
    failure = error if isinstance(error, KafkaError) else _bug(error)
    return UnknownOutcomeError(failure.code, failure.message) if is_uncertain else failure


def _bug(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer has a bug: {error!r}")

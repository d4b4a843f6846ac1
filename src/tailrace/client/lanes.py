"""The records on their way to one partition: they gather in a lane, and leave it in batches. They are encoded as they
come, so that nothing but their bytes is kept of them; who wants to know where a record went has a future in its batch.

Records wait until a batch is full or `linger_ms` have passed, and one batch is under way at a time. So nothing can
overtake, whatever is sent again, and sequence numbers simply follow each other: from 0 on under each identity that the
`Author` gives. A failure that may pass (a lost connection, a new leader) is tried again until `delivery_timeout_ms`
have passed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TopicPartition
from tailrace.model.ports import Bytes
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.records import Compression, encode_record, seal_batch

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
    "ProducerIdentity",
    "ProducerOptions",
    "UnknownOutcomeError",
    "produce_batch",
]

SEQUENCE_MODULUS = 1 << 31
_ANSWER_MARGIN_MS = 5000
ACKS_ALL = -1
ACKS_NONE = 0

ProduceResult = ProduceResponse.PartitionProduceResponse
Headers = Sequence[tuple[str, bytes | None]]

# Answers after which the records may have been written all the same.
_UNCERTAIN = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.UNKNOWN_SERVER_ERROR}
)


class UnknownOutcomeError(KafkaError):
    """The records may have been written, and may not: an attempt to write them was not answered, or so that it tells
    nothing. Any other failure of a record says that it was not written."""


class Delivered(NamedTuple):
    """Where a record went. The offset is -1 if the broker did not say (acks=0)."""

    partition: TopicPartition
    offset: int
    timestamp: int


class ProducerOptions(NamedTuple):
    acks: int = ACKS_ALL
    idempotent: bool = True  # in effect only with acks=-1
    compression: Compression = Compression.NONE
    level: int | None = None
    linger_ms: float = 5
    batch_bytes: int = 256 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    create_topics: bool = False


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


ANONYMOUS = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Author(Protocol):
    """Under whose name the batches of all lanes are written."""

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def produce_version_max(self) -> int: ...

    def check_may_send(self) -> None:
        """Raises KafkaError if a record that comes now must not be taken."""

    async def identify(self, partition: TopicPartition, *, has_failed: bool) -> ProducerIdentity:
        """Before each batch is built; `has_failed` if the one before it was given up: whether the broker has it is not
        known. Raises KafkaError if nothing may be written to this partition."""

    def note_failure(self, error: KafkaError) -> None:
        """A batch was given up."""


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
    __slots__ = ("_futures", "_many", "base_timestamp", "count", "held_bytes", "max_timestamp", "payload")

    def __init__(self, timestamp: int) -> None:
        self.payload = bytearray()
        self.count = 0
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
        self.payload += encode_record(timestamp - self.base_timestamp, self.count, key, value, headers)
        self.max_timestamp = max(self.max_timestamp, timestamp)
        if not isinstance(waiter, Many):
            self._futures.append((self.count, timestamp, waiter))
        elif not self._many or self._many[-1] is not waiter:
            self._many.append(waiter)
            waiter.begin_batch()
        self.count += 1

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
        self._cluster = cluster
        self._options = options
        self._author = author
        self._partition = partition
        # Told how many bytes were acknowledged or have failed.
        self._release = release
        self._waiting: deque[Batch] = deque()  # bounded by buffer_bytes; the last one takes records
        self._under_way: Batch | None = None
        self._is_due = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self._identity = ANONYMOUS
        self._next_sequence = 0
        self._has_failed = False
        self._task = asyncio.create_task(self._run())

    @property
    def unacknowledged(self) -> int:
        """How many records have no answer yet."""
        return sum(batch.count for batch in self._waiting) + (self._under_way.count if self._under_way else 0)

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
            batch = Batch(timestamp)
            batch.add(timestamp, key, value, headers, waiter)
            waiting.append(batch)
        else:
            batch.add(timestamp, key, value, headers, waiter)
        batch.held_bytes += held_bytes
        is_full = is_full or len(batch.payload) >= limit
        if is_full or is_urgent:
            self._is_due.set()
        elif self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(self._options.linger_ms / 1000, self.hurry)
        return is_full

    def hurry(self) -> None:
        if self._waiting:
            self._is_due.set()

    def close(self) -> None:
        self._task.cancel()
        if self._linger is not None:
            self._linger.cancel()
        self._drop(
            UnknownOutcomeError(ErrorCode.NETWORK_EXCEPTION, "the producer was closed before this was acknowledged")
        )

    def abandon(self, error: KafkaError) -> bool:
        """Everything in this lane fails with the error at once. Whether a batch was under way, which the broker may
        have, or may still get: the identity that it was written under must not be used for this partition again."""
        was_under_way = self._under_way is not None
        if was_under_way:
            self._task.cancel()
            self._task = asyncio.create_task(self._run())
        self._drop(error)
        return was_under_way

    def _drop(self, error: KafkaError) -> None:
        unfinished = list(self._waiting)
        if self._under_way is not None:
            unfinished.insert(0, self._under_way)
        self._under_way = None
        self._waiting.clear()
        self._is_due.clear()
        for batch in unfinished:
            self._fail(batch, error)

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            batch = self._under_way = self._take()
            try:
                await self._deliver(batch)
            except Exception as error:  # A bug must fail these records, not leave whoever waits for them waiting.
                self._has_failed = True
                self._under_way = None
                failure = error if isinstance(error, KafkaError) else _bug(error)
                self._author.note_failure(failure)
                self._fail(batch, failure)

    def _take(self) -> Batch:
        """The next batch. What stays behind has lingered long enough once this batch is through."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        batch = self._waiting.popleft()
        if not self._waiting:
            self._is_due.clear()
        return batch

    async def _deliver(self, batch: Batch) -> None:
        sealed: bytearray | None = None
        is_uncertain = False

        async def attempt() -> ProduceResult:
            nonlocal sealed, is_uncertain
            if sealed is None:  # Built once: what is sent again is the same to the last byte.
                sealed = await self._seal(batch)
            try:
                return await produce_batch(self._cluster, self._options, self._author, self._partition, sealed)
            except UnknownOutcomeError:
                is_uncertain = True
                raise

        try:
            result = await self._cluster.with_retries(attempt, timeout_ms=self._options.delivery_timeout_ms)
        except KafkaError as error:
            if is_uncertain:  # Whatever the last attempt met, an earlier one may have arrived.
                raise UnknownOutcomeError(error.code, error.message) from error
            raise
        self._under_way = None
        batch.note_delivered(self._partition, result.base_offset, result.log_append_time_ms)
        self._release(batch.held_bytes)

    async def _seal(self, batch: Batch) -> bytearray:
        identity = await self._author.identify(self._partition, has_failed=self._has_failed)
        if identity != self._identity:
            self._identity = identity
            self._next_sequence = 0
        self._has_failed = False
        sequence = NO_SEQUENCE
        if identity != ANONYMOUS:
            sequence = self._next_sequence
            self._next_sequence = (sequence + batch.count) % SEQUENCE_MODULUS
        return seal_batch(
            batch.payload,
            batch.count,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp,
            compression=self._options.compression,
            level=self._options.level,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            transactional=self._author.transactional_id is not None,
        )

    def _fail(self, batch: Batch, error: KafkaError) -> None:
        batch.note_failed(error)
        self._release(batch.held_bytes)


async def produce_batch(
    cluster: Cluster, options: ProducerOptions, author: Author, partition: TopicPartition, batch: Bytes
) -> ProduceResult:
    """One attempt to hand a whole batch to the leader. After a KafkaError the next one asks anew who leads."""
    topic, index = partition
    leader = await cluster.leader_of(partition)
    version_max = author.produce_version_max
    request = ProduceRequest(
        transactional_id=author.transactional_id,
        acks=options.acks,
        timeout_ms=options.request_timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch)]
            )
        ],
    )
    try:
        connection = await cluster.connection_to(leader.leader_id)
        if options.acks == ACKS_NONE:
            await connection.post(request, version_max=version_max)
            return ProduceResult(base_offset=-1)
        # The broker may take the whole timeout for the acks; its answer then is still on its way.
        patience_ms = options.request_timeout_ms + _ANSWER_MARGIN_MS
        try:
            answer = await connection.call(request, ProduceResponse, version_max=version_max, timeout_ms=patience_ms)
        except KafkaError as error:
            if error.code is ErrorCode.NETWORK_EXCEPTION:
                raise UnknownOutcomeError(error.code, error.message) from error
            raise
        return _judge(partition, answer, len(batch))
    except KafkaError:
        cluster.forget(topic)
        raise


def _judge(partition: TopicPartition, answer: ProduceResponse, batch_bytes: int) -> ProduceResult:
    results = [result for topic in answer.responses for result in topic.partition_responses]
    if not results:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker says nothing of {partition}")
    result = results[0]
    code = error_code(result.error_code)
    if code is ErrorCode.NONE:
        return result
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        # An earlier attempt did arrive, so long ago that its offset is not known any more.
        return ProduceResult(base_offset=-1)
    message = result.error_message or f"{partition} does not take a batch of {batch_bytes} bytes"
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        message += f"; allow it with: tailrace topic alter {partition.topic} --set max.message.bytes=..."
    raise (UnknownOutcomeError if code in _UNCERTAIN else KafkaError)(code, message)


def _bug(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer has a bug: {error!r}")

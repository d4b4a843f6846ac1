"""The records on their way to one partition: they gather in a lane, and leave it in batches.

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
from tailrace.wire.records import Compression, build_batch

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


class LaneRecord(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    size_bytes: int
    delivered: asyncio.Future[Delivered]


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


class Lane:
    """`close` it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        author: Author,
        partition: TopicPartition,
        release: Callable[[Sequence[LaneRecord]], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._author = author
        self._partition = partition
        # Told of records that were acknowledged or have failed.
        self._release = release
        self._waiting: deque[LaneRecord] = deque()  # bounded by buffer_bytes
        self._waiting_bytes = 0
        self._under_way: list[LaneRecord] = []
        self._is_due = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self._identity = ANONYMOUS
        self._next_sequence = 0
        self._has_failed = False
        self._task = asyncio.create_task(self._run())

    @property
    def unacknowledged(self) -> int:
        return len(self._under_way) + len(self._waiting)

    def add(self, record: LaneRecord, *, is_urgent: bool) -> bool:
        """Whether this record has filled a batch. An urgent one does not linger."""
        batches = self._waiting_bytes // self._options.batch_bytes
        self._waiting.append(record)
        self._waiting_bytes += record.size_bytes
        if self._waiting_bytes >= self._options.batch_bytes or is_urgent:
            self._is_due.set()
        elif self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(self._options.linger_ms / 1000, self.hurry)
        return self._waiting_bytes // self._options.batch_bytes > batches

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
        was_under_way = bool(self._under_way)
        if was_under_way:
            self._task.cancel()
            self._task = asyncio.create_task(self._run())
        self._drop(error)
        return was_under_way

    def _drop(self, error: KafkaError) -> None:
        unfinished = [*self._under_way, *self._waiting]
        self._under_way.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._is_due.clear()
        self._fail(unfinished, error)

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._take()
            try:
                await self._deliver()
            except Exception as error:  # A bug must fail these records, not leave whoever waits for them waiting.
                self._has_failed = True
                records, self._under_way = self._under_way, []
                failure = error if isinstance(error, KafkaError) else _bug(error)
                self._author.note_failure(failure)
                self._fail(records, failure)

    def _take(self) -> None:
        """The next batch. What stays behind has lingered long enough once this batch is through."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        size = 0
        while self._waiting and (not size or size + self._waiting[0].size_bytes <= self._options.batch_bytes):
            record = self._waiting.popleft()
            size += record.size_bytes
            self._under_way.append(record)
        self._waiting_bytes -= size
        if not self._waiting:
            self._is_due.clear()

    async def _deliver(self) -> None:
        batch: bytes | None = None
        is_uncertain = False

        async def attempt() -> ProduceResult:
            nonlocal batch, is_uncertain
            if batch is None:  # Built once: what is sent again is the same to the last byte.
                batch = await self._build()
            try:
                return await produce_batch(self._cluster, self._options, self._author, self._partition, batch)
            except UnknownOutcomeError:
                is_uncertain = True
                raise

        try:
            result = await self._cluster.with_retries(attempt, timeout_ms=self._options.delivery_timeout_ms)
        except KafkaError as error:
            if is_uncertain:  # Whatever the last attempt met, an earlier one may have arrived.
                raise UnknownOutcomeError(error.code, error.message) from error
            raise
        records, self._under_way = self._under_way, []
        for index, record in enumerate(records):
            offset = result.base_offset + index if result.base_offset >= 0 else -1
            timestamp = result.log_append_time_ms if result.log_append_time_ms >= 0 else record.timestamp
            if not record.delivered.done():
                record.delivered.set_result(Delivered(self._partition, offset, timestamp))
        self._release(records)

    async def _build(self) -> bytes:
        identity = await self._author.identify(self._partition, has_failed=self._has_failed)
        if identity != self._identity:
            self._identity = identity
            self._next_sequence = 0
        self._has_failed = False
        sequence = NO_SEQUENCE
        if identity != ANONYMOUS:
            sequence = self._next_sequence
            self._next_sequence = (sequence + len(self._under_way)) % SEQUENCE_MODULUS
        return build_batch(
            [(index, *record[:4]) for index, record in enumerate(self._under_way)],
            compression=self._options.compression,
            level=self._options.level,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
            transactional=self._author.transactional_id is not None,
        )

    def _fail(self, records: Sequence[LaneRecord], error: KafkaError) -> None:
        kind = UnknownOutcomeError if isinstance(error, UnknownOutcomeError) else KafkaError
        for record in records:
            if not record.delivered.done():
                record.delivered.set_exception(kind(error.code, error.message))
                # Whoever sent it may have left without waiting, on purpose: that is no news for the log.
                record.delivered.exception()
        self._release(records)


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

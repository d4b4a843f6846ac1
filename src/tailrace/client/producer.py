"""The producer: records in, batches out, in order within each partition.

Each partition has a lane: records gather there until a batch is full or `linger_ms` have passed, and one batch is under
way at a time. So nothing can overtake, whatever is sent again, and an idempotent producer's sequence numbers simply
follow each other. Lanes of one broker share its connection, on which their requests are pipelined.

`send` waits only while `buffer_bytes` are not yet acknowledged; it returns a future of where the record went. A
failure that may pass (a lost connection, a new leader) is tried again until `delivery_timeout_ms` have passed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.partitioner import StickyChoice, partition_for_key
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, PartitionIndex, TopicPartition
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.records import Compression, build_batch

# From version 13 on topics are named by id only.
_PRODUCE_VERSION_MAX = 12
_INIT_PRODUCER_ID_VERSION_MAX = 5
# What a record takes beside its key, value and headers, at most: lengths, deltas and the count of headers.
_RECORD_OVERHEAD_BYTES = 32
# What its objects take in memory, which for small records is more than their bytes.
_RECORD_MEMORY_BYTES = 512
_SEQUENCE_MODULUS = 1 << 31
_CREATION_TIMEOUT_MS = 3000
_ANSWER_MARGIN_MS = 5000
ACKS_ALL = -1
ACKS_NONE = 0

_Result = ProduceResponse.PartitionProduceResponse
Headers = Sequence[tuple[str, bytes | None]]


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


class _Record(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    size_bytes: int
    delivered: asyncio.Future[Delivered]


class _Identity(NamedTuple):
    producer_id: int
    producer_epoch: int


_ANONYMOUS = _Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class Producer:
    """Use it as an async context manager: leaving it flushes."""

    def __init__(self, cluster: Cluster, options: ProducerOptions | None = None) -> None:
        self.cluster = cluster
        self.options = options or ProducerOptions()
        self.is_flushing = False
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._sticky: dict[str, StickyChoice] = {}
        self._unacknowledged_bytes = 0
        self._room = asyncio.Event()
        self._identity: _Identity | None = None
        self._identifying = asyncio.Lock()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.flush()
        self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[Delivered]:
        size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size += sum(len(name) * 4 + len(content or b"") + 10 for name, content in headers)
        held = size + _RECORD_MEMORY_BYTES
        while self._unacknowledged_bytes and self._unacknowledged_bytes + held > self.options.buffer_bytes:
            self._room.clear()
            await self._room.wait()
        lane = await self._lane(topic, key, partition, size)
        record = _Record(
            self.cluster.ports.clock.wall_ms() if timestamp is None else timestamp,
            key,
            value,
            headers,
            size,
            asyncio.get_running_loop().create_future(),
        )
        self._unacknowledged_bytes += held
        if lane.add(record):
            await asyncio.sleep(0)  # Lets the full batch go out, even if the caller never waits for anything.
        return record.delivered

    async def _lane(self, topic: str, key: bytes | None, partition: int | None, size_bytes: int) -> _Lane:
        known = self.cluster.known_topic(topic) or await self._describe(topic)
        if partition is None:
            partition = self._choose_partition(known, key, size_bytes)
        where = TopicPartition(topic, PartitionIndex(partition))
        lane = self._lanes.get(where)
        if lane is None:
            await self._check_exists(where)
            # Another caller may have come first meanwhile, and two lanes would overtake each other.
            lane = self._lanes.get(where) or _Lane(self, where)
            self._lanes[where] = lane
        return lane

    def _choose_partition(self, topic: TopicMetadata, key: bytes | None, size_bytes: int) -> int:
        partitions = topic.partitions
        if key is not None:
            return partition_for_key(key, len(partitions))
        choice = self._sticky.get(topic.name)
        if choice is None:
            choice = self._sticky[topic.name] = StickyChoice(self.cluster.ports.random, self.options.batch_bytes)
        available = [index for index, found in partitions.items() if found.leader_id >= 0]
        return choice.choose(available or list(partitions), size_bytes)

    async def _check_exists(self, where: TopicPartition) -> None:
        if where.partition in (await self._describe(where.topic)).partitions:
            return
        self.cluster.forget(where.topic)  # It may have been added since.
        count = len((await self._describe(where.topic)).partitions)
        if not 0 <= where.partition < count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {where.topic} has no partition {where.partition}: it has 0 to {count - 1}",
            )

    async def _describe(self, topic: str) -> TopicMetadata:
        if not self.options.create_topics or self.cluster.known_topic(topic) is not None:
            return await self.cluster.topic(topic)

        async def ask() -> TopicMetadata:
            return (await self.cluster.refresh([topic], allow_auto_creation=True))[topic]

        # The first answer to the request that creates a topic may still say that it is not there.
        return await self.cluster.with_retries(ask, timeout_ms=_CREATION_TIMEOUT_MS)

    async def identify(self, *, anew: bool) -> _Identity:
        """The producer id that all lanes share; `anew` for a lane whose last batch has failed: whether the broker has
        it is not known, and under a new id the sequence may start over."""
        if anew:
            return await self._ask_for_identity()
        async with self._identifying:
            if self._identity is None:
                self._identity = await self._ask_for_identity()
            return self._identity

    async def _ask_for_identity(self) -> _Identity:
        connection = await self.cluster.any_connection()
        answer = await connection.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
            InitProducerIdResponse,
            version_max=_INIT_PRODUCER_ID_VERSION_MAX,
        )
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), "the broker gives no producer id")
        return _Identity(answer.producer_id, answer.producer_epoch)

    def release(self, records: Sequence[_Record]) -> None:
        self._unacknowledged_bytes -= sum(record.size_bytes + _RECORD_MEMORY_BYTES for record in records)
        self._room.set()

    async def flush(self) -> None:
        """Until every record so far was acknowledged or has failed; the failures are in the futures."""
        self.is_flushing = True
        try:
            while self._unacknowledged_bytes:
                for lane in self._lanes.values():
                    lane.hurry()
                self._room.clear()
                await self._room.wait()
        finally:
            self.is_flushing = False

    def close(self) -> None:
        """At once; what was not flushed fails."""
        for lane in self._lanes.values():
            lane.close()


class _Lane:
    """The records on their way to one partition."""

    def __init__(self, producer: Producer, partition: TopicPartition) -> None:
        self._producer = producer
        self._cluster = producer.cluster
        self._options = producer.options
        self._partition = partition
        self._waiting: deque[_Record] = deque()  # bounded by buffer_bytes
        self._waiting_bytes = 0
        self._under_way: list[_Record] = []
        self._is_due = asyncio.Event()
        self._linger: asyncio.TimerHandle | None = None
        self._identity: _Identity | None = None
        self._next_sequence = 0
        self._has_failed = False
        self._task = asyncio.create_task(self._run())

    def add(self, record: _Record) -> bool:
        """Whether this record has filled a batch."""
        batches = self._waiting_bytes // self._options.batch_bytes
        self._waiting.append(record)
        self._waiting_bytes += record.size_bytes
        if self._waiting_bytes >= self._options.batch_bytes or self._producer.is_flushing:
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
        unfinished = [*self._under_way, *self._waiting]
        self._under_way.clear()
        self._waiting.clear()
        self._fail(
            unfinished, KafkaError(ErrorCode.NETWORK_EXCEPTION, "the producer was closed before this was acknowledged")
        )

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            self._take()
            try:
                await self._deliver()
            except Exception as error:  # A bug must fail these records, not leave whoever waits for them waiting.
                self._has_failed = True
                records, self._under_way = self._under_way, []
                self._fail(records, error if isinstance(error, KafkaError) else _bug(error))

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

        async def attempt() -> _Result:
            nonlocal batch
            if batch is None:  # Built once: what is sent again is the same to the last byte.
                batch = await self._build()
            return await self._produce(batch)

        result = await self._cluster.with_retries(attempt, timeout_ms=self._options.delivery_timeout_ms)
        records, self._under_way = self._under_way, []
        for index, record in enumerate(records):
            offset = result.base_offset + index if result.base_offset >= 0 else -1
            timestamp = result.log_append_time_ms if result.log_append_time_ms >= 0 else record.timestamp
            if not record.delivered.done():
                record.delivered.set_result(Delivered(self._partition, offset, timestamp))
        self._producer.release(records)

    async def _build(self) -> bytes:
        identity, sequence = _ANONYMOUS, NO_SEQUENCE
        if self._options.idempotent and self._options.acks == ACKS_ALL:
            if self._identity is None or self._has_failed:
                self._identity = await self._producer.identify(anew=self._has_failed)
                self._has_failed = False
                self._next_sequence = 0
            identity, sequence = self._identity, self._next_sequence
            self._next_sequence = (sequence + len(self._under_way)) % _SEQUENCE_MODULUS
        return build_batch(
            [(index, *record[:4]) for index, record in enumerate(self._under_way)],
            compression=self._options.compression,
            level=self._options.level,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )

    async def _produce(self, batch: bytes) -> _Result:
        topic, index = self._partition
        leader = await self._cluster.leader_of(self._partition)
        request = ProduceRequest(
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch)]
                )
            ],
        )
        try:
            connection = await self._cluster.connection_to(leader.leader_id)
            if self._options.acks == ACKS_NONE:
                await connection.post(request, version_max=_PRODUCE_VERSION_MAX)
                return _Result(base_offset=-1)
            # The broker may take the whole timeout for the acks; its answer then is still on its way.
            patience_ms = self._options.request_timeout_ms + _ANSWER_MARGIN_MS
            answer = await connection.call(
                request, ProduceResponse, version_max=_PRODUCE_VERSION_MAX, timeout_ms=patience_ms
            )
            return self._judge(answer, len(batch))
        except KafkaError:
            self._cluster.forget(topic)
            raise

    def _judge(self, answer: ProduceResponse, batch_bytes: int) -> _Result:
        results = [result for topic in answer.responses for result in topic.partition_responses]
        if not results:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker says nothing of {self._partition}")
        result = results[0]
        code = error_code(result.error_code)
        if code is ErrorCode.NONE:
            return result
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            # An earlier attempt did arrive, so long ago that its offset is not known any more.
            return _Result(base_offset=-1)
        message = result.error_message or f"{self._partition} does not take a batch of {batch_bytes} bytes"
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            message += f"; allow it with: tailrace topic alter {self._partition.topic} --set max.message.bytes=..."
        raise KafkaError(code, message)

    def _fail(self, records: Sequence[_Record], error: KafkaError) -> None:
        for record in records:
            if not record.delivered.done():
                record.delivered.set_exception(KafkaError(error.code, error.message))
                # Whoever sent it may have left without waiting, on purpose: that is no news for the log.
                record.delivered.exception()
        self._producer.release(records)


def _bug(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the producer has a bug: {error!r}")

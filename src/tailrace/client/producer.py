"""The producer: records in, batches out, in order within each partition.

Each partition has a lane (`lanes`). Lanes of one broker share its connection, on which their requests are pipelined.
`send` waits only while `buffer_bytes` are not yet acknowledged; it returns a future of where the record went.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.lanes import (
    ACKS_ALL,
    ANONYMOUS,
    Author,
    Delivered,
    Headers,
    Lane,
    Many,
    ProducerIdentity,
    ProducerOptions,
    UnknownOutcomeError,
)
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.partitioner import StickyChoice, partition_for_key
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse

__all__ = ["ACKS_ALL", "Delivered", "Headers", "IdempotentAuthor", "Producer", "ProducerOptions", "UnknownOutcomeError"]

# From version 13 on topics are named by id only.
_PRODUCE_VERSION_MAX = 12
_INIT_PRODUCER_ID_VERSION_MAX = 5
# What a record takes beside its key, value and headers, at most: lengths, deltas and the count of headers.
_RECORD_OVERHEAD_BYTES = 32
# What its objects take in memory, which for small records is more than their bytes.
_RECORD_MEMORY_BYTES = 512
_CREATION_TIMEOUT_MS = 3000


# Value, key, headers, partition and timestamp; None is for the producer to choose.
Sendable = tuple[bytes | None, bytes | None, Headers, int | None, int | None]


class _Spread(NamedTuple):
    """Where records of a topic without a key go, as long as the same is known of it."""

    topic: TopicMetadata
    available: list[int]
    choice: StickyChoice


class Producer:
    """Use it as an async context manager: leaving it flushes. Its author is itself, unless somebody writes through
    it in transactions."""

    def __init__(
        self, cluster: Cluster, options: ProducerOptions | None = None, *, author: Author | None = None
    ) -> None:
        self.cluster = cluster
        self.options = options or ProducerOptions()
        self._author = author or IdempotentAuthor(cluster, self.options)
        self._flushes = 0
        self._lanes: dict[str, dict[int, Lane]] = {}
        self._spreads: dict[str, _Spread] = {}
        self._unacknowledged_bytes = 0
        self._room = asyncio.Event()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.flush()
        self.close()

    @property
    def unacknowledged(self) -> int:
        """How many records have no answer yet."""
        return sum(lane.unacknowledged for lane in self._all_lanes())

    def _all_lanes(self) -> list[Lane]:
        return [lane for lanes in self._lanes.values() for lane in lanes.values()]

    async def describe(self, topic: str, *, timeout_ms: int) -> TopicMetadata:
        """Asks again while no broker can be reached. That a topic is not there is believed much sooner."""
        clock = self.cluster.ports.clock
        started_ms = clock.monotonic_ms()
        attempt = 0
        while True:
            try:
                return await self._describe(topic)
            except KafkaError as error:
                is_missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                patience_ms = min(timeout_ms, _CREATION_TIMEOUT_MS) if is_missing else timeout_ms
                pause_ms = self.cluster.backoff_ms(attempt)
                if not error.code.retriable or clock.monotonic_ms() + pause_ms > started_ms + patience_ms:
                    raise
            attempt += 1
            await asyncio.sleep(pause_ms / 1000)

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
        size = _size_of(key, value, headers)
        held = size + _RECORD_MEMORY_BYTES
        if self._unacknowledged_bytes and self._unacknowledged_bytes + held > self.options.buffer_bytes:
            await self._wait_for_room(held)
        if partition is None:
            known = self.cluster.known_topic(topic) or await self._describe(topic)
            partition = self._choose_partition(known, key, size)
        lane = self._lanes_of(topic).get(partition) or await self._make_lane(topic, partition)
        self._author.check_may_send()
        now = self.cluster.ports.clock.wall_ms() if timestamp is None else timestamp
        sent: asyncio.Future[Delivered] = asyncio.get_running_loop().create_future()
        is_urgent = self._flushes > 0
        is_full = lane.add(now, key, value, headers, sent, size_bytes=size, held_bytes=held, is_urgent=is_urgent)
        self._unacknowledged_bytes += held
        if is_full:
            await asyncio.sleep(0)  # Lets the full batch go out, even if the caller never waits for anything.
        return sent

    async def send_many(self, topic: str, records: Iterable[Sendable]) -> asyncio.Future[int]:
        """As `send` one after the other, at less than half the cost: without a future for each. The one future gives
        how many there were once all are written, or else the first failure. If the iterable raises, or a record cannot
        be sent, those before it are on their way."""
        many = Many()
        count = 0
        lanes, wall_ms, buffer_bytes = (
            self._lanes_of(topic),
            self.cluster.ports.clock.wall_ms,
            self.options.buffer_bytes,
        )
        now = wall_ms()
        try:
            for value, key, headers, partition, timestamp in records:
                size = _RECORD_OVERHEAD_BYTES + (len(value) if value else 0) + (len(key) if key else 0)
                if headers:
                    size = _size_of(key, value, headers)
                if self._unacknowledged_bytes and self._unacknowledged_bytes + size > buffer_bytes:
                    await self._wait_for_room(size)
                    now = wall_ms()
                if partition is None:
                    known = self.cluster.known_topic(topic) or await self._describe(topic)
                    partition = self._choose_partition(known, key, size)  # noqa: PLW2901 - the record's from here on
                lane = lanes.get(partition) or await self._make_lane(topic, partition)
                self._author.check_may_send()
                is_full = lane.add(
                    now if timestamp is None else timestamp,
                    key,
                    value,
                    headers,
                    many,
                    size_bytes=size,
                    held_bytes=size,
                    is_urgent=self._flushes > 0,
                )
                self._unacknowledged_bytes += size
                count += 1
                if is_full:
                    await asyncio.sleep(0)
                    now = wall_ms()
        finally:
            many.complete(count)
        return many.sent

    async def _wait_for_room(self, held_bytes: int) -> None:
        while self._unacknowledged_bytes and self._unacknowledged_bytes + held_bytes > self.options.buffer_bytes:
            self._room.clear()
            await self._room.wait()

    def _lanes_of(self, topic: str) -> dict[int, Lane]:
        lanes = self._lanes.get(topic)
        if lanes is None:
            lanes = self._lanes[topic] = {}
        return lanes

    async def _make_lane(self, topic: str, partition: int) -> Lane:
        where = TopicPartition(topic, PartitionIndex(partition))
        await self._check_exists(where)
        # Another caller may have come first meanwhile, and two lanes would overtake each other.
        lanes = self._lanes_of(topic)
        lane = lanes.get(partition)
        if lane is None:
            lane = lanes[partition] = Lane(self.cluster, self.options, self._author, where, self._release)
        return lane

    def _choose_partition(self, topic: TopicMetadata, key: bytes | None, size_bytes: int) -> int:
        partitions = topic.partitions
        if key is not None:
            return partition_for_key(key, len(partitions))
        spread = self._spreads.get(topic.name)
        if spread is None or spread.topic is not topic:
            choice = (
                StickyChoice(self.cluster.ports.random, self.options.batch_bytes) if spread is None else spread.choice
            )
            available = [index for index, found in partitions.items() if found.leader_id >= 0] or list(partitions)
            spread = self._spreads[topic.name] = _Spread(topic, available, choice)
        return spread.choice.choose(spread.available, size_bytes)

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

    def _release(self, held_bytes: int) -> None:
        self._unacknowledged_bytes -= held_bytes
        self._room.set()

    async def flush(self) -> None:
        """Until every record so far was acknowledged or has failed; the failures are in the futures."""
        self._flushes += 1
        try:
            while self._unacknowledged_bytes:
                for lane in self._all_lanes():
                    lane.hurry()
                self._room.clear()
                await self._room.wait()
        finally:
            self._flushes -= 1

    def close(self) -> None:
        """At once; what was not flushed fails."""
        for lane in self._all_lanes():
            lane.close()

    def abandon(self, error: KafkaError) -> bool:
        """Every record that is not acknowledged fails with the error, at once. Whether some of them were under way."""
        were_under_way = [lane.abandon(error) for lane in self._all_lanes()]
        return any(were_under_way)


def _size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = _RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    if headers:
        size += sum(len(name) * 4 + len(content or b"") + 10 for name, content in headers)
    return size


class IdempotentAuthor:
    """One producer id for all lanes. A lane that has given up a batch goes on under an id of its own: whether the
    broker has that batch is not known, and under a new id the sequence may start over."""

    transactional_id = None
    produce_version_max = _PRODUCE_VERSION_MAX

    def __init__(self, cluster: Cluster, options: ProducerOptions) -> None:
        self._cluster = cluster
        self._is_anonymous = not options.idempotent or options.acks != ACKS_ALL
        self._shared: ProducerIdentity | None = None
        self._own: dict[TopicPartition, ProducerIdentity] = {}
        self._identifying = asyncio.Lock()

    def check_may_send(self) -> None:
        pass

    async def identify(self, partition: TopicPartition, *, has_failed: bool) -> ProducerIdentity:
        if self._is_anonymous:
            return ANONYMOUS
        if has_failed:
            self._own[partition] = await self.new_identity()
        own = self._own.get(partition)
        return own or self._shared or await self._share()

    async def _share(self) -> ProducerIdentity:
        async with self._identifying:
            if self._shared is None:
                self._shared = await self.new_identity()
            return self._shared

    async def new_identity(self) -> ProducerIdentity:
        connection = await self._cluster.any_connection()
        answer = await connection.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1),
            InitProducerIdResponse,
            version_max=_INIT_PRODUCER_ID_VERSION_MAX,
        )
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), "the broker gives no producer id")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    def note_failure(self, error: KafkaError) -> None:
        pass

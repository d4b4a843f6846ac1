"""Encoded batches on their way to the brokers: all partitions at once, in order within each.

Up to five batches of a partition are under way together, as many as a broker remembers of a producer (KIP-98): so
whatever is sent again is stored once. If one of them fails in a way that may pass, the sender waits for the others,
which may have failed because of it, and sends again those that have failed, in their order. The first of a partition
goes alone, though: of a producer that it does not know a broker takes any batch, the second as well, and the first
could not be stored any more. Without idempotence one is under way at a time, since nothing would restore the order.
A batch that the topic finds too large is sent in halves, as Kafka's own producer does.

`send` returns when everything is acknowledged. Nothing is under way between two calls, so it does not matter for how
long the caller, who waits for Spark's next rows, does not run the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tailrace.client.lanes import (
    ACKS_NONE,
    ANONYMOUS,
    SEQUENCE_MODULUS,
    Author,
    ProduceResult,
    ProducerIdentity,
    ProducerOptions,
    produce_batch,
)
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_SEQUENCE, TopicPartition
from tailrace.model.ports import Bytes
from tailrace.spark.arrow.encode import EncodedBatch

# Batches of one partition under way. A broker finds duplicates among the last five batches of a producer.
_IN_FLIGHT_MAX = 5


class Sender:
    """Batches are written in the name of the author, whose sequences this sender alone counts."""

    def __init__(self, cluster: Cluster, options: ProducerOptions, author: Author) -> None:
        self._cluster = cluster
        self._options = options
        self._author = author
        self._lines: dict[TopicPartition, _Line] = {}

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Where something was written, or may have been."""
        return frozenset(self._lines)

    async def send(self, batches: Iterable[EncodedBatch]) -> None:
        """Until all are acknowledged. Raises KafkaError if one cannot be delivered within `delivery_timeout_ms`; what
        became of the others is not known then, and this sender must not be used again."""
        by_partition: dict[TopicPartition, list[EncodedBatch]] = {}
        for batch in batches:
            by_partition.setdefault(batch.partition, []).append(batch)
        deliveries = [asyncio.create_task(self._deliver(*each)) for each in by_partition.items()]
        try:
            await asyncio.gather(*deliveries)
        except KafkaError as error:
            self._author.note_failure(error)
            raise
        finally:
            for delivery in deliveries:
                delivery.cancel()
            await asyncio.gather(*deliveries, return_exceptions=True)

    async def _deliver(self, partition: TopicPartition, batches: Sequence[EncodedBatch]) -> None:
        waiting = deque(_Delivery(batch) for batch in batches)
        under_way: deque[_Delivery] = deque()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self._in_flight_max(partition):
                    await self._attempt(partition, waiting[0], follows_others=bool(under_way))
                    under_way.append(waiting.popleft())
                if await under_way[0].wait_is_acknowledged():
                    under_way.popleft()
                    self._lines[partition].is_known = True
                else:
                    failed = [delivery for delivery in under_way if not await delivery.wait_is_acknowledged()]
                    under_way.clear()
                    waiting.extendleft(reversed(await self._repair(failed)))
        finally:
            for delivery in under_way:
                delivery.cancel()

    def _in_flight_max(self, partition: TopicPartition) -> int:
        line = self._lines.get(partition)
        return _IN_FLIGHT_MAX if line is not None and line.is_known and line.identity != ANONYMOUS else 1

    async def _attempt(self, partition: TopicPartition, delivery: _Delivery, *, follows_others: bool) -> None:
        if delivery.sealed is None:  # Once: what is sent again is the same to the last byte.
            delivery.sealed = await self._seal(partition, delivery)
        delivery.follows_others = follows_others
        delivery.answer = asyncio.create_task(self._produce(partition, delivery.sealed))

    async def _seal(self, partition: TopicPartition, delivery: _Delivery) -> Bytes:
        identity = await self._cluster.with_retries(
            lambda: self._author.identify(partition, has_failed=False), timeout_ms=self._options.delivery_timeout_ms
        )
        line = self._lines.get(partition)
        if line is None or line.identity != identity:
            line = self._lines[partition] = _Line(identity)
        if delivery.sequence is None:
            delivery.sequence = line.next_sequence
            line.next_sequence = (line.next_sequence + delivery.batch.record_count) % SEQUENCE_MODULUS
        delivery.deadline = self._cluster.ports.clock.monotonic_ms() + self._options.delivery_timeout_ms
        sequence = NO_SEQUENCE if identity == ANONYMOUS else delivery.sequence
        return delivery.batch.seal(identity, sequence, transactional=self._author.transactional_id is not None)

    async def _produce(self, partition: TopicPartition, batch: Bytes) -> ProduceResult:
        result = await produce_batch(self._cluster, self._options, self._author, partition, batch)
        if self._options.acks == ACKS_NONE:
            # The connection must not be closed on what was never sent. Answers come in the order of requests: once
            # there is one to a later request, the batch has arrived.
            leader = await self._cluster.leader_of(partition)
            await (await self._cluster.connection_to(leader.leader_id)).negotiate()
        return result

    async def _repair(self, failed: Sequence[_Delivery]) -> Sequence[_Delivery]:
        """What to send in the place of deliveries of which the first has failed, perhaps after a pause; the others may
        have failed because of it. Raises its error if nothing helps."""
        first = failed[0]
        error = first.failure()
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and first.batch.record_count > 1:
            return [*first.halves(), *failed[1:]]
        pause_ms = self._cluster.backoff_ms(first.attempts)
        if not first.may_pass() or self._cluster.ports.clock.monotonic_ms() + pause_ms > first.deadline:
            raise error
        first.attempts += 1
        await asyncio.sleep(pause_ms / 1000)
        return failed


@dataclass
class _Line:
    """How far a partition was written under one identity."""

    identity: ProducerIdentity
    next_sequence: int = 0
    is_known: bool = False  # whether the broker has acknowledged a batch of it


class _Delivery:
    """One batch, attempted until it is acknowledged. It is sealed before the first attempt."""

    def __init__(self, batch: EncodedBatch, sequence: int | None = None) -> None:
        self.batch = batch
        self.sequence = sequence
        self.sealed: Bytes | None = None
        self.deadline = 0.0
        self.attempts = 0
        self.follows_others = False
        self.answer: asyncio.Task[ProduceResult]

    def halves(self) -> tuple[_Delivery, _Delivery]:
        """For a topic that takes only smaller batches. Together they have the sequence numbers of the whole."""
        assert self.sequence is not None, "it was sent before"
        first, second = self.batch.split()
        return (
            _Delivery(first, self.sequence),
            _Delivery(second, (self.sequence + first.record_count) % SEQUENCE_MODULUS),
        )

    async def wait_is_acknowledged(self) -> bool:
        await asyncio.wait([self.answer])
        error = self.answer.exception()
        if error is not None and not isinstance(error, KafkaError):
            raise error
        return error is None

    def failure(self) -> KafkaError:
        error = self.answer.exception()
        assert isinstance(error, KafkaError), "asked only after a failure"
        return error

    def may_pass(self) -> bool:
        code = self.failure().code
        # Batches before it were under way, and one of them may have been refused at the time.
        is_gap = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self.follows_others
        return code.retriable or is_gap

    def cancel(self) -> None:
        if not self.answer.cancel() and not self.answer.cancelled():
            self.answer.exception()  # Known to nobody, and no news for the log: another failure is reported.

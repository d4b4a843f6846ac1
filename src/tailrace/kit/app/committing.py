"""Finished ranges on their way to the broker: offsets alone, or in one transaction with what is to be written.

A transaction that fails is repeated with the same content under the next one: what handlers found stays in their
windows until it is committed. Where the answer to a commit is lost for good, the committed offsets tell how it ended,
since nobody else commits for these partitions while this member owns them.

The transactional id is of this process alone: what keeps a member that was replaced from committing is the generation
of its group, which goes with the offsets (KIP-447).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from tailrace.client.transactions.errors import AbortableError
from tailrace.kit.app.window import Finished
from tailrace.kit.app.work import Outgoing
from tailrace.kit.consumer import Consumer
from tailrace.kit.producer import Producer
from tailrace.kit.retries.refusals import cause_of, is_record_refused
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.model.ports import Clock

_log = logging.getLogger("tailrace.app")

Ranges = Mapping[TopicPartition, Finished[Outgoing]]
OpenProducer = Callable[[], Awaitable[Producer]]

_PAUSE_S = 0.2
# The group has gone on without this member, or is about to: its next poll tells which partitions are lost.
_GROUP_MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
# Another attempt would meet the same: somebody has to do something.
_LASTING = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class Committer:
    """`close` it at the end. One commit at a time. Its producer is opened with the first record that is written."""

    def __init__(self, consumer: Consumer, open_producer: OpenProducer, *, patience_ms: int, clock: Clock) -> None:
        self._consumer = consumer
        # Always under one transactional id: opening it ends what its predecessor has left open.
        self._open_producer = open_producer
        self._patience_ms = patience_ms
        self._clock = clock
        self._producer: Producer | None = None
        self._failing_since_ms: float | None = None

    async def commit(self, ranges: Ranges) -> frozenset[TopicPartition]:
        """Those that are committed; the others may be tried again. Raises KafkaError for what does not pass by itself,
        or not in time. Must not be cancelled: then nobody would know."""
        positions = {partition: finished.position for partition, finished in ranges.items()}
        try:
            if any(finished.writes for finished in ranges.values()):
                committed = await self._commit_with_writes(ranges, positions)
            else:
                await self._consumer.commit(positions)
                committed = frozenset(positions)
        except KafkaError as error:
            self._judge(error)
            return frozenset()
        self._failing_since_ms = None
        return committed

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    async def _commit_with_writes(
        self, ranges: Ranges, positions: Mapping[TopicPartition, int]
    ) -> frozenset[TopicPartition]:
        if self._producer is None:
            self._producer = await self._open_producer()
        producer = self._producer
        try:
            await producer.begin()
            for finished in ranges.values():
                for write in finished.writes:
                    await producer.send(
                        write.topic,
                        write.value,
                        key=write.key,
                        headers=write.headers,
                        partition=write.partition,
                        timestamp=write.timestamp,
                    )
            await producer.send_offsets_to_transaction(positions, self._consumer.group_metadata())
        except KafkaError:
            await self._abort(producer)
            raise
        try:
            await producer.commit()
        except AbortableError:
            await self._abort(producer)
            raise
        except KafkaError as error:
            _log.warning("how a transaction ended is to be found out: %s", error)
            return await self._find_out(positions)
        return frozenset(positions)

    async def _abort(self, producer: Producer) -> None:
        try:
            await producer.abort()
        except KafkaError:  # It was fenced, or nobody answers: the next one ends what this one has begun.
            await self.close()

    async def _find_out(self, positions: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """A partition that was lost meanwhile may be judged wrongly, and nobody asks for it any more."""
        deadline = self._clock.monotonic_ms() + self._patience_ms
        while True:
            await self.close()
            try:
                self._producer = await self._open_producer()
                committed = {str(each): offset for each, offset in (await self._consumer.committed(positions)).items()}
            except KafkaError:
                if self._clock.monotonic_ms() > deadline:
                    raise
                await asyncio.sleep(_PAUSE_S)
                continue
            return frozenset(each for each, position in positions.items() if committed.get(str(each), -1) >= position)

    def _judge(self, error: KafkaError) -> None:
        code = cause_of(error)
        now = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now
        # A topic that was just made may not be known to every broker yet.
        is_lasting = code in _LASTING or (is_record_refused(error) and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if is_lasting or now - self._failing_since_ms > self._patience_ms:
            raise error
        if code not in _GROUP_MOVED:
            _log.warning("a commit is tried again: %s", error)

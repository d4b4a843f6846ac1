"""Loops in a run that consume, transform and produce: each input record has its effect exactly once.

A loop is a member of a group and a transactional producer. It reads what is committed, writes an effect for each record
that it was given, and commits the offsets with them. Its output names the input record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tailrace.client.consumer import ConsumerOptions, Isolation
from tailrace.client.groups.consumer import GroupConsumer, GroupOptions, GroupProtocol
from tailrace.client.groups.membership import MemberOptions
from tailrace.client.metadata import Cluster
from tailrace.client.transactions.errors import AbortableError, TransactionError
from tailrace.client.transactions.producer import TransactionalProducer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.sim.checks.history import demand
from tailrace.sim.groups.members import HEARTBEAT_MS, SESSION_MS
from tailrace.sim.loop import Process
from tailrace.sim.random import SimRandom
from tailrace.sim.transactions.producers import Instance, Surroundings, is_recorded, name_of, text_of
from tailrace.wire.records import Record

GROUP_ID = "loops"
_POLL_MS = 200
_PAUSE_SECONDS_MAX = 0.2
_ABORT_SHARE = 0.1
# Nobody polls so rarely, but for processes that are paused, and their sessions end first.
_REBALANCE_MS = 12_000
_COMMITTED_MS_MAX = 3000
_FETCHING = ConsumerOptions(
    isolation=Isolation.READ_COMMITTED, fetch_max_wait_ms=200, retry_timeout_ms=600_000, partition_max_bytes=4000
)


class LoopInstance(Instance):
    def __init__(
        self,
        process: Process,
        cluster: Cluster,
        surroundings: Surroundings,
        topics: Sequence[str],
        outputs: Sequence[TopicPartition],
        *,
        is_classic: bool,
        transactional_id: str,
        random: SimRandom,
    ) -> None:
        self._outputs = list(outputs)
        self._consumer: GroupConsumer | None = None
        self._group = GroupOptions(
            GROUP_ID,
            MemberOptions(
                topics=tuple(topics),
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                assignors=("cooperative-sticky",),
            ),
            protocol=GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER,
            auto_commit_interval_ms=None,
            retry_timeout_ms=_COMMITTED_MS_MAX,
            fetching=_FETCHING,
        )
        super().__init__(process, cluster, surroundings, transactional_id=transactional_id, random=random)

    async def _live(self, producer: TransactionalProducer) -> None:
        consumer = self._consumer = GroupConsumer(self._cluster, self._group, on_assigned=self._on_assigned)
        while not self.is_leaving:
            try:
                polled = await consumer.poll(_POLL_MS)
                if polled:
                    await self._transform(producer, consumer, polled)
            except TransactionError:
                raise
            except KafkaError as error:
                demand(error.code.retriable, "loops meet errors that pass", loop=self.name, error=error)

    async def _close(self) -> None:
        if self._consumer is not None:
            # Positions that were not committed with a transaction must not be committed without one.
            await self._consumer.close(leave=False)

    async def _transform(
        self,
        producer: TransactionalProducer,
        consumer: GroupConsumer,
        polled: dict[TopicPartition, list[Record]],
    ) -> None:
        self._recorded.polled(
            (name_of(partition), record.offset, text_of(record.value or b""))
            for partition, records in polled.items()
            for record in records
            if is_recorded(record.value)
        )
        self._begin(producer)
        try:
            offsets = {partition: consumer.position(partition) for partition in polled}
            for partition, records in polled.items():
                for record in records:
                    await self._effect(producer, partition, record.offset)
            # Whatever happens to it meanwhile happens in mid-transaction.
            await asyncio.sleep(self._random.between(0, _PAUSE_SECONDS_MAX))
            await producer.send_offsets(offsets, consumer.group_metadata())
            self._recorded.offsets(GROUP_ID, {name_of(each): offset for each, offset in offsets.items()})
            if self._random.random() >= _ABORT_SHARE:
                await self._commit(producer)
                return
        except AbortableError:
            pass
        except TransactionError:
            raise
        except KafkaError as error:
            demand(_is_of_group(error), "loops meet errors that pass", loop=self.name, error=error)
        await self._abort(producer)
        await self._rewind(consumer)

    async def _effect(self, producer: TransactionalProducer, source: TopicPartition, offset: int) -> None:
        name = name_of(source)
        target = self._outputs[offset % len(self._outputs)]
        await self._send(producer, target, b"%s:%d:" % (name.encode(), offset), f"{name}@{offset}")

    async def _rewind(self, consumer: GroupConsumer) -> None:
        while not self.is_leaving:
            try:
                await consumer.rewind()
                break
            except KafkaError as error:
                demand(error.code.retriable, "loops meet errors that pass", loop=self.name, error=error)
        self._recorded.sought([name_of(partition) for partition in sorted(consumer.assignment)])

    def _on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._recorded.assigned([name_of(partition) for partition in partitions])


def _is_of_group(error: KafkaError) -> bool:
    """It is not a member any more: others have its partitions."""
    return error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION) or error.code.retriable

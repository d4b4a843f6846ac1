"""Decisions on their topic: compacted, with prefix and scope as the key, written under the driver's transactional id.

Readers see committed decisions only. One whose driver died before it was committed was never made, and whoever comes
after that driver fences it; whoever reads meanwhile waits until its time is over, since a decision of his own might
stand behind it.
"""

from __future__ import annotations

from tailrace.client.admin import Admin
from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.partitioner import partition_for_key
from tailrace.client.transactions.producer import TransactionalProducer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.spark.sink.exactly_once.decision import Decision, ExactlyOnceError
from tailrace.spark.sink.exactly_once.names import Names
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings

_PARTITION_COUNT = 16
_REPLICATION_FACTOR = 3
# A task reads the whole partition of its scope, so that it is kept short: a decision is soon overwritten by the next.
# The smallest segment that Kafka takes.
_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1024 * 1024),
    "segment.ms": str(10 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.01",
}
_POLL_MS = 200.0


class DecisionLog:
    """The decisions of one scope."""

    def __init__(self, cluster: Cluster, settings: ExactlyOnceSettings, names: Names) -> None:
        self._cluster = cluster
        self._settings = settings
        self._key = names.decision.encode()

    async def read(self) -> Decision | None:
        """The latest. Creates the topic if there is none."""
        partition = await self._partition()
        end = (await Consumer(self._cluster).offsets_at([partition], LATEST))[partition]
        committed = Consumer(self._cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED))
        start = (await committed.offsets_at([partition], EARLIEST))[partition]
        await committed.assign({partition: start})
        try:
            value = await self._last_value(committed, partition, end)
        finally:
            await committed.close()
        return None if value is None else Decision.from_bytes(value)

    async def _last_value(self, consumer: Consumer, partition: TopicPartition, end: int) -> bytes | None:
        deadline = self._cluster.ports.clock.monotonic_ms() + self._settings.retry_timeout_ms
        found = None
        while consumer.position(partition).offset < end:
            for record in (await consumer.poll(_POLL_MS)).get(partition, ()):
                if record.key == self._key:
                    found = record.value
            if self._cluster.ports.clock.monotonic_ms() > deadline:
                position = consumer.position(partition).offset
                raise ExactlyOnceError(
                    f"{partition} cannot be read beyond offset {position} of {end}: a transaction is open there and "
                    "does not end; tailrace transaction find-hanging tells whose"
                )
        return found

    async def write(self, decision: Decision, producer: TransactionalProducer) -> None:
        """Committed when this returns. Raises KafkaError; a FencedError if another driver has taken over."""
        partition = await self._partition()
        producer.begin()
        await producer.send(partition.topic, decision.to_bytes(), key=self._key, partition=int(partition.partition))
        await producer.commit()

    async def _partition(self) -> TopicPartition:
        topic = await self._topic()
        if len(topic.partitions) < _PARTITION_COUNT:
            raise ExactlyOnceError(
                f"the decision topic {topic.name} has {len(topic.partitions)} partitions, and {_PARTITION_COUNT} are "
                "used: add the rest, or name another one by the option decisionTopic, which is then created"
            )
        # Partitions that somebody adds stay empty: a decision has to be found where it was written.
        index = partition_for_key(self._key, _PARTITION_COUNT)
        return TopicPartition(topic.name, PartitionIndex(index))

    async def _topic(self) -> TopicMetadata:
        return await self._cluster.with_retries(self._find_topic, timeout_ms=self._settings.retry_timeout_ms)

    async def _find_topic(self) -> TopicMetadata:
        """One attempt; that the topic is not there is a retriable error, as it is created then."""
        name = self._settings.decision_topic
        try:
            return await self._cluster.topic(name)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                await self._create(name)
            raise

    async def _create(self, name: str) -> None:
        replication_factor = min(_REPLICATION_FACTOR, len(self._cluster.brokers))
        is_durable = replication_factor >= _REPLICATION_FACTOR
        try:
            await Admin(self._cluster).create_topic(
                name,
                partition_count=_PARTITION_COUNT,
                replication_factor=replication_factor,
                configs=_CONFIGS | ({"min.insync.replicas": "2"} if is_durable else {}),
            )
        except KafkaError as error:
            # Every task of the first batch comes here at about the same time.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

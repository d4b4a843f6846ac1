"""A share group as a queue: how deep it is in each partition, what is out, how old the oldest record is; emptying it.

Depth any Kafka tells. What is out only leaders have in memory, and only brokers of Tailrace tell it: each is asked over
a connection of its own, since another Kafka hangs up when it meets a request that it does not know.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tailrace.client.consumer import Consumer, ConsumerOptions
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.groups.coordinator import Coordinator
from tailrace.client.metadata import Cluster
from tailrace.client.shares.admin import start_offsets_request
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.wire.apis.own import DescribeQueueRequest, DescribeQueueResponse
from tailrace.wire.apis.shares import AlterShareGroupOffsetsResponse
from tailrace.wire.records import Record

_PATIENCE_MS = 2000
_PEEKED_BYTES = 64 * 1024

Out = DescribeQueueResponse.Partition


class QueuePartition(NamedTuple):
    partition: TopicPartition
    # Everything before it is done with; None before the first delivery.
    start_offset: int | None
    # Records that are not done with; None if it is not known.
    depth: int | None
    # Which of them are out; None where no member reads the partition now, or no broker of ours leads it.
    out: Out | None


class Queue:
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._admin = GroupAdmin(cluster)

    async def look(self) -> list[QueuePartition]:
        """By topic and partition. Raises KafkaError."""
        offsets = await self._admin.share_offsets(self.group_id)
        if not offsets:
            await self._admin.describe(
                self.group_id
            )  # Of a group that does not exist brokers tell that it has read nothing.
        out = await self._out()
        return [
            QueuePartition(each.partition, each.start_offset, each.lag, out.get(each.partition)) for each in offsets
        ]

    async def _out(self) -> dict[TopicPartition, Out]:
        await self._cluster.refresh([])
        found: dict[TopicPartition, Out] = {}
        for node_id in sorted(self._cluster.brokers):
            answer = await self._ask(node_id)
            for topic in [] if answer is None else answer.topics:
                for each in topic.partitions:
                    found[TopicPartition(topic.name, PartitionIndex(each.partition_index))] = each
        return found

    async def _ask(self, node_id: NodeId) -> DescribeQueueResponse | None:
        try:
            connection = await self._cluster.open(self._cluster.brokers[node_id])
            try:
                answer = await connection.call(DescribeQueueRequest(group_id=self.group_id), DescribeQueueResponse)
            finally:
                connection.close()
        except KafkaError as error:
            if error.code is ErrorCode.NETWORK_EXCEPTION:
                return None
            raise
        return None if answer.error_code else answer

    async def peek(self, partitions: Collection[QueuePartition], count: int) -> dict[TopicPartition, list[Record]]:
        """The first records of each that may not be done with, as an ordinary consumer reads them: nobody's delivery
        is touched."""
        positions = {each.partition: each.start_offset for each in partitions if each.start_offset is not None}
        deep = {each.partition for each in partitions if each.depth}
        return await read_first(self._cluster, {at: start for at, start in positions.items() if at in deep}, count)

    async def purge(self, ends: Mapping[TopicPartition, int]) -> None:
        """What comes before these offsets is done with. Refused while the group has members."""
        coordinator = Coordinator(self._cluster, self.group_id)
        asked = start_offsets_request(self.group_id, ends)

        async def ask() -> None:
            answer = await coordinator.call(asked, AlterShareGroupOffsetsResponse)
            failure = f"the offsets of group {self.group_id} were not set"
            coordinator.check(answer.error_code, failure, answer.error_message)
            for topic in answer.responses:
                for each in topic.partitions:
                    coordinator.check(
                        each.error_code, f"{failure} in {topic.topic_name}-{each.partition_index}", each.error_message
                    )

        try:
            await self._cluster.with_retries(ask, timeout_ms=self._cluster.limits.request_timeout_ms)
        finally:
            coordinator.close()


async def read_first(
    cluster: Cluster, positions: Mapping[TopicPartition, int], count: int
) -> dict[TopicPartition, list[Record]]:
    """At most so many records of each partition, from an offset on: what is there at once, or comes within seconds."""
    found: dict[TopicPartition, list[Record]] = {}
    left = dict(positions)
    consumer = Consumer(cluster, ConsumerOptions(partition_max_bytes=_PEEKED_BYTES))
    clock = cluster.ports.clock
    ends_ms = clock.monotonic_ms() + _PATIENCE_MS
    try:
        await consumer.assign(left)
        while left and (patience_ms := ends_ms - clock.monotonic_ms()) > 0:
            for partition, records in (await consumer.poll(patience_ms)).items():
                if partition not in left:
                    continue
                mine = found.setdefault(partition, [])
                mine += records[: count - len(mine)]
                position = consumer.position(partition)
                if len(mine) >= count or position.offset >= position.end_offset:
                    del left[partition]
                    consumer.change(added={}, removed=[partition])
    finally:
        await consumer.close()
    return found

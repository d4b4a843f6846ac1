"""Offsets by time, asked of the leaders of partitions (ListOffsets).

Questions are repeated while leaders move. With READ_COMMITTED the end of a partition is its last stable offset.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.client.connection import error_code
from tailrace.client.fetching import Isolation
from tailrace.client.metadata import Cluster
from tailrace.model.errors import KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.wire.apis.data import ListOffsetsRequest, ListOffsetsResponse

# Timestamps with a meaning of their own.
LATEST = -1
EARLIEST = -2
# The answer where no record is as young as the time that was asked for.
NO_SUCH_RECORD = -1

_CONSUMER_REPLICA_ID = -1


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], *, isolation: Isolation, timeout_ms: int
) -> dict[TopicPartition, int]:
    """For each partition, the first offset at or after its time, or NO_SUCH_RECORD; LATEST and EARLIEST ask for the
    two ends. Raises KafkaError, at the latest when the time is over."""

    async def attempt() -> dict[TopicPartition, int]:
        try:
            return await _list_offsets(cluster, timestamps, isolation)
        except KafkaError:
            for partition in timestamps:
                cluster.forget(partition.topic)
            raise

    return await cluster.with_retries(attempt, timeout_ms=timeout_ms) if timestamps else {}


async def _list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int]:
    by_leader: dict[NodeId, dict[str, list[ListOffsetsRequest.ListOffsetsPartition]]] = {}
    for partition, timestamp in timestamps.items():
        leader = await cluster.leader_of(partition)
        by_leader.setdefault(leader.leader_id, {}).setdefault(partition.topic, []).append(
            ListOffsetsRequest.ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp)
        )
    found = {}
    for node_id, topics in by_leader.items():
        connection = await cluster.connection_to(node_id)
        request = ListOffsetsRequest(
            replica_id=_CONSUMER_REPLICA_ID,
            isolation_level=isolation,
            timeout_ms=cluster.limits.request_timeout_ms,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=questions)
                for name, questions in topics.items()
            ],
        )
        answer = await connection.call(request, ListOffsetsResponse)
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, PartitionIndex(result.partition_index))
                if result.error_code:
                    raise KafkaError(error_code(result.error_code), f"{partition} does not tell its offsets")
                found[partition] = result.offset
    return found

"""What a follower asks its leader beside records. Raises KafkaError."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.replica.partition import Partition
from tailrace.wire.apis.data import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tailrace.wire.schema import Message

R = TypeVar("R", bound=Message)


class Ask(Protocol):
    """One request to the leader."""

    async def __call__(self, request: Message, response_type: type[R]) -> R: ...


async def list_offset(
    partition: Partition, ask: Ask, node_id: int, leader_epoch: int, timestamp: int
) -> tuple[int, int]:
    """The offset that one of the special times stands for, and its epoch."""
    name, index = partition.topic_partition
    asked = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=index, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    topic = ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[asked])
    response = await ask(ListOffsetsRequest(replica_id=node_id, topics=[topic]), ListOffsetsResponse)
    answer = response.topics[0].partitions[0]
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), "the leader does not tell its offsets")
    return answer.offset, answer.leader_epoch


async def find_end_of_epoch(
    partition: Partition, ask: Ask, node_id: int, leader_epoch: int, epoch: int
) -> tuple[int, int]:
    """The largest epoch of the leader's that is not above `epoch`, and where it ended; -1 where it knows none."""
    name, index = partition.topic_partition
    asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=index, current_leader_epoch=leader_epoch, leader_epoch=epoch
    )
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=[asked])
    request = OffsetForLeaderEpochRequest(replica_id=node_id, topics=[topic])
    response = await ask(request, OffsetForLeaderEpochResponse)
    answer = response.topics[0].partitions[0]
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), "the leader does not tell its epochs")
    return answer.leader_epoch, answer.end_offset

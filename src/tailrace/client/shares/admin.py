"""Share groups as an administrator sees them: members, and where the group stands in each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tailrace.client.connection import error_code
from tailrace.client.groups.admin import SHARE, DescribedGroup, GroupMember
from tailrace.client.groups.coordinator import Coordinator
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.apis.shares import (
    AlterShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


class ShareOffset(NamedTuple):
    partition: TopicPartition
    # Everything before it is done with; None before the first delivery.
    start_offset: int | None
    # Records that are not done with.
    lag: int | None
    error: ErrorCode = ErrorCode.NONE  # Why neither is told.


async def describe_share_group(coordinator: Coordinator, node_id: int) -> DescribedGroup | None:
    """None if it is no share group, or the broker knows none."""
    try:
        answer = await coordinator.call(
            ShareGroupDescribeRequest(group_ids=[coordinator.group_id]), ShareGroupDescribeResponse
        )
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    found = answer.groups[0]
    if error_code(found.error_code) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    coordinator.check(found.error_code, f"group {found.group_id} is not described", found.error_message)
    members = tuple(_member(each) for each in found.members)
    state, assignor = found.group_state, found.assignor_name
    return DescribedGroup(found.group_id, SHARE, state, assignor, found.group_epoch, node_id, members)


async def share_offsets(coordinator: Coordinator) -> list[ShareOffset]:
    """By topic and partition."""
    request = DescribeShareGroupOffsetsRequest
    group = request.DescribeShareGroupOffsetsRequestGroup(group_id=coordinator.group_id, topics=None)
    answer = await coordinator.call(request(groups=[group]), DescribeShareGroupOffsetsResponse)
    (found,) = answer.groups
    coordinator.check(
        found.error_code, f"the offsets of group {coordinator.group_id} are not told", found.error_message
    )
    offsets = [
        ShareOffset(
            TopicPartition(topic.topic_name, PartitionIndex(each.partition_index)),
            each.start_offset if each.start_offset >= 0 else None,
            each.lag if each.lag >= 0 else None,
            error_code(each.error_code),
        )
        for topic in found.topics
        for each in topic.partitions
    ]
    return sorted(offsets, key=lambda each: each.partition)


def start_offsets_request(group_id: str, offsets: Mapping[TopicPartition, int]) -> AlterShareGroupOffsetsRequest:
    """What comes before these is done with."""
    request = AlterShareGroupOffsetsRequest
    topics: dict[str, list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]] = {}
    for where, offset in sorted(offsets.items()):
        topics.setdefault(where.topic, []).append(
            request.AlterShareGroupOffsetsRequestPartition(partition_index=where.partition, start_offset=offset)
        )
    return request(
        group_id=group_id,
        topics=[
            request.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _member(member: ShareGroupDescribeResponse.Member) -> GroupMember:
    assignment = tuple(
        TopicPartition(topic.topic_name, PartitionIndex(index))
        for topic in member.assignment.topic_partitions
        for index in topic.partitions
    )
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.member_epoch,
        SHARE,
        assignment,
        None,
    )

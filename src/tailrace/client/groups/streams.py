"""Streams groups as an administrator sees them: members with their tasks, and the topics that these read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tailrace.client.connection import error_code
from tailrace.client.groups.admin import STREAMS, DescribedGroup, GroupMember, MemberTasks
from tailrace.client.groups.coordinator import Coordinator
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.apis.groups import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

# The only one that there is.
_ASSIGNOR = "sticky"


async def describe_streams_group(coordinator: Coordinator, node_id: int) -> DescribedGroup | None:
    """None if it is no streams group, or the broker knows none."""
    try:
        answer = await coordinator.call(
            StreamsGroupDescribeRequest(group_ids=[coordinator.group_id]), StreamsGroupDescribeResponse
        )
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return None
        raise
    found = answer.groups[0]
    if error_code(found.error_code) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    coordinator.check(found.error_code, f"group {found.group_id} is not described", found.error_message)
    subtopologies = () if found.topology is None else found.topology.subtopologies or ()
    read = {each.subtopology_id: _read_by(each) for each in subtopologies}
    topics = await coordinator.cluster.refresh(None) if found.members else {}
    sizes = {name: len(topic.partitions) for name, topic in topics.items()}
    members = tuple(_member(each, read, sizes) for each in found.members)
    return DescribedGroup(found.group_id, STREAMS, found.group_state, _ASSIGNOR, found.group_epoch, node_id, members)


def _read_by(subtopology: StreamsGroupDescribeResponse.Subtopology) -> Sequence[str]:
    return (*subtopology.source_topics, *(each.name for each in subtopology.repartition_source_topics))


def _member(
    member: StreamsGroupDescribeResponse.Member, read: Mapping[str, Sequence[str]], sizes: Mapping[str, int]
) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.member_epoch,
        STREAMS,
        _partitions(member.assignment.active_tasks, read, sizes),
        _partitions(member.target_assignment.active_tasks, read, sizes),
        MemberTasks(member.process_id, _names(member.assignment.active_tasks), _names(member.assignment.standby_tasks)),
    )


def _partitions(
    tasks: Iterable[Any], read: Mapping[str, Sequence[str]], sizes: Mapping[str, int]
) -> tuple[TopicPartition, ...]:
    """What active tasks read. A topic may have fewer partitions than its subtopology has tasks."""
    return tuple(
        TopicPartition(topic, PartitionIndex(index))
        for each in tasks
        for topic in read.get(each.subtopology_id, ())
        for index in each.partitions
        if index < sizes.get(topic, 0)
    )


def _names(tasks: Iterable[Any]) -> tuple[str, ...]:
    """As Kafka Streams calls them."""
    return tuple(f"{each.subtopology_id}_{index}" for each in tasks for index in each.partitions)

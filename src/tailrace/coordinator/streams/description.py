"""StreamsGroupDescribe: a group, its topology, its members, what they have and what they are to have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tailrace.coordinator.groups import GroupState, shown
from tailrace.coordinator.listing import ALL_GROUP_OPERATIONS
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.streams.group import StreamsGroup
from tailrace.coordinator.streams.member import Held, StreamsMember
from tailrace.coordinator.streams.records import write_tasks
from tailrace.coordinator.streams.topology import InternalTopic, configure
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

_Response = StreamsGroupDescribeResponse


def describe_group(state: GroupState, call: Call, caller: Caller, request: StreamsGroupDescribeRequest) -> Result:
    (group_id,) = request.group_ids
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = find_group(state, group_id)
    if isinstance(group, StreamsGroup):
        described = _Response.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            topology=_describe_topology(group, call),
            members=[_describe_member(group, member) for member in group.members.values()],
        )
        if request.include_authorized_operations:
            described.authorized_operations = ALL_GROUP_OPERATIONS
    else:
        described = _Response.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {shown(group_id)} is not a streams group."
            if group
            else f"Group {shown(group_id)} not found.",
        )
    return Result(answers=[(caller, _Response(groups=[described]))])


def _describe_topology(group: StreamsGroup, call: Call) -> _Response.Topology | None:
    """With the numbers of partitions that follow from the topics, if these are good."""
    if group.topology is None:
        return None
    subtopologies = group.topology.subtopologies.values()
    configured = group.configured or configure(group.topology, call.image)
    described: list[_Response.Subtopology] = []
    for each in subtopologies:
        known = configured.subtopologies.get(each.subtopology_id) if configured.is_ready else None
        described.append(
            _Response.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=sorted(each.source_topics),
                repartition_sink_topics=sorted(each.repartition_sink_topics),
                repartition_source_topics=_told(each.repartition_source_topics)
                if known is None
                else _decided(known.repartition_source_topics.values()),
                state_changelog_topics=_told(each.state_changelog_topics)
                if known is None
                else _decided(known.changelog_topics.values()),
            )
        )
    return _Response.Topology(epoch=group.topology.epoch, subtopologies=described)


def _told(topics: Iterable[Any]) -> list[_Response.TopicInfo]:
    """As the members told them."""
    return [
        _Response.TopicInfo(
            name=each.name,
            partitions=each.partitions,
            replication_factor=each.replication_factor,
            topic_configs=[_Response.KeyValue(key=pair.key, value=pair.value) for pair in each.topic_configs],
        )
        for each in sorted(topics, key=lambda each: str(each.name))
    ]


def _decided(topics: Iterable[InternalTopic]) -> list[_Response.TopicInfo]:
    return [
        _Response.TopicInfo(
            name=each.name,
            partitions=each.partition_count,
            replication_factor=each.replication_factor,
            topic_configs=[_Response.KeyValue(key=key, value=value) for key, value in each.settings.items()],
        )
        for each in sorted(topics)
    ]


def _describe_member(group: StreamsGroup, member: StreamsMember) -> _Response.Member:
    endpoint, target = member.endpoint, group.targets.get(member.member_id)
    return _Response.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else _Response.Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[_Response.KeyValue(key=key, value=value) for key, value in member.client_tags],
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(Held() if target is None else target),
    )


def _assignment(tasks: Any) -> _Response.Assignment:
    return _Response.Assignment(
        active_tasks=write_tasks(_Response.TaskIds, tasks.active),
        standby_tasks=write_tasks(_Response.TaskIds, tasks.standby),
        warmup_tasks=write_tasks(_Response.TaskIds, tasks.warmup),
    )

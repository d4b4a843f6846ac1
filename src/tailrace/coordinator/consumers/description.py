"""ConsumerGroupDescribe: a group, its members, what they have and what they are to have.

Topics that are gone are left out. v1 tells who still speaks the classic protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.consumers.member import Member
from tailrace.coordinator.groups import GroupState, shown
from tailrace.coordinator.listing import ALL_GROUP_OPERATIONS
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def describe_group(state: GroupState, call: Call, caller: Caller, request: ConsumerGroupDescribeRequest) -> Result:
    (group_id,) = request.group_ids
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = find_group(state, group_id)
    if isinstance(group, ConsumerGroup):
        described = _describe(group, call)
        if request.include_authorized_operations:
            described.authorized_operations = ALL_GROUP_OPERATIONS
    else:
        described = ConsumerGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {shown(group_id)} is not a consumer group."
            if group
            else f"Group {shown(group_id)} not found.",
        )
    return Result(answers=[(caller, ConsumerGroupDescribeResponse(groups=[described]))])


def _describe(group: ConsumerGroup, call: Call) -> ConsumerGroupDescribeResponse.DescribedGroup:
    return ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or call.config.group_consumer_assignors[0],
        members=[_describe_member(group, member, call.image) for member in group.members.values()],
    )


def _describe_member(
    group: ConsumerGroup, member: Member, image: MetadataImage
) -> ConsumerGroupDescribeResponse.Member:
    owned: dict[Uuid, set[int]] = {}
    for assigned in (member.assigned, member.pending_revocation):
        for topic_id, partitions in assigned.items():
            owned.setdefault(topic_id, set()).update(partitions)
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned, image),
        target_assignment=_assignment(group.targets.get(member.member_id, {}), image),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(
    partitions: Mapping[Uuid, Iterable[int]], image: MetadataImage
) -> ConsumerGroupDescribeResponse.Assignment:
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=image.topic_names[topic_id], partitions=sorted(of_topic)
            )
            for topic_id, of_topic in sorted(partitions.items())
            if topic_id in image.topic_names
        ]
    )

"""ShareGroupDescribe: a group, its members and what they have. Topics that are gone are left out."""

from __future__ import annotations

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.groups import GroupState, shown
from tailrace.coordinator.listing import ALL_GROUP_OPERATIONS
from tailrace.coordinator.offsets.simple import find_group
from tailrace.coordinator.op import Call, Caller, Result
from tailrace.coordinator.shares.group import ShareGroup
from tailrace.coordinator.shares.member import ShareMember
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.shares import ShareGroupDescribeRequest, ShareGroupDescribeResponse


def describe_group(state: GroupState, call: Call, caller: Caller, request: ShareGroupDescribeRequest) -> Result:
    (group_id,) = request.group_ids
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    group = find_group(state, group_id)
    if isinstance(group, ShareGroup):
        described = ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=call.config.group_share_assignors[0],
            members=[_describe_member(member, call.image) for member in group.members.values()],
        )
        if request.include_authorized_operations:
            described.authorized_operations = ALL_GROUP_OPERATIONS
    else:
        described = ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {shown(group_id)} is not a share group."
            if group
            else f"Group {shown(group_id)} not found.",
        )
    return Result(answers=[(caller, ShareGroupDescribeResponse(groups=[described]))])


def _describe_member(member: ShareMember, image: MetadataImage) -> ShareGroupDescribeResponse.Member:
    topic = ShareGroupDescribeResponse.TopicPartitions
    return ShareGroupDescribeResponse.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.subscribed_topic_names),
        assignment=ShareGroupDescribeResponse.Assignment(
            topic_partitions=[
                topic(topic_id=topic_id, topic_name=image.topic_names[topic_id], partitions=sorted(partitions))
                for topic_id, partitions in sorted(member.assigned.items())
                if topic_id in image.topic_names
            ]
        ),
    )

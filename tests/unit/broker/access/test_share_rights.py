"""Who may do what with share groups: the group is asked for as a whole, topics each by itself."""

from __future__ import annotations

from typing import Any

from tailrace.model.acls import Kind, Operation
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.shares import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupStateRequest,
    DescribeShareGroupOffsetsRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
    WriteShareGroupStateRequest,
)
from tests.unit.broker.access.secured_world import allow, secured
from tests.unit.broker.test_shares import SETTINGS
from tests.unit.broker.world import create_topic

NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def join() -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=0, subscribed_topic_names=["t"])


def fetch(topic_id: bytes) -> ShareFetchRequest:
    partitions = [ShareFetchRequest.FetchPartition(partition_index=0)]
    topics = [ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=partitions)]
    return ShareFetchRequest(group_id="g", member_id="a", max_records=1, topics=topics)


def describe_offsets() -> DescribeShareGroupOffsetsRequest:
    request = DescribeShareGroupOffsetsRequest
    topics = [request.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])]
    return request(groups=[request.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)])


def alter() -> AlterShareGroupOffsetsRequest:
    request = AlterShareGroupOffsetsRequest
    partitions = [request.AlterShareGroupOffsetsRequestPartition(partition_index=0)]
    topics = [request.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)]
    return request(group_id="g", topics=topics)


def delete() -> DeleteShareGroupOffsetsRequest:
    request = DeleteShareGroupOffsetsRequest
    return request(group_id="g", topics=[request.DeleteShareGroupOffsetsRequestTopic(topic_name="t")])


def code_of(answer: Any) -> ErrorCode:
    """The first that is in it."""
    if getattr(answer, "error_code", 0):
        return ErrorCode(answer.error_code)
    for field in answer.fields:
        for item in getattr(answer, field.name) if field.kind == "array" and field.struct is not None else ():
            if (found := code_of(item)) is not ErrorCode.NONE:
                return found
    return ErrorCode.NONE


async def test_members_and_administrators_need_the_group_and_the_topic() -> None:
    async with secured(SETTINGS) as world:
        topic_id = await create_topic(world.root, "t")
        await world.root.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
        alice = await world.connect_as("alice")
        acknowledge = ShareAcknowledgeRequest(group_id="g", member_id="a", share_session_epoch=1)
        of_groups = [(join(), 1), (ShareGroupDescribeRequest(group_ids=["g"]), 1), (fetch(topic_id), 2),
                     (acknowledge, 2), (describe_offsets(), 1), (alter(), 0), (delete(), 0)]  # fmt: skip
        for request, version in of_groups:
            assert code_of(await alice.request(request, version)) is NO_GROUP, request
        for operation in (Operation.READ, Operation.DESCRIBE, Operation.DELETE):
            await world.add(allow(operation, Kind.GROUP, "g"))
        assert (await world.root.request(join(), 1)).error_code == 0
        for request, version in (
            (join(), 1),
            (fetch(topic_id), 2),
            (describe_offsets(), 1),
            (alter(), 0),
            (delete(), 0),
        ):
            assert code_of(await alice.request(request, version)) is NO_TOPIC, request
        assert code_of(await alice.request(ShareGroupDescribeRequest(group_ids=["g"]), 1)) is NO_TOPIC
        await world.add(allow(Operation.READ, Kind.TOPIC, "t"))
        for request, version in ((join(), 1), (fetch(topic_id), 2), (describe_offsets(), 1)):
            assert code_of(await alice.request(request, version)) is ErrorCode.NONE, request
        for request in (alter(), delete()):
            assert code_of(await alice.request(request, 0)) is ErrorCode.NON_EMPTY_GROUP


async def test_the_states_of_share_partitions_are_for_brokers() -> None:
    async with secured(SETTINGS) as world:
        topic_id = await create_topic(world.root, "t")
        alice = await world.connect_as("alice")
        for request, topic in (
            (InitializeShareGroupStateRequest, InitializeShareGroupStateRequest.InitializeStateData),
            (ReadShareGroupStateRequest, ReadShareGroupStateRequest.ReadStateData),
            (WriteShareGroupStateRequest, WriteShareGroupStateRequest.WriteStateData),
            (DeleteShareGroupStateRequest, DeleteShareGroupStateRequest.DeleteStateData),
            (ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryRequest.ReadStateSummaryData),
        ):
            made: Any = topic
            about: Any = request
            asked = about(group_id="g", topics=[made(topic_id=topic_id, partitions=[about.PartitionData(partition=0)])])
            assert code_of(await alice.request(asked, asked.versions[-1])) is NO_CLUSTER, request

"""The group admin client and the way to a coordinator, against brokers that are old, not ours, or on the move."""

from __future__ import annotations

import pytest

from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.groups.coordinator import find_coordinator
from tailrace.client.groups.offsets import Committer
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.data import ApiVersionsRequest, ApiVersionsResponse
from tailrace.wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetFetchRequest,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from tailrace.wire.apis.own import DescribeGroupHistoryRequest, DescribeGroupHistoryResponse
from tailrace.wire.apis.shares import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from tailrace.wire.schema import Message
from tests.unit.client.groups.group_peer import GroupPeer
from tests.unit.client.peer import HANG_UP, Script


def classic(state: str, **facts: object) -> Script:
    def describe(request: DescribeGroupsRequest) -> Message:
        return DescribeGroupsResponse(
            groups=[
                DescribeGroupsResponse.DescribedGroup(group_id=request.groups[0], group_state=state, **facts),
            ]
        )

    return describe


def no_consumer_group(request: ConsumerGroupDescribeRequest) -> Message:
    found = ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=request.group_ids[0], error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )
    return ConsumerGroupDescribeResponse(groups=[found])


def no_share_group(request: ShareGroupDescribeRequest) -> Message:
    group = ShareGroupDescribeResponse.DescribedGroup(
        group_id=request.group_ids[0], error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )
    return ShareGroupDescribeResponse(groups=[group])


def no_streams_group(request: StreamsGroupDescribeRequest) -> Message:
    group = StreamsGroupDescribeResponse.DescribedGroup(
        group_id=request.group_ids[0], error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )
    return StreamsGroupDescribeResponse(groups=[group])


async def test_a_streams_group_is_described():
    def streams_group(request: StreamsGroupDescribeRequest) -> Message:
        response = StreamsGroupDescribeResponse
        tasks = response.Assignment(
            active_tasks=[response.TaskIds(subtopology_id="0", partitions=[0, 2])],
            standby_tasks=[response.TaskIds(subtopology_id="0", partitions=[1])],
        )
        topology = response.Topology(subtopologies=[response.Subtopology(subtopology_id="0", source_topics=["t", "u"])])
        member = response.Member(member_id="m", process_id="p", assignment=tasks)
        group = response.DescribedGroup(
            group_id=request.group_ids[0], group_state="Stable", topology=topology, members=[member]
        )
        return response(groups=[group])

    scripts: dict[type[Message], Script] = {
        ConsumerGroupDescribeRequest: no_consumer_group,
        DescribeGroupsRequest: classic("Dead"),
        ShareGroupDescribeRequest: no_share_group,
        StreamsGroupDescribeRequest: streams_group,
    }
    async with GroupPeer(scripts) as peer:
        cluster = peer.cluster()
        described = await GroupAdmin(cluster).describe("g")
        assert (described.type, described.state) == ("streams", "Stable")
        assert described.members[0].assignment == (("t", 0), ("t", 2)), "there is no u"
        assert described.members[0].tasks == ("p", ("0_0", "0_2"), ("0_1",))
        cluster.close()


async def test_a_share_group_is_described():
    def share_group(request: ShareGroupDescribeRequest) -> Message:
        response = ShareGroupDescribeResponse
        assigned = response.TopicPartitions(topic_id=bytes(16), topic_name="t", partitions=[0, 1])
        member = response.Member(member_id="m", assignment=response.Assignment(topic_partitions=[assigned]))
        group = response.DescribedGroup(group_id=request.group_ids[0], group_state="Stable", members=[member])
        return response(groups=[group])

    scripts = {ConsumerGroupDescribeRequest: no_consumer_group, DescribeGroupsRequest: classic("Dead")}
    async with GroupPeer({**scripts, ShareGroupDescribeRequest: share_group}) as peer:
        cluster = peer.cluster()
        described = await GroupAdmin(cluster).describe("g")
        assert (described.type, described.state) == ("share", "Stable")
        assert described.members[0].assignment == (("t", 0), ("t", 1))
        cluster.close()


class OldPeer(GroupPeer):
    """Has FindCoordinator up to version 3, and knows nothing of KIP-848."""

    def __init__(self, scripts: dict[type[Message], Script]) -> None:
        super().__init__(
            {ApiVersionsRequest: self._old_versions, FindCoordinatorRequest: self._find_one_coordinator} | scripts
        )

    def _old_versions(self, request: Message) -> Message:
        answer = self._api_versions(request)
        assert isinstance(answer, ApiVersionsResponse)
        answer.api_keys = [each for each in answer.api_keys if each.api_key not in (68, 69)]
        for each in answer.api_keys:
            if each.api_key == 10:
                each.max_version = 3
        return answer

    def _find_one_coordinator(self, request: FindCoordinatorRequest) -> Message:
        assert (request.key, request.coordinator_keys) == ("g", [])
        return FindCoordinatorResponse(node_id=1, host=self.address.host, port=self.address.port)


async def test_an_old_broker_is_asked_in_its_own_way():
    async with OldPeer({DescribeGroupsRequest: classic("Stable", protocol_type="connect", protocol_data="p")}) as peer:
        cluster = peer.cluster()
        assert await find_coordinator(cluster, "g") == (1, peer.address)
        described = await GroupAdmin(cluster).describe("g")
        assert (described.type, described.state, described.assignor) == ("classic", "Stable", "p")
        cluster.close()


@pytest.mark.parametrize(
    "answer", [classic("Dead"), classic("", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="no")]
)
async def test_a_group_that_does_not_exist(answer: Script):
    scripts: dict[type[Message], Script] = {
        ConsumerGroupDescribeRequest: no_consumer_group,
        ShareGroupDescribeRequest: no_share_group,
        StreamsGroupDescribeRequest: no_streams_group,
    }
    async with GroupPeer({**scripts, DescribeGroupsRequest: answer}) as peer:
        cluster = peer.cluster()
        with pytest.raises(KafkaError, match="group g does not exist") as refused:
            await GroupAdmin(cluster).describe("g")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        cluster.close()


async def test_a_coordinator_that_has_moved_is_looked_for_again():
    states = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", ""]

    def describe(request: DescribeGroupsRequest) -> Message:
        state = states.pop(0)
        return classic("Empty", error_code=ErrorCode[state] if state else 0)(request)

    async with GroupPeer({ConsumerGroupDescribeRequest: no_consumer_group, DescribeGroupsRequest: describe}) as peer:
        cluster = peer.cluster()
        assert (await GroupAdmin(cluster).describe("g")).state == "Empty"
        assert states == []
        cluster.close()


async def test_a_broker_that_is_not_ours_keeps_no_history():
    async with GroupPeer({DescribeGroupHistoryRequest: lambda _: HANG_UP}) as peer:
        cluster = peer.cluster()
        with pytest.raises(KafkaError, match="only brokers of Tailrace keep one") as refused:
            await GroupAdmin(cluster).history("g")
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert len(peer.received(DescribeGroupHistoryRequest)) == 1
        cluster.close()


async def test_a_history():
    told = DescribeGroupHistoryResponse.Rebalance(
        at_ms=5, cause="member left", detail="m left", epoch=7, member_id="m", client_id="c"
    )
    async with GroupPeer(
        {DescribeGroupHistoryRequest: lambda _: DescribeGroupHistoryResponse(rebalances=[told])}
    ) as peer:
        cluster = peer.cluster()
        assert await GroupAdmin(cluster).history("g") == [(5, "member left", "m left", 7, "m", "c")]
        cluster.close()


async def test_a_broker_that_cannot_list_says_so():
    refusal = ListGroupsResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with GroupPeer({ListGroupsRequest: lambda _: refusal}) as peer:
        cluster = peer.cluster()
        with pytest.raises(KafkaError, match="broker 1 does not list its groups"):
            await GroupAdmin(cluster).groups()
        cluster.close()


async def test_offsets_go_by_topic_names():
    async with GroupPeer({}) as peer:
        cluster = peer.cluster()
        partitions = [TopicPartition("t", 2), TopicPartition("t", 0)]

        async def commit_and_fetch(offsets):
            await offsets.commit(dict.fromkeys(partitions, 4), Committer("m", 3, "i"))
            return await offsets.fetch([*partitions, TopicPartition("t", 1)])

        found = await GroupAdmin(cluster).offsets_of("g", commit_and_fetch)
        assert {partition.partition: each.offset for partition, each in found.items()} == {0: 4, 2: 4}
        (commit,) = peer.received(OffsetCommitRequest)
        assert (commit.member_id, commit.generation_id_or_member_epoch, commit.group_instance_id) == ("m", 3, "i")
        assert [each.partition_index for each in commit.topics[0].partitions] == [0, 2]
        assert {version for kind, version in peer.versions if kind in (OffsetCommitRequest, OffsetFetchRequest)} == {9}
        cluster.close()

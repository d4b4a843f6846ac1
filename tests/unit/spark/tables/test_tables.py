"""System tables of a cluster in which not everything is well."""

from typing import Any

from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode
from tailrace.spark.tables.groups import CONSUMER_OFFSETS, GROUPS
from tailrace.spark.tables.table import SystemTable
from tailrace.spark.tables.topics import PARTITIONS, TOPICS
from tailrace.wire.apis.admin import DescribeConfigsRequest, DescribeConfigsResponse
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from tailrace.wire.apis.shares import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from tailrace.wire.schema import Message
from tests.unit.client.groups.group_peer import GroupPeer
from tests.unit.client.peer import Script


async def read(table: SystemTable, scripts: dict[type[Message], Script]) -> list[dict[str, Any]]:
    async with TroubledCluster(scripts) as peer:
        cluster: Cluster = peer.cluster()
        rows = await table.read(cluster)
        cluster.close()
    return [dict(zip(table.schema.names, row, strict=True)) for row in rows]


class TroubledCluster(GroupPeer):
    """Partition 1 of topic t has no leader. There is a share group, which requests for other kinds do not know."""

    def __init__(self, scripts: dict[type[Message], Script]) -> None:
        super().__init__(
            {
                MetadataRequest: self._without_a_leader,
                ListGroupsRequest: self._list_groups,
                ConsumerGroupDescribeRequest: self._no_consumer_group,
                DescribeGroupsRequest: self._no_classic_group,
                ShareGroupDescribeRequest: self._share_group,
            }
            | scripts,
            partitions=2,
        )

    def _without_a_leader(self, request: Message) -> Message:
        answer = self._metadata(request)
        assert isinstance(answer, MetadataResponse)
        for topic in answer.topics:
            topic.partitions[1].leader_id = -1
            topic.partitions[1].leader_epoch = -1
            topic.partitions[1].isr_nodes = []
            topic.partitions[1].offline_replicas = [1]
        return answer

    def _list_groups(self, _: Message) -> Message:
        group = ListGroupsResponse.ListedGroup(
            group_id="g", protocol_type="share", group_state="Stable", group_type="share"
        )
        return ListGroupsResponse(groups=[group])

    def _no_consumer_group(self, _: Message) -> Message:
        group = ConsumerGroupDescribeResponse.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return ConsumerGroupDescribeResponse(groups=[group])

    def _share_group(self, _: Message) -> Message:
        member = ShareGroupDescribeResponse.Member(member_id="m", client_id="c", client_host="h")
        group = ShareGroupDescribeResponse.DescribedGroup(
            group_id="g", group_state="Stable", group_epoch=3, assignor_name="simple", members=[member]
        )
        return ShareGroupDescribeResponse(groups=[group])

    def _no_classic_group(self, _: Message) -> Message:
        group = DescribeGroupsResponse.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return DescribeGroupsResponse(groups=[group])


async def test_a_partition_without_a_leader_has_no_offsets() -> None:
    led, leaderless = await read(PARTITIONS, {})
    assert (led["leader"], led["log_start_offset"], led["high_watermark"], led["last_stable_offset"]) == (
        1,
        0,
        100,
        100,
    )
    assert leaderless == {
        "topic": "t",
        "partition": 1,
        "leader": None,
        "leader_epoch": None,
        "replicas": [1],
        "isr": [],
        "offline_replicas": [1],
        "log_start_offset": None,
        "high_watermark": None,
        "last_stable_offset": None,
    }


def no_share_group(_: Message) -> Message:
    group = ShareGroupDescribeResponse.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    return ShareGroupDescribeResponse(groups=[group])


async def test_a_share_group_has_its_members() -> None:
    (group,) = await read(GROUPS, {})
    assert (group["type"], group["assignor"], group["epoch"]) == ("share", "simple", 3)
    assert [member[0] for member in group["members"]] == ["m"]


async def test_settings_that_we_may_not_see_are_null() -> None:
    def refuse(_: Message) -> Message:
        result = DescribeConfigsResponse.DescribeConfigsResult(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, resource_name="t"
        )
        return DescribeConfigsResponse(results=[result])

    (topic,) = await read(TOPICS, {DescribeConfigsRequest: refuse})
    assert (topic["topic"], topic["partition_count"], topic["configs"]) == ("t", 2, None)


async def test_groups_of_another_kind_are_listed_without_members() -> None:
    def list_unknown(_: Message) -> Message:
        group = ListGroupsResponse.ListedGroup(
            group_id="g", protocol_type="later", group_state="Stable", group_type="later"
        )
        return ListGroupsResponse(groups=[group])

    def no_streams_group(_: Message) -> Message:
        group = StreamsGroupDescribeResponse.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return StreamsGroupDescribeResponse(groups=[group])

    scripts: dict[type[Message], Script] = {
        ListGroupsRequest: list_unknown,
        ShareGroupDescribeRequest: no_share_group,
        StreamsGroupDescribeRequest: no_streams_group,
    }
    (group,) = await read(GROUPS, scripts)
    assert group == {
        "group_id": "g",
        "type": "later",
        "protocol_type": "later",
        "state": "Stable",
        "coordinator": 1,
        "assignor": None,
        "epoch": None,
        "members": None,
    }


async def test_lag_where_the_end_is_known() -> None:
    def fetch(request: Message) -> Message:
        assert isinstance(request, OffsetFetchRequest)
        # An open transaction must not keep anybody from looking.
        assert not request.require_stable
        partitions = [
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=offset, metadata=""
            )
            for index, offset in ((0, 70), (1, 5))
        ]
        topic = OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=partitions)
        return OffsetFetchResponse(groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", topics=[topic])])

    led, leaderless = await read(CONSUMER_OFFSETS, {OffsetFetchRequest: fetch})
    assert (led["committed_offset"], led["high_watermark"], led["lag"]) == (70, 100, 30)
    assert (leaderless["committed_offset"], leaderless["high_watermark"], leaderless["lag"]) == (5, None, None)


async def test_a_group_that_is_gone_meanwhile_has_no_offsets() -> None:
    def gone(_: Message) -> Message:
        group = OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return OffsetFetchResponse(groups=[group])

    assert await read(CONSUMER_OFFSETS, {OffsetFetchRequest: gone}) == []

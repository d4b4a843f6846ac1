"""OffsetFetch of several groups, ListGroups, DescribeGroups and DeleteGroups over the wire."""

import asyncio
from typing import Any

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tests.unit.broker.world import Peer, World, create_topic, running
from tests.unit.replica.replicas import led_by

SETTINGS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "5"}
# More than are asked in one turn of the loop.
MANY = [f"g{number}" for number in range(120)]


async def prepared(world: World) -> Peer:
    peer = await world.connect()
    await create_topic(peer, "t")
    found = await peer.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    assert found.coordinators[0].error_code == 0
    return peer


async def commit(peer: Peer, group_id: str, offset: int) -> None:
    of_partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[of_partition])
    response = await peer.request(OffsetCommitRequest(group_id=group_id, topics=[of_topic]), 9)
    assert response.topics[0].partitions[0].error_code == 0


async def fetch(peer: Peer, group_ids: list[str], version: int = 9) -> list[tuple[str, int]]:
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=None) for each in group_ids]
    response = await peer.request(OffsetFetchRequest(groups=groups), version)
    return [
        (group.group_id, topic.partitions[0].committed_offset) for group in response.groups for topic in group.topics
    ]


def join(group_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


@pytest.mark.parametrize("count", [0, 1, 3, len(MANY)])
async def test_offsets_of_several_groups_come_in_the_order_asked(count: int) -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        for number, group_id in enumerate(MANY[:count]):
            await commit(peer, group_id, number)
        expected = [(group_id, number) for number, group_id in enumerate(MANY[:count])]
        assert await fetch(peer, MANY[:count]) == expected


@pytest.mark.parametrize("version", range(1, 8))
async def test_offsets_in_old_versions(version: int) -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        await commit(peer, "g", 7)
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
        response = await peer.request(OffsetFetchRequest(group_id="g", topics=[topic]), version)
        assert [each.committed_offset for each in response.topics[0].partitions] == [7, -1]


async def test_groups_are_listed_of_all_partitions() -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        assert (await peer.request(ListGroupsRequest(), 5)).groups == []
        for group_id in MANY[:7]:
            await commit(peer, group_id, 1)
        listed = await peer.request(ListGroupsRequest(), 5)
        assert sorted((each.group_id, each.group_state, each.group_type) for each in listed.groups) == sorted(
            (group_id, "Empty", "classic") for group_id in MANY[:7]
        )


async def test_a_group_is_listed_once_it_is_committed() -> None:
    async with running(SETTINGS) as world:
        peer, other = await prepared(world), await world.connect()
        shard = world.broker.services.coordination.groups.find("g")
        partition, both = shard.partition, (NodeId(1), NodeId(2))
        partition.follow_image(led_by(NodeId(1), epoch=shard.leader_epoch, replicas=both, isr=both))
        committing = asyncio.create_task(commit(other, "g", 5))
        while not partition.log.log_end_offset:
            await asyncio.sleep(0.001)
        listing = asyncio.create_task(peer.request(ListGroupsRequest(), 5))
        await asyncio.sleep(0.02)
        assert not listing.done()
        partition.note_fetch(NodeId(2), 5, offset=1, log_start_offset=0)
        assert [group.group_id for group in (await listing).groups] == ["g"]
        await committing


async def test_a_coordinator_that_is_lost_while_its_groups_are_listed_is_asked_again() -> None:
    async with running(SETTINGS) as world:
        peer, other = await prepared(world), await world.connect()
        shard = world.broker.services.coordination.groups.find("g")
        partition, both = shard.partition, (NodeId(1), NodeId(2))
        partition.follow_image(led_by(NodeId(1), epoch=shard.leader_epoch, replicas=both, isr=both))
        committing = asyncio.create_task(commit(other, "g", 5))
        while not partition.log.log_end_offset:
            await asyncio.sleep(0.001)
        listing = asyncio.create_task(peer.request(ListGroupsRequest(), 5))
        await asyncio.sleep(0.02)
        shard.close()
        assert (await listing).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        with pytest.raises(AssertionError):
            await committing


@pytest.mark.parametrize("version", range(6))
async def test_filters_are_read_in_any_case(version: int) -> None:
    async with running({**SETTINGS, "group.initial.rebalance.delay.ms": "0"}) as world:
        peer = await prepared(world)
        await commit(peer, "simple", 1)
        joined = await peer.request(join("joined"), 3)
        assert joined.error_code == 0

        async def listed(**filters: Any) -> list[str]:
            response = await peer.request(ListGroupsRequest(**filters), version)
            return sorted(group.group_id for group in response.groups)

        assert await listed() == ["joined", "simple"]
        if version >= 4:
            assert await listed(states_filter=["eMPTY"]) == ["simple"]
            assert await listed(states_filter=["Empty", "CompletingRebalance"]) == ["joined", "simple"]
        if version >= 5:
            assert await listed(types_filter=["Classic"]) == ["joined", "simple"]
            assert await listed(types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described(version: int) -> None:
    async with running({**SETTINGS, "group.initial.rebalance.delay.ms": "0"}) as world:
        peer = await prepared(world)
        await commit(peer, "simple", 1)
        joined = await peer.request(join("joined"), 3)
        response = await peer.request(DescribeGroupsRequest(groups=["joined", "nowhere", "simple"]), version)
        assert [(each.group_id, each.group_state) for each in response.groups] == [
            ("joined", "CompletingRebalance"),
            ("nowhere", "Dead"),
            ("simple", "Empty"),
        ]
        assert [each.error_code for each in response.groups] == [
            0,
            ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0,
            0,
        ]
        assert [member.member_id for member in response.groups[0].members] == [joined.member_id]


async def test_a_classic_group_is_no_consumer_group() -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        await commit(peer, "simple", 1)
        response = await peer.request(ConsumerGroupDescribeRequest(group_ids=["simple", "nowhere", ""]), 1)
        assert [(each.group_id, each.error_code, each.error_message) for each in response.groups] == [
            ("simple", ErrorCode.GROUP_ID_NOT_FOUND, "Group simple is not a consumer group."),
            ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND, "Group nowhere not found."),
            ("", ErrorCode.INVALID_GROUP_ID, None),
        ]


async def test_a_long_group_id_is_not_quoted_in_full() -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        long = "g" * 32_767
        for request in (ConsumerGroupDescribeRequest(group_ids=[long]), DescribeGroupsRequest(groups=[long])):
            (group,) = (await peer.request(request, request.versions[-1])).groups
            assert (group.group_id, group.error_code) == (long, ErrorCode.GROUP_ID_NOT_FOUND)
            assert len(group.error_message) < 200


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted(version: int) -> None:
    async with running({**SETTINGS, "group.initial.rebalance.delay.ms": "0"}) as world:
        peer = await prepared(world)
        await commit(peer, "simple", 1)
        await peer.request(join("joined"), 3)
        names = ["simple", "joined", "nowhere", "simple"]
        response = await peer.request(DeleteGroupsRequest(groups_names=names), version)
        assert [(each.group_id, each.error_code) for each in response.results] == [
            ("simple", 0),
            ("joined", ErrorCode.NON_EMPTY_GROUP),
            ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        assert await fetch(peer, ["simple"]) == []


async def test_without_the_topic_there_is_nothing() -> None:
    async with running(SETTINGS) as world:
        peer = await world.connect()
        assert (await peer.request(ListGroupsRequest(), 5)).groups == []
        deleted = await peer.request(DeleteGroupsRequest(groups_names=["a", "b"]), 2)
        assert [each.error_code for each in deleted.results] == [ErrorCode.NOT_COORDINATOR] * 2


@pytest.mark.parametrize("version", range(1, 10))
async def test_who_does_not_coordinate_lists_partitions_in_the_first_version_alone(version: int) -> None:
    """As Apache Kafka 4.3 answers, asked for each version. librdkafka goes by the list, and does not ask again."""
    async with running(SETTINGS) as world:
        peer = await world.connect()
        if version < 8:
            topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
            request = OffsetFetchRequest(group_id="g", topics=[topic])
        else:
            topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
            asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics, member_epoch=-1)
            request = OffsetFetchRequest(groups=[asked])
        answer = await peer.request(request, version)
        told = answer.groups[0] if version >= 8 else answer
        if version == 1:
            assert [each.error_code for each in told.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR] * 2
        else:
            assert (told.error_code, told.topics) == (ErrorCode.NOT_COORDINATOR, [])


@pytest.mark.parametrize("metadata", ["", "m" * 4096])
async def test_a_commit_of_many_partitions(metadata: str) -> None:
    """Its records hold 2 MB with metadata: twice as much as one batch may."""
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        await create_topic(peer, "wide", 500)
        of_partitions = [
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=number, committed_offset=number, committed_metadata=metadata
            )
            for number in range(501)
        ]
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=of_partitions) for name in ("wide", "t")
        ]
        response = await peer.request(OffsetCommitRequest(group_id="g", topics=topics), 9)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [topic.name for topic in response.topics] == ["wide", "t"]
        assert [each.error_code for each in response.topics[0].partitions] == [0] * 500 + [unknown]
        assert [each.error_code for each in response.topics[1].partitions] == [0] + [unknown] * 500
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
        fetched = await peer.request(OffsetFetchRequest(groups=[group]), 9)
        found = {topic.name: topic.partitions for topic in fetched.groups[0].topics}
        assert [each.committed_offset for each in found["wide"]] == list(range(500))
        assert {each.metadata for each in found["wide"]} == {metadata}
        partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in range(501)]
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="wide", partitions=partitions)
        deleted = await peer.request(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
        assert [each.error_code for each in deleted.topics[0].partitions] == [0] * 500 + [unknown]
        assert await fetch(peer, ["g"]) == [("g", 0)], "of topic t"

"""Coordinators of a whole broker, over a socket: who coordinates what, and what survives."""

import asyncio
from typing import Any

import pytest

from tailrace.catalogue import Audience
from tailrace.coordinator.placement import coordinator_partition
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import CONSUMER_OFFSETS_TOPIC, NodeId
from tailrace.wire.apis.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.unit.broker.world import Peer, World, create_topic, delete_topic, running
from tests.unit.replica.replicas import led_by

SETTINGS = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "5"}
COMMIT_VERSION, FETCH_VERSION = 9, 9


def commit(group_id: str, offset: int, *, topic: str = "t", partition: int = 0) -> OffsetCommitRequest:
    of_partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    of_topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[of_partition])
    return OffsetCommitRequest(group_id=group_id, topics=[of_topic])


def committed(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


async def fetch_offsets(peer: Peer, *group_ids: str) -> dict[str, int]:
    """Each group's offset of partition 0 of topic t; a negative error code where there is one."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=topics) for each in group_ids]
    response = await peer.request(OffsetFetchRequest(groups=groups), FETCH_VERSION)
    return {
        group.group_id: -group.error_code if group.error_code else group.topics[0].partitions[0].committed_offset
        for group in response.groups
    }


async def found(peer: Peer, *keys: str) -> Any:
    return await peer.request(FindCoordinatorRequest(coordinator_keys=list(keys)), 6)


async def prepared(world: World) -> Peer:
    peer = await world.connect()
    await create_topic(peer, "t")
    assert (await found(peer, "g")).coordinators[0].error_code == 0
    return peer


def join(group_id: str, **fields: Any) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
        **fields,
    )


@pytest.mark.parametrize("version", range(7))
async def test_the_first_question_for_a_coordinator_creates_its_topic(version: int) -> None:
    async with running(SETTINGS) as world:
        peer = await world.connect()
        request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"] if version >= 4 else [])
        response = await peer.request(request, version)
        answers = response.coordinators if version >= 4 else [response]
        assert [(each.error_code, each.node_id, each.host, each.port) for each in answers] == [
            (0, 1, "127.0.0.1", world.broker.port)
        ] * len(answers)
        assert len(world.broker.image.topics[CONSUMER_OFFSETS_TOPIC].partitions) == 5


@pytest.mark.parametrize(
    ("key_type", "error"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.INVALID_REQUEST), (9, ErrorCode.INVALID_REQUEST)],
)
async def test_keys_of_other_kinds_have_no_coordinator(key_type: int, error: ErrorCode) -> None:
    async with running(SETTINGS) as world:
        peer = await world.connect()
        response = await peer.request(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 6)
        assert (response.coordinators[0].error_code, response.coordinators[0].node_id) == (error, -1)
        assert world.broker.image.topics == {}


async def test_share_partitions_have_a_coordinator() -> None:
    settings = {"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1"}
    async with running(SETTINGS | settings) as world:
        peer = await world.connect()
        wanted = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
        response = await peer.request(wanted, 6)
        assert (response.coordinators[0].error_code, response.coordinators[0].node_id) == (0, 1)
        # Version 5 does not know of them.
        response = await peer.request(wanted, 5)
        assert response.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


async def test_many_may_ask_for_the_topic_at_once() -> None:
    async with running(SETTINGS) as world:
        peers = [await world.connect() for _ in range(5)]
        answers = await asyncio.gather(*(found(peer, "g") for peer in peers))
        assert [each.coordinators[0].error_code for each in answers] == [0] * 5


async def test_groups_keep_apart_and_survive_a_restart_and_a_kill() -> None:
    world = World()
    await world.start(SETTINGS)
    peer = await prepared(world)
    for number in range(20):
        assert committed(await peer.request(commit(f"g{number}", number), COMMIT_VERSION)) == 0
    names = [f"g{number}" for number in range(20)]
    expected = {name: number for number, name in enumerate(names)}
    assert await fetch_offsets(peer, *names) == expected
    await peer.close()
    await world.broker.stop()

    await world.start(SETTINGS)
    peer = await world.connect()
    assert await loaded(peer, *names) == expected
    assert committed(await peer.request(commit("g7", 70), COMMIT_VERSION)) == 0
    abandoned = world.broker
    world.disk.crash()

    await world.start(SETTINGS)
    again = await world.connect()
    assert await loaded(again, *names) == {**expected, "g7": 70}
    await again.close()
    await world.broker.stop()
    await peer.close()
    await abandoned._close(Audience.CLIENTS)


async def loaded(peer: Peer, *group_ids: str) -> dict[str, int]:
    """The offsets, once the coordinators have read their logs."""
    for _ in range(100):
        offsets = await fetch_offsets(peer, *group_ids)
        if -ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in offsets.values():
            return offsets
        await asyncio.sleep(0.01)
    raise AssertionError("the coordinators are not loaded")


async def test_without_the_topic_nobody_coordinates() -> None:
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        assert committed(await peer.request(commit("g", 1), COMMIT_VERSION)) == ErrorCode.NOT_COORDINATOR
        assert await fetch_offsets(peer, "g") == {"g": -ErrorCode.NOT_COORDINATOR}
        response = await peer.request(HeartbeatRequest(group_id="g", member_id="m"), 4)
        assert response.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (join(""), 9),
        (SyncGroupRequest(), 5),
        (HeartbeatRequest(), 4),
        (LeaveGroupRequest(), 5),
        (OffsetDeleteRequest(), 0),
    ],
)
async def test_a_group_needs_a_name(request_: Any, version: int) -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        assert (await peer.request(request_, version)).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_simple_consumer_needs_none() -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        assert committed(await peer.request(commit("", 5), COMMIT_VERSION)) == 0
        assert await fetch_offsets(peer, "") == {"": 5}


async def test_past_the_lease_nobody_coordinates() -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        world.broker.replicas.lease.ends_ms = 0.0
        assert committed(await peer.request(commit("g", 5), COMMIT_VERSION)) == ErrorCode.NOT_COORDINATOR
        assert (await peer.request(ListGroupsRequest(), 5)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_new_leader_epoch_begins_with_what_is_in_the_log() -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        assert committed(await peer.request(commit("g", 5), COMMIT_VERSION)) == 0
        coordinators = world.broker.services.coordination.groups
        shard = coordinators.find("g")
        elect(world, shard.index, leader=NodeId(1), epoch=1)
        assert not shard.is_active
        assert coordinators.shards[shard.index] is not shard
        assert await loaded(peer, "g") == {"g": 5}
        elect(world, shard.index, leader=NodeId(2), epoch=2)
        assert await fetch_offsets(peer, "g") == {"g": -ErrorCode.NOT_COORDINATOR}


def elect(world: World, index: int, *, leader: NodeId, epoch: int) -> None:
    """As the metadata would tell it."""
    broker, old = world.broker, world.broker.image
    topic = old.topics[CONSUMER_OFFSETS_TOPIC]
    state = led_by(leader, epoch=epoch, replicas=(NodeId(1), NodeId(2)), isr=(leader,))
    parts = {part: getattr(old, part) for part in type(old).__slots__ if part != "cluster_id"}
    parts["topics"] = {**old.topics, topic.name: topic._replace(partitions={**topic.partitions, index: state})}
    new = type(old)(old.cluster_id, **parts)
    broker.replicas.find(topic.name, index).follow_image(state)
    broker.quorum.image = new
    broker.services.coordination.follow_image(old, new)


async def test_a_member_that_waits_is_answered_when_the_broker_stops() -> None:
    world = World()
    await world.start({**SETTINGS, "group.initial.rebalance.delay.ms": "60000"})
    peer = await prepared(world)
    answer = await peer.request(join("g"), 9)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    peer.send(join("g", member_id=answer.member_id), 9)
    await asyncio.sleep(0.05)
    async with asyncio.timeout(3):
        await world.broker.stop()
    assert (await peer.receive()).error_code == ErrorCode.NOT_COORDINATOR
    await peer.close()


async def test_requests_behind_a_waiting_member_wait_too() -> None:
    async with running({**SETTINGS, "group.initial.rebalance.delay.ms": "200"}) as world:
        peer = await prepared(world)
        member_id = (await peer.request(join("g"), 9)).member_id
        peer.send(join("g", member_id=member_id), 9)
        peer.send(commit("other", 3), COMMIT_VERSION)
        await asyncio.sleep(0.05)
        assert not world.broker.services.coordination.groups.find("other").machine.state.offsets.has_group("other")
        assert (await peer.receive()).error_code == 0
        assert committed(await peer.receive()) == 0


async def test_the_topic_may_be_deleted() -> None:
    async with running(SETTINGS) as world:
        peer = await prepared(world)
        assert committed(await peer.request(commit("g", 5), COMMIT_VERSION)) == 0
        await delete_topic(peer, CONSUMER_OFFSETS_TOPIC)
        assert world.broker.services.coordination.groups.shards == {}
        assert committed(await peer.request(commit("g", 5), COMMIT_VERSION)) == ErrorCode.NOT_COORDINATOR
        # Who asks first is told that it is gone, and it is made again.
        assert (await found(peer, "g")).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        async with asyncio.timeout(5):
            while (await found(peer, "g")).coordinators[0].error_code:
                await asyncio.sleep(0.01)
        assert await fetch_offsets(peer, "g") == {"g": -1}


async def test_a_log_that_cannot_be_read_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.coordinators.runtime._RETRY_SECONDS", 0.05)
    world = World()
    await world.start(SETTINGS)
    peer = await prepared(world)
    assert committed(await peer.request(commit("g", 5), COMMIT_VERSION)) == 0
    await peer.close()
    await world.broker.stop()
    index = coordinator_partition("g", 5)
    await world.start(SETTINGS)
    world.disk.fail("read", f"*/{CONSUMER_OFFSETS_TOPIC}-{index}/*.log")
    peer = await world.connect()
    await asyncio.sleep(0.03)
    assert await fetch_offsets(peer, "g") == {"g": -ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    world.disk.heal()
    assert await loaded(peer, "g") == {"g": 5}
    await peer.close()
    await world.broker.stop()

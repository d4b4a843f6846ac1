"""Brokers whose controllers are gone: what goes on, what ends when a follower falls silent, and what is told then."""

import asyncio

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import HeartbeatRequest, OffsetCommitRequest
from tailrace.wire.apis.transactions import InitProducerIdRequest
from tests.unit.broker.cluster.test_wiring import create, leader_of, wait_topic
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import Peer, batch, fetch, fetched, produce, produced

CONTROLLERS = (4, 5, 6)
ROLES = ("broker", "broker", "broker", "controller", "controller", "controller")


async def lose_controllers(world: ClusterWorld, count: int) -> None:
    """Until all leases are over."""
    for node_id in CONTROLLERS[:count]:
        await world.kill(node_id)
    brokers = [broker for broker in world.running if broker.roles.is_broker]
    await world.wait(lambda: all(broker.replicas.lease.is_past for broker in brokers), "the leases are over")
    await asyncio.sleep(3)


async def end_all(world: ClusterWorld) -> None:
    for node_id in CONTROLLERS:
        if not world.nodes[node_id].is_up:
            world.nodes[node_id].start()
    await world.wait(lambda: all(node.is_ready for node in world.nodes.values()), "all are back")


async def send(peer: Peer, *, acks: int, **sequence: int) -> int:
    request = produce("t", batch(b"a", **sequence), acks=acks, timeout_ms=1000)
    return produced(await peer.request(request, 9)).error_code


@simulated
async def test_without_controllers_leaders_go_on():
    async with running_cluster(*ROLES) as world:
        peer = await world.connect(1)
        await create(peer, "t", partitions=1)
        await wait_topic(world, "t")
        leader = leader_of(world, "t")
        peer = await world.connect(leader)
        for lost in (2, 3):
            await lose_controllers(world, lost)
            assert await send(peer, acks=-1) == 0
            assert await send(peer, acks=1) == 0
            answer = fetched(await peer.request(fetch("t", 0), 11))
            assert answer.error_code == 0
            assert answer.records
        await end_all(world)
        assert leader_of(world, "t") == leader, "nobody else was elected"


@simulated
async def test_a_leader_that_is_not_followed_any_more_ends():
    async with running_cluster(*ROLES) as world:
        peer = await world.connect(1)
        await create(peer, "t", partitions=1)
        await wait_topic(world, "t")
        leader = leader_of(world, "t")
        peer = await world.connect(leader)
        await lose_controllers(world, 3)
        silent = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        world.nodes[silent].pause()
        waiting = asyncio.ensure_future(send(peer, acks=1))
        await asyncio.sleep(2.5)
        assert waiting.done(), "who waits is told"
        assert waiting.result() in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT)
        assert await send(peer, acks=-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = fetched(await peer.request(fetch("t", 0), 11))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.nodes[silent].resume()
        await asyncio.sleep(2)
        assert await send(peer, acks=-1) == 0
        await end_all(world)


@simulated
async def test_past_the_lease_nothing_is_refused_for_good():
    async with running_cluster(*ROLES) as world:
        peer = await world.connect(1)
        await create(peer, "t", partitions=1)
        await wait_topic(world, "t")
        leader = leader_of(world, "t")
        peer = await world.connect(leader)
        identity = await peer.request(InitProducerIdRequest(transactional_id=None), 4)
        producer = {"producer_id": identity.producer_id, "producer_epoch": 0}
        assert await send(peer, acks=-1, base_sequence=0, **producer) == 0
        assert await send(peer, acks=-1, base_sequence=5, **producer) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await lose_controllers(world, 3)
        assert await send(peer, acks=-1, base_sequence=5, **producer) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetched(await peer.request(fetch("t", 99), 11)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await end_all(world)


@simulated
async def test_coordinators_go_on_too():
    async with running_cluster(*ROLES) as world:
        peer = await world.connect(1)
        await create(peer, "t", partitions=1)
        await create(peer, "__consumer_offsets", partitions=1)
        await wait_topic(world, "__consumer_offsets")
        coordinator = leader_of(world, "__consumer_offsets")
        peer = await world.connect(coordinator)

        async def commit() -> int:
            offset = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[offset])
            request = OffsetCommitRequest(group_id="g", topics=[topic])
            code: int = (await peer.request(request, 8)).topics[0].partitions[0].error_code
            return code

        async def beat() -> int:
            request = HeartbeatRequest(group_id="g", member_id="nobody", generation_id=1)
            code: int = (await peer.request(request, 3)).error_code
            return code

        async with asyncio.timeout(10):
            while await commit() != 0:
                await asyncio.sleep(0.05)
        assert await beat() == ErrorCode.UNKNOWN_MEMBER_ID
        await lose_controllers(world, 3)
        assert await commit() == 0
        assert await beat() == ErrorCode.NOT_COORDINATOR
        await end_all(world)


@simulated
async def test_producer_ids_last_while_blocks_do():
    """Each broker has one before anybody asks, and the next one when half of it is used."""
    async with running_cluster(*ROLES) as world:
        await asyncio.sleep(1)
        peer = await world.connect(1)

        async def take(count: int) -> list[int]:
            answers = [await peer.request(InitProducerIdRequest(transactional_id=None), 4) for _ in range(count)]
            return [answer.producer_id for answer in answers if answer.error_code == 0]

        taken = await take(501)
        await asyncio.sleep(1)
        await lose_controllers(world, 3)
        taken += await take(1499)
        assert len(set(taken)) == 2000
        await end_all(world)

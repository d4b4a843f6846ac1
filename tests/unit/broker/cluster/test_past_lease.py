"""Brokers whose controllers are gone: what goes on, what ends when a follower falls silent, and what is told then."""

import asyncio

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import PartitionIndex
from tailrace.wire.apis.admin import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.groups import FindCoordinatorRequest, HeartbeatRequest, OffsetCommitRequest
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
async def test_who_asks_a_leader_that_is_cut_off_is_sent_to_others():
    """It refuses to write. A client that it kept, all the more one that it told that it leads, would go on asking it,
    and only it. It is listed all the same: whoever knows of it by others would drop it and take it up without end."""
    async with running_cluster(*ROLES) as world:
        peer = await world.connect(1)
        for name, factor in (("t", 3), ("__consumer_offsets", 3), ("alone", 1)):
            await create(peer, name, partitions=1, factor=factor)
            await wait_topic(world, name)
        leader = leader_of(world, "t")
        peer = await world.connect(leader)
        for name in ("__consumer_offsets", "alone"):
            await lead(world, name, leader)
        assert await ask_leaders(peer, "t") == ({"t": leader}, {1, 2, 3})

        others = [node for node in world.nodes if node != leader]
        for other in others:
            world.network.cut(f"node-{leader}", f"node-{other}")
            world.network.cut(f"node-{other}", f"node-{leader}")
        await asyncio.sleep(3)
        assert await send(peer, acks=-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await ask_leaders(peer, "t") == ({"t": ErrorCode.LEADER_NOT_AVAILABLE}, {1, 2, 3})
        assert await peer.is_closed()
        peer = await world.connect(leader)
        coordinator = await peer.request(FindCoordinatorRequest(key="g"), 3)
        assert coordinator.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await peer.is_closed()
        peer = await world.connect(leader)
        # Nobody else can lead what nobody else has: that goes on, as in Kafka.
        assert await ask_leaders(peer, "alone") == ({"alone": leader}, {1, 2, 3})
        assert await ask_leaders(peer, "alone", "t") == (
            {"alone": leader, "t": ErrorCode.LEADER_NOT_AVAILABLE},
            {1, 2, 3},
        )
        assert leader_of_others(world, "t", leader) != leader

        world.network.heal()
        await world.wait(lambda: not world.nodes[leader].broker.replicas.lease.is_past, "it has a lease again")
        leaders, brokers = await ask_leaders(peer, "t")
        assert (leaders["t"], brokers) == (leader_of_others(world, "t", leader), {1, 2, 3})


async def lead(world: ClusterWorld, name: str, leader: int) -> None:
    """Until `leader` leads its only partition."""
    peer = await world.connect(leader)
    moved = AlterPartitionReassignmentsRequest.ReassignablePartition(
        partition_index=0,
        replicas=[leader] if name == "alone" else [leader, *({1, 2, 3} - {leader})],
    )
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[moved])
    assert (await peer.request(AlterPartitionReassignmentsRequest(topics=[topic]), 0)).error_code == 0
    await asyncio.sleep(1)
    await peer.request(ElectLeadersRequest(topic_partitions=None), 2)
    await world.wait(lambda: leader_of(world, name) == leader, f"{leader} leads {name}")


async def ask_leaders(peer: Peer, *topics: str) -> tuple[dict[str, int], set[int]]:
    """The leader of each topic's partition, or the error in its place; and the brokers that are listed."""
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    answer = await peer.request(MetadataRequest(topics=asked), 12)
    partitions = {topic.name: topic.partitions[0] for topic in answer.topics}
    leaders = {name: partition.error_code or partition.leader_id for name, partition in partitions.items()}
    assert answer.controller_id in {broker.node_id for broker in answer.brokers}
    return leaders, {broker.node_id for broker in answer.brokers}


def leader_of_others(world: ClusterWorld, name: str, leader: int) -> int:
    """As those who are not cut off have it."""
    broker = next(broker for broker in world.running if broker.roles.is_broker and broker.node_id != leader)
    return int(broker.image.topics[name].partitions[PartitionIndex(0)].leader)


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

"""Nodes that are stopped for a while and find what was sent to them meanwhile in their sockets."""

import asyncio
import random
from typing import cast

import pytest

from tailrace.broker.broker import Broker
from tailrace.client.connection import Address, open_connection
from tailrace.raft.messages import NO_LEADER
from tailrace.raft.translation import to_wire_request
from tailrace.sim.cluster import CLIENT_PORT, CONTROLLER_LISTENER, Node
from tailrace.sim.loop import SimLoop
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.apis.groups import FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from tailrace.wire.schema import Message
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.world import Peer, batch

GROUP_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
FETCH_VERSION = 17
# The defaults.
USUAL_TIMES = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "controller.quorum.election.backoff.max.ms": "1000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "9000",
    "replica.lag.time.max.ms": "30000",
}
STOPS = 75  # Five minutes.


async def join_alone(peer: Peer) -> tuple[str, int]:
    """Of a group with a session time of six seconds: the member and its generation."""
    while (await peer.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)).coordinators[0].error_code:
        await asyncio.sleep(0.05)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    while (answer := await peer.request(request, 9)).error_code:
        request.member_id = answer.member_id
        await asyncio.sleep(0.05)
    synced = await peer.request(
        SyncGroupRequest(
            group_id="g",
            generation_id=answer.generation_id,
            member_id=answer.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"a")],
        ),
        5,
    )
    assert synced.error_code == 0
    return answer.member_id, answer.generation_id


@simulated
async def test_a_member_is_not_expired_while_its_heartbeat_lies_unread() -> None:
    """It has lost its connection and made a new one, which waits to be accepted: the heartbeat is read after that."""
    async with running_cluster("broker,controller", settings=GROUP_SETTINGS) as world:
        member_id, generation_id = await join_alone(await world.connect(1))
        world.nodes[1].pause()
        await asyncio.sleep(10)
        again = await world.connect(1)
        heartbeat = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)
        again.send(heartbeat, 4)
        await asyncio.sleep(10)
        world.nodes[1].resume()
        assert (await again.receive()).error_code == 0
        for _ in range(4):
            await asyncio.sleep(3)
            assert (await again.request(heartbeat, 4)).error_code == 0


@simulated
async def test_a_member_that_is_gone_is_expired_after_an_absence_too() -> None:
    async with running_cluster("broker,controller", settings=GROUP_SETTINGS) as world:
        peer = await world.connect(1)
        member_id, generation_id = await join_alone(peer)
        world.nodes[1].pause()
        await asyncio.sleep(20)
        world.nodes[1].resume()
        await asyncio.sleep(7)
        heartbeat = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id=member_id)
        assert (await peer.request(heartbeat, 4)).error_code != 0


def broker_of(node: Node) -> Broker:
    assert node.broker is not None
    return node.broker


async def pause_leader_with_a_fetch(world: ClusterWorld) -> Node:
    """The leader of the quorum is stopped when it has read a fetch of another node and not yet looked at it, and is cut
    off from all."""
    leader = next(node for node in world.nodes.values() if broker_of(node).quorum.is_active)
    follower = next(node for node in world.nodes.values() if node is not leader)
    unread = broker_of(follower).quorum.driver.node.own_fetch()
    peer = await world.connect(leader.node_id, CONTROLLER_LISTENER)
    await asyncio.sleep(0.1)
    process = leader.process
    assert process is not None
    world.network.on_arrival = lambda source, _target, _size: leader.pause(at_work=True) if source == "client" else None
    peer.send(to_wire_request(unread, cluster_id=world.cluster_id, max_wait_ms=500), FETCH_VERSION)
    await world.wait(lambda: process.is_paused, "the leader has read it")
    for other in world.nodes.values():
        world.network.cut(leader.name, other.name)
        world.network.cut(other.name, leader.name)
    return leader


@simulated
async def test_a_leader_that_was_stopped_leads_no_more_whatever_it_finds_in_its_sockets() -> None:
    async with running_cluster() as world:
        leader = await pause_leader_with_a_fetch(world)
        await asyncio.sleep(10)
        assert broker_of(leader).quorum.is_active, "nobody has told it"
        others = [node for node in world.nodes.values() if node is not leader]
        assert any(broker_of(node).quorum.is_active for node in others)
        leader.resume()
        await asyncio.sleep(0.001)
        assert not broker_of(leader).quorum.is_active
        world.network.heal()


@simulated
async def test_a_leader_that_was_stopped_grants_no_lease_before_it_has_read_anything() -> None:
    async with running_cluster() as world:
        leader = await pause_leader_with_a_fetch(world)
        broker = broker_of(leader)
        lease_ends_ms = broker.replicas.lease.ends_ms
        await asyncio.sleep(10)
        leader.resume()
        for _ in range(100):
            await asyncio.sleep(0.001)
            assert broker.replicas.lease.ends_ms == lease_ends_ms, "another controller may have fenced it"
        world.network.heal()


@simulated
async def test_a_follower_that_was_stopped_looks_for_its_leader_before_it_gives_it_up() -> None:
    async with running_cluster() as world:
        follower = next(node for node in world.nodes.values() if not broker_of(node).quorum.is_active)
        quorum = broker_of(follower).quorum
        leadership = quorum.leadership
        follower.pause()
        # What the leader answered is lost on the way, and not sent again before the follower goes on.
        await asyncio.sleep(10)
        for stream in [each for each in world.network.streams if each.process is follower.process]:
            world.network.reset(stream)
        follower.resume()
        for _ in range(100):
            await asyncio.sleep(0.005)
            assert quorum.leadership.leader_id != NO_LEADER
        assert quorum.leadership == leadership


@simulated
async def test_slow_followers_cost_no_epoch() -> None:
    """They are away for longer than a leader may act without them, and elect nobody else: it goes on when they do."""
    async with running_cluster() as world:
        leader = next(node for node in world.nodes.values() if broker_of(node).quorum.is_active)
        followers = [node for node in world.nodes.values() if node is not leader]
        leadership = broker_of(leader).quorum.leadership
        for node in followers:
            node.pause()
        await asyncio.sleep(0.9)
        assert broker_of(leader).quorum.is_active
        assert not broker_of(leader).quorum.driver.may_act
        for node in followers:
            node.resume()
        await asyncio.sleep(3)
        assert broker_of(leader).quorum.driver.may_act
        assert {broker_of(node).quorum.leadership.epoch for node in world.nodes.values()} == {leadership.epoch}


@simulated
async def test_an_answer_that_lies_in_the_socket_is_read_before_its_request_is_given_up() -> None:
    async with running_cluster("broker,controller") as world:
        process = cast(SimLoop, asyncio.get_running_loop()).process("caller")
        for source, target in (("caller", "node-1"), ("node-1", "caller")):
            world.network.slow(source, target, latency_ms=600)

        async def call() -> Message:
            connection = await open_connection(world.network.port("caller", process), Address("node-1", CLIENT_PORT))
            called.set()
            return await connection.call(MetadataRequest(), MetadataResponse, timeout_ms=1000)

        called = asyncio.Event()
        calling = process.spawn(call(), name="call")
        await called.wait()
        await asyncio.sleep(0.1)
        process.pause()
        await asyncio.sleep(5)
        process.resume()
        assert isinstance(await calling, MetadataResponse)


@simulated
async def test_followers_stay_in_sync_when_the_whole_machine_was_stopped() -> None:
    """Longer than they may lag, and on a busy partition, where they do after each record."""
    async with running_cluster() as world:
        peer = await world.connect(1)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=5, replication_factor=3)
        assert (await peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)).topics[0].error_code == 0
        await asyncio.sleep(1)
        before = world.active.image.topics["t"].partitions
        leaders = {state.leader for state in before.values()}
        for node in world.nodes.values():
            broker = broker_of(node)
            for index, state in before.items():
                if state.leader == node.node_id:
                    broker.replicas.find("t", index).append(memoryview(bytearray(batch(b"x"))), required_acks=1)
            node.pause()
        await asyncio.sleep(10)
        for node in world.nodes.values():
            node.resume()
        await asyncio.sleep(5)
        assert len(leaders) > 1
        assert world.active.image.topics["t"].partitions == before


@pytest.mark.long
@pytest.mark.parametrize("turn_seconds", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("seed", range(2))
def test_nodes_that_are_stopped_again_and_again_elect_once_a_minute_at_most(seed: int, turn_seconds: float) -> None:
    """One of three at random for 3 s of every 4, where a leader is waited for 2 s at first; and with so little CPU that
    a turn of the loop takes that long."""
    chance = random.Random(seed)

    @simulated
    async def play() -> None:
        async with running_cluster(settings=USUAL_TIMES) as world:
            await asyncio.sleep(5)
            before = world.active.quorum.driver.node.epoch
            for node in world.nodes.values():
                node.slow_down(turn_seconds)
            for _ in range(STOPS):
                process = chance.choice([*world.nodes.values()]).process
                assert process is not None
                process.pause()
                await asyncio.sleep(3)
                process.resume()
                await asyncio.sleep(1)
            epochs = max(broker.quorum.driver.node.epoch for broker in world.running) - before
            for node in world.nodes.values():
                node.resume()
            await asyncio.sleep(20)
            assert epochs <= STOPS * 4 / 60

    play()

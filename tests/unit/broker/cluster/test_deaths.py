"""How soon a broker is fenced, by what is known of it: nothing, a port that refuses, a death that was seen. With the
times that a cluster has if nobody sets them."""

import asyncio

import pytest

from tailrace.broker.cluster.deaths import Incarnation, find_dead, find_way, report_deaths
from tailrace.client.connection import Address
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode
from tailrace.sim.cluster import CONTROLLER_PORT
from tests.unit.broker.auth.test_cluster import SECURED
from tests.unit.broker.cluster.test_wiring import create, leader_of, wait_topic
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated

ROLES = ("broker", "broker", "broker", "controller", "controller", "controller")
DEFAULTS = BrokerConfig(node_id=1)
SETTINGS = {
    "broker.heartbeat.interval.ms": str(DEFAULTS.broker_heartbeat_interval_ms),
    "broker.session.timeout.ms": str(DEFAULTS.broker_session_timeout_ms),
    "broker.lease.ms": str(DEFAULTS.broker_lease_ms),
}


def is_fenced(world: ClusterWorld, node_id: int) -> bool:
    return bool(world.active.image.brokers[node_id].fenced)


async def seconds_until_fenced(world: ClusterWorld, node_id: int) -> float:
    start = asyncio.get_running_loop().time()
    await world.wait(lambda: is_fenced(world, node_id), "it is fenced")
    return asyncio.get_running_loop().time() - start


async def tell(world: ClusterWorld, dead: Incarnation) -> ErrorCode:
    network = world.network.port("supervisor", world.loop.world)
    return await report_deaths((network, None), controllers(4, 5, 6), [dead])


def controllers(*nodes: int) -> list[Address]:
    return [Address(f"node-{each}", CONTROLLER_PORT) for each in nodes]


@simulated
async def test_a_process_that_is_killed_refuses_connections_and_is_fenced_after_its_lease():
    async with running_cluster(*ROLES, settings=SETTINGS) as world:
        await asyncio.sleep(2)
        await world.kill(1)
        assert 1.4 < await seconds_until_fenced(world, 1) < 3.0
        await world.start(1)


@simulated
async def test_a_host_without_power_is_fenced_after_its_session():
    async with running_cluster(*ROLES, settings=SETTINGS) as world:
        await asyncio.sleep(2)
        world.nodes[1].lose_power()
        assert 8.0 < await seconds_until_fenced(world, 1) < 10.0
        await world.start(1)


@simulated
async def test_a_broker_that_is_stopped_for_five_seconds_keeps_what_it_leads():
    async with running_cluster(*ROLES, settings=SETTINGS) as world:
        peer = await world.connect(1)
        await create(peer, "t", partitions=1)
        await wait_topic(world, "t")
        leader = leader_of(world, "t")
        epoch = world.active.image.topics["t"].partitions[0].leader_epoch
        for _ in range(5):
            world.nodes[leader].pause()
            await asyncio.sleep(5)
            world.nodes[leader].resume()
            await asyncio.sleep(1)
        state = world.active.image.topics["t"].partitions[0]
        assert (state.leader, state.leader_epoch, len(state.isr)) == (leader, epoch, 3)


@simulated
async def test_a_death_that_was_seen_is_told_and_fences_at_once():
    async with running_cluster(*ROLES, settings=SETTINGS) as world:
        await asyncio.sleep(2)
        node = world.nodes[1]
        assert find_dead(node.disk, node.config.log_dirs, 1) is None, "it lives"
        epoch = world.active.image.brokers[1].epoch
        await world.kill(1)
        node.disk.crash()
        dead = find_dead(node.disk, node.config.log_dirs, 1)
        assert dead == (1, epoch)
        assert await tell(world, dead) is ErrorCode.NONE
        assert await seconds_until_fenced(world, 1) < 0.1
        await world.start(1)
        assert await tell(world, dead) is ErrorCode.STALE_BROKER_EPOCH
        assert not is_fenced(world, 1)


@simulated
async def test_word_of_a_death_finds_the_next_controller():
    async with running_cluster(*ROLES, settings=SETTINGS) as world:
        await asyncio.sleep(2)
        dead = Incarnation(1, world.active.image.brokers[1].epoch)
        active = world.active.node_id
        await world.kill(1)
        await world.kill(active)
        assert await tell(world, dead) is ErrorCode.NONE
        assert is_fenced(world, 1)
        await world.start(active)
        await world.start(1)


@pytest.mark.parametrize(("lease_ms", "expected"), [(2000, 1500), (700, 700)])
def test_a_lease_is_no_longer_than_a_session(lease_ms: int, expected: int) -> None:
    assert BrokerConfig(node_id=1, broker_session_timeout_ms=1500, broker_lease_ms=lease_ms).lease_ms == expected


@simulated
async def test_who_tells_of_a_death_logs_in_as_the_dead_would():
    async with running_cluster(settings=SECURED | SETTINGS) as world:
        await asyncio.sleep(2)
        chosen = next(each for each in (1, 2, 3) if each != world.active.node_id)
        dead = Incarnation(chosen, world.active.image.brokers[chosen].epoch)
        await world.kill(chosen)
        way = await find_way(world.nodes[chosen].config, world.active.ports)
        assert not is_fenced(world, chosen)
        assert await report_deaths(way, controllers(1, 2, 3), [dead]) is ErrorCode.NONE
        assert is_fenced(world, chosen)
        await world.start(chosen)

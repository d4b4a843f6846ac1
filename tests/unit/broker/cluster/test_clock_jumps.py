"""Wall clocks that are set an hour forwards or back while brokers run: nothing that is counted in time notices it."""

import asyncio
from typing import cast

import pytest

from tailrace.sim.clock import ProcessClock
from tailrace.wire.apis.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    SyncGroupRequest,
)
from tests.unit.broker.cluster.test_wiring import create, leader_of, send, wait_topic
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.transactions.scene import NEW, SETTINGS, Producer
from tests.unit.broker.world import Peer, create_topic

HOUR_MS = 3_600_000.0
# Longer than the session of a broker, of a member, and than it takes to commit a transaction again.
SECONDS = 20.0
SESSION_MS = 6000


def jump(world: ClusterWorld, jumps_ms: dict[int, float]) -> None:
    for node_id, jump_ms in jumps_ms.items():
        broker = world.nodes[node_id].broker
        assert broker is not None
        cast("ProcessClock", broker.ports.clock).wall_skew_ms += jump_ms


@pytest.mark.parametrize("jumps_ms", [{1: HOUR_MS, 2: -HOUR_MS}, {1: HOUR_MS, 2: HOUR_MS, 3: HOUR_MS}])
@simulated
async def test_who_leads_and_what_is_acknowledged(jumps_ms: dict[int, float]) -> None:
    # By default a broker takes no record that is more than an hour ahead of it, as in Kafka.
    settings = {"log.message.timestamp.after.max.ms": str(int(3 * HOUR_MS))}
    async with running_cluster(settings=settings) as world:
        await create(await world.connect(1), "t", partitions=3)
        await wait_topic(world, "t")
        leaders = [leader_of(world, "t", index) for index in range(3)]
        epoch = world.active.quorum.leadership.epoch
        offset = 0
        for jumps in (jumps_ms, {node_id: -2 * jump_ms for node_id, jump_ms in jumps_ms.items()}):
            jump(world, jumps)
            for _ in range(3):
                for index in range(3):
                    assert await send(world, "t", b"x", index) == offset
                offset += 1
                await asyncio.sleep(SECONDS / 3)
        partitions = world.active.image.topics["t"].partitions
        assert [partitions[index].leader for index in range(3)] == leaders
        assert {state.leader_epoch for state in partitions.values()} == {0}
        assert world.active.quorum.leadership.epoch == epoch


async def join(peer: Peer) -> tuple[str, int]:
    """The only member of a classic group."""
    found = await peer.request(FindCoordinatorRequest(key_type=0, coordinator_keys=["readers"]), 6)
    assert found.coordinators[0].error_code == 0
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        group_id="readers",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=[protocol],
    )
    request.member_id = (await peer.request(request, 9)).member_id
    joined = await peer.request(request, 9)
    assert joined.error_code == 0
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
    sync = SyncGroupRequest(
        group_id="readers", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    assert (await peer.request(sync, 3)).error_code == 0
    return joined.member_id, joined.generation_id


@simulated
async def test_members_of_groups_and_open_transactions() -> None:
    settings = SETTINGS | {"min.insync.replicas": "1"}
    async with running_cluster("broker,controller", settings=settings) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t")
        member_id, generation_id = await join(peer)
        heartbeat = HeartbeatRequest(group_id="readers", generation_id=generation_id, member_id=member_id)
        found = await peer.request(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 6)
        assert found.coordinators[0].error_code == 0
        producer = Producer(peer, NEW)
        await producer.init(timeout_ms=60_000)
        for jump_ms in (HOUR_MS, -2 * HOUR_MS, HOUR_MS):
            assert await producer.write("t", producer.records("t", b"x")) == 0
            jump(world, {1: jump_ms})
            for _ in range(5):
                await asyncio.sleep(SECONDS / 5)
                assert (await peer.request(heartbeat, 4)).error_code == 0
            assert await producer.state() == "Ongoing"
            assert await producer.end(is_commit=True) == 0

"""What a broker that comes back tells of its replicas, and what follows from it."""

import asyncio

import pytest

from tailrace.log.run_marks import RUN_MARK
from tests.unit.broker.cluster.test_wiring import create, send, wait_topic
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated


async def kill_all(world: ClusterWorld) -> None:
    for node_id in world.nodes:
        await world.kill(node_id)
    await asyncio.sleep(0)


@simulated
async def test_a_log_that_is_gone_is_told_refilled_and_then_as_good_as_any():
    async with running_cluster() as world:
        await create(await world.connect(1), "t", partitions=1)
        await wait_topic(world, "t")
        for number in range(3):
            await send(world, "t", b"%d" % number)
        await kill_all(world)
        world.nodes[1].disk.remove_folder("data/t-0")
        await world.start_all()
        await wait_topic(world, "t")
        damaged = world.nodes[1].broker
        assert damaged is not None
        assert damaged.replicas.find("t", 0).log.log_end_offset == 3
        assert damaged.replicas.damaged.found == {}, "a later report must not call it damaged any more"
        assert RUN_MARK in world.nodes[1].disk.list("data"), "and its folder proves again what it has"
        assert await send(world, "t", b"3") == 3


@pytest.mark.parametrize("min_insync_replicas", ["1", "2"])
@pytest.mark.parametrize("whole", [1, 2, 3])
@simulated
async def test_the_longest_log_leads_when_all_were_away(whole: int, min_insync_replicas: str):
    async with running_cluster(settings={"min.insync.replicas": min_insync_replicas}) as world:
        await create(await world.connect(1), "t", partitions=1)
        await wait_topic(world, "t")
        for number in range(3):
            await send(world, "t", b"%d" % number)
        await kill_all(world)
        for node_id in {1, 2, 3} - {whole}:
            # Cut at the edge of a batch, above all that its checkpoints tell: it looks whole.
            file = world.nodes[node_id].disk.open("data/t-0/00000000000000000000.log")
            file.truncate(file.size * 2 // 3)
        await world.start_all()
        await wait_topic(world, "t")
        assert world.active.image.topics["t"].partitions[0].leader == whole
        assert await send(world, "t", b"3") == 3

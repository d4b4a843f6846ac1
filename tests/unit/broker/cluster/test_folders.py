"""Data folders in a cluster: a failed one is elected around, an emptied one is refilled, a mere kill proves itself."""

import asyncio

from tailrace.model.ids import PartitionIndex, TopicPartition
from tests.unit.broker.cluster.test_wiring import create, leader_of, send, wait_topic
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated

TWO_FOLDERS = {"log.dirs": "data,more"}


def state(world: ClusterWorld, partition: int = 0):
    return world.running[0].image.topics["t"].partitions[partition]


def folder_of(broker, partition: int = 0):
    key = TopicPartition("t", PartitionIndex(partition))
    return next(each for each in broker.directories if key in each.logs)


async def wait_assigned(world: ClusterWorld, partitions: int = 1) -> None:
    """The metadata knows in which folder each replica lies."""

    def is_known() -> bool:
        return all(
            state(world, index).directory(broker.node_id) == folder_of(broker, index).directory_id
            for broker in world.running
            for index in range(partitions)
        )

    await world.wait(is_known, "the controller knows all folders")


@simulated
async def test_a_failed_folder_of_a_leader_is_elected_around_and_the_others_of_its_broker_go_on():
    async with running_cluster(settings=TWO_FOLDERS) as world:
        await create(await world.connect(1), "t", partitions=6)
        await wait_topic(world, "t")
        await wait_assigned(world, 6)
        for index in range(6):
            await send(world, "t", b"before", index)
        victim = world.nodes[leader_of(world, "t")].broker
        failed = folder_of(victim)
        gone = [index for index in range(6) if folder_of(victim, index) is failed]
        kept = [index for index in range(6) if index not in gone]
        assert gone
        assert kept
        victim.ports.disk.fail("append", f"{failed.path}/t-*")
        for index in range(6):
            assert await send(world, "t", b"after", index) == 1
        await world.wait(
            lambda: all(victim.node_id not in state(world, index).isr for index in gone), "it left the in-sync sets"
        )
        assert all(victim.node_id in state(world, index).isr for index in kept)
        assert victim.directories.offline_directory_ids() == [failed.directory_id]
        victim.ports.disk.heal()
        await world.stop(victim.node_id)
        await world.start(victim.node_id)
        await world.wait(
            lambda: all(len(state(world, index).isr) == 3 for index in range(6)), "it is back in all in-sync sets"
        )


@simulated
async def test_an_emptied_folder_is_refilled():
    async with running_cluster(settings=TWO_FOLDERS) as world:
        await create(await world.connect(1), "t", partitions=4)
        await wait_topic(world, "t")
        await wait_assigned(world, 4)
        for index in range(4):
            await send(world, "t", b"x", index)
        victim = next(node_id for node_id in world.nodes if node_id != world.active.node_id)
        await world.kill(victim)
        world.nodes[victim].disk.remove_folder("more")
        broker = await world.start(victim)
        await wait_topic(world, "t")
        await wait_assigned(world, 4)
        assert [broker.replicas.find("t", index).log.log_end_offset for index in range(4)] == [1, 1, 1, 1]


@simulated
async def test_after_a_kill_of_all_every_replica_is_proved_whole():
    async with running_cluster(settings=TWO_FOLDERS) as world:
        await create(await world.connect(1), "t", partitions=1)
        await wait_topic(world, "t")
        for number in range(3):
            await send(world, "t", b"%d" % number)
        epochs = {broker.node_id: broker.replicas.broker_epoch for broker in world.running}
        for node_id in world.nodes:
            await world.kill(node_id)
        await asyncio.sleep(0)
        await world.start_all()
        proved = {broker.node_id: broker.directories.previous_broker_epoch for broker in world.running}
        assert proved == epochs
        await wait_topic(world, "t")
        assert await send(world, "t", b"3") == 3

"""__remote_log_metadata is cut, and nobody misses what is gone from it."""

from tailrace.model.ids import REMOTE_LOG_METADATA_TOPIC
from tests.unit.broker.tier.test_keeping import alter, any_leader, create
from tests.unit.broker.tier.tiered_world import TieredWorld, read_all, running_tiered
from tests.unit.simulated import simulated


def metadata_start(world: TieredWorld, node_id: int) -> int:
    """The largest, of the partitions that lie there."""
    broker = world.nodes[node_id].broker
    assert broker is not None
    found = [
        partition.log.log_start_offset
        for (topic, _), partition in broker.replicas.partitions.items()
        if topic == REMOTE_LOG_METADATA_TOPIC
    ]
    return max(found, default=0)


@simulated
async def test_the_records_are_cut_and_a_broker_that_has_none_of_them_knows_everything():
    async with running_tiered("controller", "broker", "broker", "broker") as world:
        peer = await world.connect(2)
        assert (await create(peer)).error_code == 0
        await world.wait(lambda: any_leader(world), "somebody leads")
        leader = world.leader()
        peer = await world.connect(leader)
        # One that knows the first records alone, and is away while the rest comes and is cut.
        away = next(each for each in (2, 3, 4) if each != leader)
        await world.fill(peer, 10)
        await world.wait(lambda: bool(world.part(away).state.visible), "it knows of a copy")
        await world.kill(away)
        await world.wait(lambda: any_leader(world), "somebody leads")
        leader = world.leader()
        peer = await world.connect(leader)
        for _ in range(5):
            await world.fill(peer, 40)
        assert (await alter(peer, retention_bytes="20000")).error_code == 0
        await world.wait(lambda: metadata_start(world, leader) > 0, "its records are cut")
        await world.start(away)
        # And one that knows nothing.
        other = next(each for each in (2, 3, 4) if each not in (away, leader))
        await world.kill(other)
        world.wipe(other)
        await world.start(other)
        known = world.part(leader).state.visible
        assert known
        for each in (away, other):
            await world.wait(
                lambda each=each: world.part(each).is_ready and world.part(each).state.visible == known,
                "it knows what the others know",
            )
        await world.wait(lambda: len(world.partition(leader).isr) == 3, "all are in sync")
        for each in (leader, away):
            await world.stop(each)
        await world.wait(lambda: any_leader(world), "it leads")
        start = world.part(other).log_start_offset
        assert 100 < start < 210
        assert len(await read_all(await world.connect(other), start, 210)) == 210 - start

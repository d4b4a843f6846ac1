"""Snapshots of what was replayed, beside what is replayed."""

import asyncio

from tailrace.broker.tier.on_disk import Snapshots
from tailrace.broker.tier.tier import Tier
from tailrace.sim.background import HeldBackground
from tests.unit.broker.tier.tiered_world import running_tiered, tiered_topic
from tests.unit.simulated import simulated


@simulated
async def test_nothing_is_replayed_while_another_thread_writes_a_snapshot():
    """It would have some of the segments, and say that all before its offset are in it: those it lacks would be lost
    to whoever starts with it."""
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        part = world.part(1)
        metadata = part.tier.metadata
        followed = metadata.part_of(part.owner)
        assert isinstance(part.tier, Tier)
        assert followed is not None
        node, held = part.tier.node, HeldBackground()
        metadata._snapshots = Snapshots(node.ports.disk, held, "held")
        storing = asyncio.create_task(metadata.store_snapshots(records_min=1))
        await world.wait(lambda: bool(held.held), "it is being written")
        offset = followed.machine.next_offset
        await world.fill(peer, 20)
        await asyncio.sleep(2.0)
        assert followed.machine.next_offset == offset
        held.release_all()
        await storing
        topic = metadata.topic
        assert topic is not None
        stored = await metadata._snapshots.read(topic.id, followed.index)
        assert stored is not None
        assert stored.next_offset == offset
        await world.wait(lambda: followed.machine.next_offset > offset, "what was copied meanwhile is replayed")
        assert stored.partitions[part.owner].visible.items() <= part.state.visible.items()

"""A log with remote storage that is moved to another folder of its broker."""

import pytest

from tests.unit.broker.test_log_dirs import move
from tests.unit.broker.tier.tiered_world import read_all, running_tiered, tiered_topic
from tests.unit.simulated import simulated


@simulated
@pytest.mark.parametrize("dies", [False, True])
async def test_what_lies_in_the_store_alone_can_be_read_after_a_move(dies: bool):
    async with running_tiered(log_dirs="data,more") as world:
        peer = await tiered_topic(world)
        first = world.partition(1).log.folder.partition("/")[0]
        other = "more" if first == "data" else "data"
        if dies:
            world.nodes[1].background.extra_ms = 300  # It dies before what follows on the move is on the disk.
        assert await move(peer, other, 0) == [0]
        await world.wait(lambda: world.partition(1).log.folder.startswith(f"{other}/"), "it has moved")
        await world.kill(1)
        world.nodes[1].background.extra_ms = 0
        await world.start(1)
        peer = await world.connect(1)
        assert world.partition(1).log.folder.startswith(f"{other}/")
        assert len(await read_all(peer, 0, 40)) == 40

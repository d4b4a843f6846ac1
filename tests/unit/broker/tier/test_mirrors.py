"""Mirrors of which most lies in the store alone."""

import asyncio

from tailrace.model.errors import ErrorCode
from tailrace.replica.leading import mirrors
from tests.unit.broker.tier.tiered_world import (
    EARLIEST,
    LATEST,
    TieredWorld,
    list_offset,
    read_all,
    running_tiered,
    tiered_topic,
)
from tests.unit.broker.world import fetch, fetched
from tests.unit.replica.leading.test_mirrors import MIRRORED, foreign
from tests.unit.simulated import simulated


def make_mirror(world: TieredWorld) -> None:
    """As the metadata would."""
    world.partition(1).mirror = MIRRORED


@simulated
async def test_the_log_start_of_the_source_is_that_of_the_whole():
    """And no segment leaves the disk for it that is not copied."""
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        make_mirror(world)
        partition = world.partition(1)
        local_start = partition.log.log_start_offset
        assert local_start > 10
        mirrors.follow_start(partition, 10)
        assert (partition.log_start_offset, partition.log.log_start_offset) == (10, local_start)
        assert (await list_offset(peer, EARLIEST)).offset == 10
        assert fetched(await peer.request(fetch("t", 9), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        mirrors.follow_start(partition, local_start + 1)
        assert partition.log_start_offset == partition.log.log_start_offset == local_start + 1
        assert len(await read_all(peer, local_start + 1, 40)) == 40 - local_start - 1


@simulated
async def test_a_mirror_that_begins_anew_leaves_no_hole():
    """The source has deleted what it had not sent yet."""
    async with running_tiered(remote_log_deletion_delay_ms="2000") as world:
        await tiered_topic(world)
        make_mirror(world)
        partition = world.partition(1)
        mirrors.begin_at(partition, 100, leader_epoch=partition.leader_epoch)
        peer = await world.connect(1)
        assert fetched(await peer.request(fetch("t", 5), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        mirrors.append_mirrored(partition, foreign(100, 0), leader_epoch=partition.leader_epoch)
        assert (await list_offset(peer, EARLIEST)).offset == 100
        await world.wait(lambda: not world.segments, "what lies before goes from the store")
        await asyncio.sleep(2)  # It is stored where it begins.
        await world.kill(1)
        await world.start(1)
        peer = await world.connect(1)
        assert [(await list_offset(peer, each)).offset for each in (EARLIEST, LATEST)] == [100, 101]
        assert await read_all(peer, 100, 101) == [b"v"]


@simulated
async def test_what_is_told_of_a_mirror_reaches_back_to_its_first_record():
    """Committed offsets of the source's groups are set to no later place than this."""
    async with running_tiered() as world:
        await tiered_topic(world)
        partition = world.partition(1)
        assert partition.log.log_start_offset > 0
        broker = world.nodes[1].broker
        assert broker is not None
        described = broker.services.mirrors._describe_partition(partition, None)
        assert (described.log_start_offset, described.log_end_offset) == (0, 40)

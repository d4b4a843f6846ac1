"""Two things at once: what happens to copies while something else happens to their topic, leader or store."""

import asyncio

from tailrace.model.errors import ErrorCode
from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.names import MARKER_NAME
from tailrace.tier.metadata.records import PartitionState
from tests.unit.broker.tier.test_keeping import alter, any_leader, create, delete_records
from tests.unit.broker.tier.tiered_world import (
    EARLIEST,
    SMALL,
    list_offset,
    read_all,
    running_tiered,
    tiered_topic,
)
from tests.unit.broker.world import create_topic, delete_topic, fetch, fetched
from tests.unit.simulated import simulated

AWAY = StoreFaults(away_until_ms=1e15)


@simulated
async def test_a_topic_that_gets_remote_storage_again_while_its_copies_are_deleted():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        local = world.partition(1).log.log_start_offset
        part = world.part(1)
        metadata = world.nodes[1].broker.tier.metadata
        done = await alter(peer, remote_storage_enable="false", remote_log_delete_on_disable="true")
        assert done.error_code == 0
        state = metadata.part_of(part.owner).machine.partitions[part.owner]
        world.bucket.faults = AWAY
        await world.wait(lambda: state.deletion is PartitionState.DELETE_MARKED, "the deletion has begun")
        assert (await alter(peer, remote_storage_enable="true")).error_code == 0
        await asyncio.sleep(2)
        world.bucket.faults = StoreFaults()
        await world.wait(lambda: world.part(1).state.deletion is None, "the deletion ends all the same")
        await world.fill(peer, 20)
        await world.wait_tiered(1)
        await world.wait(lambda: world.partition(1).log.log_start_offset > local, "it is copied again")
        assert len(await read_all(peer, local, 60)) == 60 - local


@simulated
async def test_retention_goes_on_where_nothing_can_be_copied():
    """A closed segment that is damaged, until it is repaired, keeps nobody from deleting what has had its time."""
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        log = world.partition(1).log
        await world.wait(lambda: len(world.segments) >= 6, "all closed segments are copied")
        log.active.damaged_ranges = ((0, 100),)
        await world.fill(peer, 20)
        before = world.segments
        assert (await alter(peer, retention_bytes="9000")).error_code == 0
        await world.wait(lambda: not set(before[:3]) & set(world.segments), "the oldest copies are deleted")


@simulated
async def test_a_topic_that_is_made_again_while_the_first_one_is_uploaded():
    async with running_tiered() as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", **SMALL)
        world.bucket.faults = StoreFaults(delay_ms=(300, 1200), late_share=0.5, late_effect_ms=3000)
        await world.fill(peer, 40)
        await world.wait(lambda: bool(world.nodes[1].broker.tier.copier.under_way), "an upload is under way")
        first = world.part(1).owner
        await delete_topic(peer, "t")
        await create_topic(peer, "t", **SMALL)
        second = world.part(1).owner
        assert first != second
        await world.fill(peer, 40)
        world.bucket.faults = StoreFaults()
        await world.wait_tiered(1)
        assert [value[:6] for value in await read_all(peer, 0, 40)] == [b"%06d" % number for number in range(40)]
        machine = world.nodes[1].broker.tier.metadata.part_of(first).machine
        await world.wait(lambda: first not in machine.partitions, "nothing is known of the first one any more")
        named = world.part(1).state
        await world.wait(lambda: len(world.segments) == len(named.visible), "and nothing is left of it")


@simulated
async def test_a_leader_that_is_killed_between_the_upload_and_its_record_while_the_store_fails():
    async with running_tiered("controller", "broker", "broker", "broker") as world:
        peer = await world.connect(2)
        assert (await create(peer)).error_code == 0
        await world.wait(lambda: any_leader(world), "somebody leads")
        leader = world.leader()
        # Each put has its effect, and says that it failed: objects come without records.
        world.bucket.faults = StoreFaults(lie_share=1.0)
        await world.fill(await world.connect(leader), 30)
        await world.wait(lambda: len(world.segments) >= 1, "an object is there")
        world.bucket.faults = StoreFaults(error_share=1.0)
        await world.kill(leader)
        await world.wait(lambda: any_leader(world), "another one leads")
        other = world.leader()
        peer = await world.connect(other)
        await asyncio.sleep(3)
        assert not world.part(other).state.visible
        world.bucket.faults = StoreFaults()
        await world.wait_tiered(other)
        assert [value[:6] for value in await read_all(peer, 0, 30)] == [b"%06d" % number for number in range(30)]
        await world.start(leader)

        def named() -> set[str]:
            part = world.part(world.leader())
            return {f"prefix/{part.tier.name_of(part.owner, each)}" for each in part.state.visible.values()}

        await world.wait(lambda: set(world.segments) == named(), "orphans are gone, and every copy has its object")


@simulated
async def test_retention_that_is_faster_than_a_reader():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        world.bucket.faults = StoreFaults(delay_ms=(800, 1200))
        reader = await world.connect(1)
        reading = asyncio.ensure_future(reader.request(fetch("t", 0, max_wait_ms=500), 11))
        await asyncio.sleep(0.01)
        assert world.nodes[1].broker.tier.pieces._footers_under_way, "it is being read"
        assert (await alter(peer, retention_bytes="9000")).error_code == 0
        codes = [fetched(await reading).error_code]
        while not codes[-1] and len(codes) < 50:
            codes.append(fetched(await reader.request(fetch("t", 0, max_wait_ms=500), 11)).error_code)
        assert codes[-1] == ErrorCode.OFFSET_OUT_OF_RANGE, "it is gone"
        assert set(codes[:-1]) <= {0}, "and nothing else is told"
        world.bucket.faults = StoreFaults()
        start = (await list_offset(peer, EARLIEST)).offset
        assert start > 0
        assert len(await read_all(peer, start, 40)) == 40 - start


@simulated
async def test_records_that_are_deleted_while_they_are_copied_and_read():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        world.bucket.faults = StoreFaults(delay_ms=(100, 300))
        reading = asyncio.ensure_future((await world.connect(1)).request(fetch("t", 3, max_wait_ms=500), 11))
        await asyncio.sleep(0.05)
        answer = await delete_records(peer, 20)
        assert (answer.error_code, answer.low_watermark) == (0, 20)
        assert fetched(await reading).error_code in (0, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert fetched(await peer.request(fetch("t", 19), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        world.bucket.faults = StoreFaults()
        assert len(await read_all(peer, 20, 40)) == 20
        await world.kill(1)
        await world.start(1)
        peer = await world.connect(1)
        assert (await list_offset(peer, EARLIEST)).offset == 20
        state = world.part(1).state
        await world.wait(
            lambda: all(each.end_offset > 20 for each in state.visible.values()) and not state.deleting,
            "copies that lie before the start are deleted",
        )
        assert len(await read_all(peer, 20, 40)) == 20
        assert set(world.bucket.objects) > {f"prefix/{MARKER_NAME}"}

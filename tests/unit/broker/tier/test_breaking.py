"""Two things at once: what happens to copies while something else happens to their topic, leader or store."""

import asyncio
import errno

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.names import MARKER_NAME, segment_name
from tailrace.tier.metadata.manifest import Manifest, read_manifest
from tailrace.tier.metadata.records import PartitionState
from tailrace.tier.recovery.survey import survey, take_over
from tests.unit.broker.tier.recovered_world import RECOVERED, begin, lose_all, open_bucket, recover
from tests.unit.broker.tier.test_keeping import alter, any_leader, create, delete_records
from tests.unit.broker.tier.tiered_world import (
    EARLIEST,
    LATEST,
    SMALL,
    TieredWorld,
    list_offset,
    read_all,
    running_tiered,
    tiered_topic,
)
from tests.unit.broker.world import create_topic, delete_topic, fetch, fetched
from tests.unit.simulated import simulated

AWAY = StoreFaults(away_until_ms=1e15)
RECOVERABLE = {name.replace(".", "_"): value for name, value in RECOVERED.items()}


def newest_manifest(world: TieredWorld) -> Manifest | None:
    found = [
        read_manifest(name.removeprefix("prefix/"), stored.data)
        for name, stored in world.bucket.objects.items()
        if name.endswith(".manifest")
    ]
    return max(found, key=lambda each: each.version, default=None)


def named_in(manifest: Manifest) -> set[str]:
    names = (
        segment_name(manifest.cluster_id, manifest.owner, each.base_offset, each.segment_id)
        for each in manifest.segments
    )
    return {f"prefix/{name}" for name in names}


def named_objects(world: TieredWorld, node_id: int) -> set[str]:
    part = world.part(node_id)
    return {f"prefix/{part.tier.name_of(part.owner, each)}" for each in part.state.visible.values()}


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

        def is_clean() -> bool:
            return set(world.segments) == named_objects(world, world.leader())

        await world.wait(is_clean, "orphans are gone, and every copy has its object")


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


@simulated
async def test_a_leader_that_is_killed_between_a_copy_and_its_manifest_while_the_store_fails():
    roles = ("controller", "broker", "broker", "broker")
    async with running_tiered(*roles, remote_log_manifest_interval_ms="20000") as world:
        peer = await world.connect(2)
        assert (await create(peer)).error_code == 0
        await world.wait(lambda: any_leader(world), "somebody leads")
        leader = world.leader()
        peer = await world.connect(leader)
        await world.fill(peer, 16)
        await world.wait(lambda: newest_manifest(world) is not None, "a manifest tells of the first copies")
        await world.fill(peer, 24)
        await world.wait(lambda: len(world.part(leader).state.visible) >= 5, "all closed segments are copied")
        told = newest_manifest(world)
        visible = set(world.part(leader).state.visible)
        assert told is not None
        assert len(told.segments) < len(visible), "the last copies are in no manifest yet"
        world.bucket.faults = StoreFaults(error_share=1.0)
        await world.kill(leader)
        await world.wait(lambda: any_leader(world), "another one leads")
        await asyncio.sleep(3)
        world.bucket.faults = StoreFaults()

        def tells_all() -> bool:
            manifest = newest_manifest(world)
            return manifest is not None and {each.segment_id for each in manifest.segments} >= visible

        await world.wait(tells_all, "the next leader tells of them")
        manifest = newest_manifest(world)
        assert manifest is not None
        assert manifest.version > told.version
        peer = await world.connect(world.leader())
        numbers = [*range(16), *range(24)]
        assert [value[:6] for value in await read_all(peer, 0, 40)] == [b"%06d" % number for number in numbers]


@simulated
async def test_a_cluster_that_is_lost_between_a_copy_and_its_manifest():
    """What no manifest tells of is lost, is never mixed with what is written in its place, and goes."""
    async with running_tiered(remote_log_manifest_interval_ms="20000", **RECOVERABLE) as world:
        peer = await tiered_topic(world)
        await world.wait(lambda: newest_manifest(world) is not None, "a manifest tells of the first copies")
        await world.fill(peer, 20)
        await asyncio.sleep(3)  # All is copied, and an export tells of the topic.
        told = newest_manifest(world)
        assert told is not None
        assert len(told.segments) < len(world.segments)
        untold = set(world.segments) - named_in(told)
        await lose_all(world)
        (partition,) = (await recover(world)).partitions
        end = partition.end_offset
        assert end == told.segments[-1].end_offset
        await world.start(1)
        peer = await world.connect(1)
        assert await world.fill(peer, 30) == end + 30
        await world.wait_tiered(1)
        await world.wait(lambda: not untold & set(world.segments), "objects that nothing tells of are deleted")
        await world.wait(lambda: set(world.segments) == named_objects(world, 1), "and nothing else")
        numbers = [*range(end), *range(30)]
        assert [value[:6] for value in await read_all(peer, 0, end + 30)] == [b"%06d" % each for each in numbers]


@simulated
async def test_a_recovery_while_the_old_cluster_still_writes():
    """Against what its option asks: until brokers have looked at the marker again they copy. Nothing of that is read in
    the new cluster, and all of it goes; nothing that the new cluster has is deleted."""
    async with running_tiered(remote_log_deletion_delay_ms="12000", **RECOVERABLE) as world:
        peer = await tiered_topic(world)
        await asyncio.sleep(3)
        assert (await alter(peer, retention_bytes="11000")).error_code == 0
        state = world.part(1).state
        await world.wait(lambda: bool(state.deleting), "the old cluster is about to delete")
        await asyncio.sleep(3)
        before = set(world.segments)
        bucket, segments = await open_bucket(world)
        plan = await survey(bucket, segments)
        claim = await take_over(bucket, "elsewhere")
        end = plan.partitions[0].end_offset
        await world.fill(peer, 40)
        await world.wait(lambda: not world.nodes[1].broker.tier.is_ours, "it has looked at the marker")
        late = set(world.segments) - before
        assert late, "it has copied meanwhile"
        await asyncio.sleep(20)
        assert before <= set(world.segments), "it deletes nothing any more"
        await lose_all(world)
        begin(world, plan, claim)
        await world.start(1)
        peer = await world.connect(1)
        start = (await list_offset(peer, EARLIEST)).offset
        assert (await list_offset(peer, LATEST)).offset == end
        assert [value[:6] for value in await read_all(peer, start, end)] == [
            b"%06d" % each for each in range(start, end)
        ]
        await world.fill(peer, 30)
        await world.wait(lambda: not late & set(world.segments), "what the old cluster has copied is deleted")
        start = (await list_offset(peer, EARLIEST)).offset
        numbers = [*range(start, end), *range(max(0, start - end), 30)]
        assert [value[:6] for value in await read_all(peer, start, end + 30)] == [b"%06d" % each for each in numbers]


@simulated
@pytest.mark.parametrize("dies", [False, True])
async def test_records_that_are_deleted_between_the_begin_of_a_copy_and_its_end(dies: bool):
    async with running_tiered() as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", **SMALL)
        world.bucket.faults = StoreFaults(delay_ms=(2000, 2000))
        await world.fill(peer, 40)
        part = world.part(1)
        await world.wait(lambda: bool(part.state.copying), "a copy has begun")
        (copying,) = part.state.copying.values()
        assert copying.segment.base_offset == 0
        wanted = copying.segment.end_offset + 9
        assert (await delete_records(peer, wanted)).error_code == 0
        assert part.state.copying, "it is still under way"
        if dies:
            await world.kill(1)
            await world.start(1)
            peer = await world.connect(1)
        world.bucket.faults = StoreFaults()
        assert (await list_offset(peer, EARLIEST)).offset == wanted
        await world.wait_tiered(1)
        assert (await list_offset(peer, EARLIEST)).offset == wanted
        assert fetched(await peer.request(fetch("t", wanted - 1), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(await read_all(peer, wanted, 40)) == 40 - wanted
        await world.wait(lambda: set(world.segments) == named_objects(world, 1), "nothing else is left in the store")
        await world.wait(lambda: not world.part(1).state.copying, "and no begun copy is known")
        assert all(each.end_offset > wanted for each in world.part(1).state.visible.values())


@simulated
async def test_a_cache_that_fails_while_a_reader_is_sequential_and_the_store_fails():
    """Nothing is kept on the disk, and every second answer of the store is an error: the reader goes on."""
    async with running_tiered() as world:
        peer = await tiered_topic(world, 80)
        node = world.nodes[1]
        for operation in ("replace", "write", "open", "create"):
            node.disk.fail(operation, "*remote-log-cache*", error=errno.ENOSPC)
        world.bucket.faults = StoreFaults(error_share=0.5, delay_ms=(10, 50))
        assert [value[:6] for value in await read_all(peer, 0, 60)] == [b"%06d" % number for number in range(60)]
        assert world.part(1).tier.cache.is_failing
        node.disk.heal()

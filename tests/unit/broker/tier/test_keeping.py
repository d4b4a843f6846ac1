"""What becomes of copies: retention, deletion, topics that lose remote storage, restarts."""

import asyncio

import pytest

from tailrace.broker.tier import parts
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.marker import Marker, write_marker
from tailrace.tier.format.names import MARKER_NAME
from tailrace.tier.metadata.coverage import cover
from tailrace.wire.apis.data import DeleteRecordsRequest
from tests.unit.broker.tier.tiered_world import (
    ALONE,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST_TIERED,
    PENDING_UPLOAD,
    SMALL,
    TieredWorld,
    alter,
    list_offset,
    read_all,
    running_tiered,
    tiered_topic,
)
from tests.unit.broker.world import create_topic, delete_topic, fetch, fetched
from tests.unit.simulated import simulated


async def delete_records(peer, offset):
    part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[part])
    answer = await peer.request(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)
    return answer.topics[0].partitions[0]


@simulated
async def test_what_has_had_its_time_leaves_the_store():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        before = world.segments
        assert (await alter(peer, retention_bytes="9000")).error_code == 0
        await world.wait(lambda: len(world.segments) < len(before) - 2, "objects are deleted")
        start = world.part(1).log_start_offset
        assert 0 < start < 40
        await asyncio.sleep(20)
        assert world.part(1).log_start_offset == start
        assert len(await read_all(peer, start, 40)) == 40 - start


@simulated
async def test_what_serves_an_offset_is_never_computed_anew_while_a_leader_copies_and_deletes(monkeypatch):
    """Of a hundred thousand segments it would hold the loop for 0.2 s each time."""
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        computed = []
        monkeypatch.setattr(parts, "cover", lambda *args, **terms: computed.append(args) or cover(*args, **terms))
        assert (await alter(peer, retention_bytes="9000")).error_code == 0
        end = await world.fill(peer, 80)
        await world.wait(lambda: world.part(1).log_start_offset > end - 40, "retention goes on")
        assert world.part(1).coverage().pieces
        assert not computed


@simulated
async def test_deleted_records_stay_deleted():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        answer = await delete_records(peer, 13)
        assert (answer.error_code, answer.low_watermark) == (0, 13)
        await world.kill(1)
        await world.start(1)
        peer = await world.connect(1)
        assert (await list_offset(peer, EARLIEST)).offset == 13
        assert fetched(await peer.request(fetch("t", 12), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(await read_all(peer, 13, 40)) == 27


@simulated
async def test_a_restart_finds_what_is_in_the_store():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        local = world.partition(1).log.log_start_offset
        for stop in (world.stop, world.kill):
            await stop(1)
            await world.start(1)
            peer = await world.connect(1)
            assert (await list_offset(peer, EARLIEST)).offset == 0
            assert world.partition(1).log.log_start_offset >= local
            assert len(await read_all(peer, 0, 40)) == 40


@simulated
async def test_a_deleted_topic_leaves_nothing():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        await delete_topic(peer, "t")
        await world.wait(lambda: set(world.bucket.objects) == {f"prefix/{MARKER_NAME}"}, "all of it is deleted")
        await create_topic(peer, "t", **SMALL)
        assert (await list_offset(peer, EARLIEST)).offset == 0
        await world.fill(peer)
        await world.wait_tiered(1)
        assert len(await read_all(peer, 0, 40)) == 40


@simulated
async def test_a_topic_that_loses_remote_storage_keeps_what_is_here():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        refused = await alter(peer, remote_storage_enable="false")
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert "remote.log.delete.on.disable=true" in refused.error_message
        local = world.partition(1).log.log_start_offset
        done = await alter(peer, remote_storage_enable="false", remote_log_delete_on_disable="true")
        assert done.error_code == 0
        assert (await list_offset(peer, EARLIEST)).offset == local
        assert (await list_offset(peer, EARLIEST_LOCAL)).offset == local
        assert (await list_offset(peer, LATEST_TIERED)).offset == -1
        assert (await list_offset(peer, PENDING_UPLOAD)).offset == -1
        assert fetched(await peer.request(fetch("t", 0), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await world.wait(lambda: not world.segments, "the copies are deleted")
        # And again: it begins where the local log does.
        assert (await alter(peer, remote_storage_enable="true")).error_code == 0
        assert (await list_offset(peer, EARLIEST)).offset == local
        await world.wait(lambda: bool(world.segments), "it is copied again")
        assert len(await read_all(peer, local, 40)) == 40 - local


@simulated
async def test_nothing_is_deleted_here_before_it_is_in_the_store():
    async with running_tiered() as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", **SMALL)
        world.bucket.faults = StoreFaults(away_until_ms=1e15)
        await world.fill(peer)
        await asyncio.sleep(20)
        assert world.partition(1).log.log_start_offset == 0
        assert not world.segments
        world.bucket.faults = StoreFaults()
        await world.wait_tiered(1)
        assert len(await read_all(peer, 0, 40)) == 40


@simulated
async def test_with_copies_disabled_nothing_more_is_copied_and_the_whole_expires():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        refused = await alter(peer, remote_log_copy_disable="true")
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        done = await alter(peer, remote_log_copy_disable="true", local_retention_bytes="-2")
        assert done.error_code == 0
        copied = world.segments
        await world.fill(peer, 20)
        await asyncio.sleep(5)
        assert world.segments == copied
        assert (await alter(peer, retention_bytes="4000")).error_code == 0
        await world.wait(lambda: world.partition(1).log.size_bytes < 8000 and not world.segments, "the rest expires")
        start = (await list_offset(peer, EARLIEST)).offset
        assert start == (await list_offset(peer, EARLIEST_LOCAL)).offset
        assert len(await read_all(peer, start, 60)) == 60 - start


@simulated
async def test_a_follower_without_a_disk_begins_after_the_copies():
    async with running_tiered("controller", "broker", "broker", "broker") as world:
        peer = await world.connect(2)
        assert (await create(peer)).error_code == 0
        await world.wait(lambda: any_leader(world), "somebody leads")
        leader = world.leader()
        await world.fill(await world.connect(leader))
        for node_id in (2, 3, 4):
            await world.wait_tiered(node_id)
        other = next(each for each in (2, 3, 4) if each != leader)
        await world.kill(other)
        world.wipe(other)
        await world.start(other)
        await world.wait(lambda: NodeId(other) in world.partition(leader).isr, "it is in sync")
        log = world.partition(other).log
        assert log.log_start_offset > 20, "what is in the store was not fetched"
        assert world.part(other).log_start_offset == 0
        assert log.epochs.entries[0].start_offset == 0
        for node_id in (2, 3, 4):
            if node_id != other:
                await world.stop(node_id)
        await world.wait(lambda: any_leader(world), "it leads")
        peer = await world.connect(other)
        assert len(await read_all(peer, 0, 40)) == 40
        assert (await list_offset(peer, EARLIEST)).offset == 0


def any_leader(world) -> bool:
    try:
        return world.leader() > 0
    except StopIteration:
        return False


async def create(peer):
    from tailrace.wire.apis.admin import CreateTopicsRequest

    config = CreateTopicsRequest.CreatableTopicConfig
    topic = CreateTopicsRequest.CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=3,
        configs=[config(name=name.replace("_", "."), value=value) for name, value in SMALL.items()],
    )
    return (await peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)).topics[0]


@simulated
async def test_a_store_of_another_cluster_is_refused_by_a_first_start():
    world = TieredWorld([ALONE], {})
    world.bucket.store(f"prefix/{MARKER_NAME}", write_marker(Marker("another")))
    with pytest.raises(KafkaError, match="belongs to cluster another"):
        await world.start(1)


@simulated
async def test_a_broker_with_data_starts_in_any_case():
    async with running_tiered() as world:
        await tiered_topic(world)
        await world.kill(1)
        world.bucket.store(f"prefix/{MARKER_NAME}", write_marker(Marker("another")))
        before = world.segments
        await world.start(1)
        peer = await world.connect(1)
        assert len(await read_all(peer, world.partition(1).log.log_start_offset, 40)) > 0
        await world.wait(lambda: "another" in world.nodes[1].broker.tier.problem, "health says so")
        await world.fill(peer, 30)
        await asyncio.sleep(5)
        assert world.segments == before, "nothing is written into the store of another cluster"


@simulated
async def test_an_empty_store_at_a_wrong_address_gets_nothing():
    """What was copied there would be missing at the right one."""
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        await world.wait(lambda: len(world.segments) >= 6, "all closed segments are copied")
        await asyncio.sleep(2)
        copied_end = world.part(1).coverage().end_from(0)
        await world.kill(1)
        objects = dict(world.bucket.objects)
        world.bucket.objects.clear()
        await world.start(1)
        peer = await world.connect(1)
        await world.wait(lambda: "correct remote.log.storage.url" in world.nodes[1].broker.tier.problem, "health says")
        await world.fill(peer, 30)
        await asyncio.sleep(40)
        assert not world.bucket.objects
        local = world.partition(1).log.log_start_offset
        assert local <= copied_end, "nothing leaves the disk that is not at the right address"
        assert len(await read_all(peer, local, 70)) == 70 - local, "what is here is served"
        world.bucket.objects.update(objects)
        await world.wait(lambda: world.nodes[1].broker.tier.is_ours, "the address is right again")
        await world.wait(lambda: world.partition(1).log.log_start_offset > local, "copies go on")
        assert len(await read_all(peer, 0, 70)) == 70


@simulated
async def test_a_recovery_elsewhere_ends_what_this_cluster_writes():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        cluster = world.cluster_id
        world.bucket.store(f"prefix/{MARKER_NAME}", write_marker(Marker(cluster, 1)))
        await world.wait(lambda: "taken over" in world.nodes[1].broker.tier.problem, "it is seen")
        before = world.segments
        await world.fill(peer, 30)
        await asyncio.sleep(5)
        assert world.segments == before


@simulated
async def test_a_disk_that_fills_up_with_what_cannot_be_copied_is_told_of():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        tier = world.part(1).tier
        disk = world.nodes[1].disk
        disk.fill(left_bytes=8_000)
        await asyncio.sleep(5)
        assert not tier.problems, "nothing waits to be copied"
        world.bucket.faults = StoreFaults(away_until_ms=1e15)
        disk.fill(left_bytes=1_000_000)
        await world.fill(peer)
        await asyncio.sleep(5)
        assert not [each for each in tier.problems if "% free" in each], "there is room"
        disk.fill(left_bytes=8_000)
        await world.wait(lambda: any("% free" in each for each in tier.problems), "it is told")
        world.bucket.faults = StoreFaults()
        await world.wait(lambda: tier.problems == [], "all is copied")


@simulated
@pytest.mark.parametrize("kind", ["put", "delete"])
async def test_a_right_that_is_missing_is_told_and_the_rest_goes_on(kind: str):
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        tier, before = world.part(1).tier, set(world.segments)
        world.bucket.faults = StoreFaults(refusal="403: Check the credentials", refused=(kind,))
        assert (await alter(peer, retention_bytes="9000")).error_code == 0
        end = await world.fill(peer, 20)
        await world.wait(lambda: any("403" in each for each in tier.problems), "it is told")
        await world.wait(lambda: world.part(1).log_start_offset > 0, "retention goes on")
        await asyncio.sleep(20)
        if kind == "put":
            assert not set(world.segments) - before
        else:
            assert before <= set(world.segments)
            assert set(world.segments) - before, "what is new is copied"
        assert len(await read_all(peer, world.part(1).log_start_offset, end)) == end - world.part(1).log_start_offset
        world.bucket.faults = StoreFaults()
        await world.wait(lambda: not tier.problems, "all is well again")
        await world.wait(lambda: not before & set(world.segments), "what had its time is deleted")

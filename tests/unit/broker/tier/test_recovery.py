"""A cluster that has lost every disk comes back from its bucket."""

import asyncio
from random import Random

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.sim.loop import DeadError
from tailrace.sim.objects import StoreFaults
from tailrace.tier.format.marker import read_marker
from tailrace.tier.format.names import MARKER_NAME
from tailrace.tier.recovery.plan import RecoveryError
from tailrace.tier.recovery.survey import take_over
from tailrace.wire.apis.transactions import WriteTxnMarkersRequest
from tests.unit.broker.tier.recovered_world import (
    RECOVERED,
    commit,
    committed,
    find_coordinator,
    lose_all,
    open_bucket,
    recover,
)
from tests.unit.broker.tier.tiered_world import (
    ALONE,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    SMALL,
    TieredWorld,
    alter,
    list_offset,
    read_all,
    running_tiered,
    tiered_topic,
)
from tests.unit.broker.world import Peer, batch, create_topic, fetch, fetched, produce, produced
from tests.unit.simulated import simulated

SETTINGS = {name.replace(".", "_"): value for name, value in RECOVERED.items()}


def exports(world: TieredWorld) -> list[str]:
    return sorted(name for name in world.bucket.objects if name.endswith(".export"))


def leads(world: TieredWorld) -> bool:
    """Whether somebody leads the topic."""
    try:
        return world.leader() > 0
    except StopIteration:
        return False


async def settle(world: TieredWorld) -> None:
    """Until manifest and export tell of what is there now."""
    await asyncio.sleep(3)


async def values(peer: Peer, start: int, end: int) -> list[bytes]:
    return [value[:6] for value in await read_all(peer, start, end)]


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, end)]


@simulated
async def test_a_cluster_comes_back_and_goes_on():
    async with running_tiered(**SETTINGS) as world:
        peer = await tiered_topic(world)
        await find_coordinator(peer, "g")
        await commit(peer, "g", 17)
        await commit(peer, "ahead", 40)
        await settle(world)
        await lose_all(world)
        plan = await recover(world)
        (partition,) = plan.partitions
        end = partition.end_offset
        assert 30 < end < 40, "the last segment was open"
        assert partition.seen_end_offset == 40, "and it is known what is missing"
        await world.start(1)
        peer = await world.connect(1)
        await world.wait(lambda: world.part(1).is_ready, "it is known what is in the store")
        places = [(await list_offset(peer, each)).offset for each in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)]
        assert places == [0, end, end - 1, end]
        assert await values(peer, 0, end) == numbers(0, end)
        assert (await list_offset(peer, LATEST)).leader_epoch in (0, partition.leader_epoch)
        assert await committed(peer, "g") == {("t", 0): (17, 0, "so far")}
        assert await committed(peer, "ahead") == {("t", 0): (end, 0, "so far")}
        # It goes on: new records, copies, retention of the local part, and a second loss.
        answer = produced(await peer.request(produce("t", batch(b"first"), acks=-1), 9))
        assert (answer.error_code, answer.base_offset) == (0, end)
        await world.fill(peer, 30)
        await world.wait(lambda: world.partition(1).log.log_start_offset > end, "what is new is copied")
        await settle(world)
        await lose_all(world)
        again = await recover(world)
        second = again.partitions[0].end_offset
        assert second > end + 20
        assert again.partitions[0].leader_epoch > partition.leader_epoch
        await world.start(1)
        peer = await world.connect(1)
        read = await values(peer, 0, second)
        assert read == [*numbers(0, end), b"first", *numbers(0, second - end - 1)]
        assert await committed(peer, "ahead") == {("t", 0): (end, 0, "so far")}


@simulated
async def test_other_brokers_join_and_the_settings_are_the_same():
    async with running_tiered(ALONE, "broker", "broker", default_replication_factor="3", **SETTINGS) as world:
        await create_topic(await world.connect(1), "t", **SMALL, retention_ms="99999999999")
        await world.wait(lambda: leads(world), "somebody leads")
        peer = await world.connect(world.leader())
        await world.fill(peer)
        await world.wait_tiered(world.leader())
        await settle(world)
        await lose_all(world)
        plan = await recover(world, replicas=(1, 2, 3))
        end = plan.partitions[0].end_offset
        assert plan.topics[0].settings["retention.ms"] == "99999999999"
        await world.start(1)
        for node_id in (2, 3):
            world.wipe(node_id)
            await world.start(node_id)
        images = world.nodes[1].broker
        await world.wait(lambda: set(images.image.topics["t"].partitions[0].isr) == {1, 2, 3}, "all are in sync")
        await world.wait(lambda: leads(world), "somebody leads")
        peer = await world.connect(world.leader())
        assert await values(peer, 0, end) == numbers(0, end)
        answer = produced(await peer.request(produce("t", batch(b"more"), acks=-1), 9))
        assert (answer.error_code, answer.base_offset) == (0, end)


@simulated
async def test_a_recovery_that_only_reads_leaves_the_bucket_alone():
    async with running_tiered(**SETTINGS) as world:
        await tiered_topic(world)
        await settle(world)
        await lose_all(world)
        before = {name: stored.data for name, stored in world.bucket.objects.items()}
        plan = await recover(world, takes_over=False)
        end = plan.partitions[0].end_offset
        await world.start(1)
        peer = await world.connect(1)
        assert await values(peer, 0, end) == numbers(0, end)
        await world.fill(peer, 30)
        await asyncio.sleep(60)
        assert {name: stored.data for name, stored in world.bucket.objects.items()} == before
        assert "to read it" in world.nodes[1].broker.tier.problem
        assert await values(peer, 0, end + 30) == numbers(0, end) + numbers(0, 30)


@simulated
async def test_the_old_cluster_copies_and_deletes_nothing_any_more():
    async with running_tiered(ALONE, **SETTINGS) as world:
        peer = await tiered_topic(world)
        await settle(world)
        bucket, _ = await open_bucket(world)
        await take_over(bucket, "elsewhere")
        await world.wait(lambda: not world.nodes[1].broker.tier.is_ours, "it has looked at the marker")
        before = set(world.bucket.objects)
        assert "taken over by a recovery" in world.nodes[1].broker.tier.problem
        await world.fill(peer, 40)
        await asyncio.sleep(60)
        assert set(world.bucket.objects) == before
        # It stays so after a restart, and everything is read.
        await world.stop(1)
        await world.start(1)
        peer = await world.connect(1)
        await asyncio.sleep(40)
        assert set(world.bucket.objects) == before
        assert await values(peer, 0, 80) == numbers(0, 40) * 2


@simulated
async def test_of_two_recoveries_at_once_one_gets_the_bucket():
    async with running_tiered(**SETTINGS) as world:
        await tiered_topic(world)
        await settle(world)
        await lose_all(world)
        buckets = [(await open_bucket(world))[0] for _ in range(2)]
        takers = (take_over(each, f"number-{number}") for number, each in enumerate(buckets))
        outcomes = await asyncio.gather(*takers, return_exceptions=True)
        failed = [each for each in outcomes if isinstance(each, RecoveryError)]
        assert len(failed) == 1, outcomes
        (claim,) = [each for each in outcomes if not isinstance(each, Exception)]
        marker = read_marker(world.bucket.objects[f"prefix/{MARKER_NAME}"].data)
        assert (marker.generation, marker.recovery) == (claim.generation, claim.recovery) == (1, claim.recovery)


@simulated
async def test_what_is_damaged_has_to_be_accepted():
    async with running_tiered(**SETTINGS) as world:
        peer = await tiered_topic(world)
        await settle(world)
        await world.fill(peer, 20)
        await world.wait_tiered(1)
        await settle(world)
        await lose_all(world)
        newest = max(name for name in world.bucket.objects if name.endswith(".manifest"))
        for name in (newest, exports(world)[-1]):
            whole = world.bucket.objects[name].data
            world.bucket.store(name, whole[:-9] + b"x" + whole[-8:])
            with pytest.raises(RecoveryError, match="damaged"):
                await recover(world)
        plan = await recover(world, accepts_loss=True)
        end = plan.partitions[0].end_offset
        assert end > 0
        await world.start(1)
        peer = await world.connect(1)
        assert await values(peer, 0, end) == numbers(0, end)


@simulated
async def test_holes():
    async with running_tiered(**SETTINGS) as world:
        await tiered_topic(world)
        await settle(world)
        await lose_all(world)
        first, middle = world.segments[0], world.segments[2]
        world.bucket.remove(first)  # As retention does it.
        plan = await recover(world, takes_over=False)
        start = plan.partitions[0].log_start_offset
        assert start > 0
        world.nodes[1].wipe()
        stored = world.bucket.objects[middle]
        world.bucket.remove(middle)
        with pytest.raises(RecoveryError, match="t-0: the objects of offsets"):
            await recover(world)
        plan = await recover(world, accepts_loss=True)
        assert plan.partitions[0].log_start_offset > start
        assert stored
        await world.start(1)
        peer = await world.connect(1)
        (partition,) = plan.partitions
        read = await values(peer, partition.log_start_offset, partition.end_offset)
        assert read == numbers(partition.log_start_offset, partition.end_offset)
        gone = fetched(await peer.request(fetch("t", partition.log_start_offset - 1), 11))
        assert gone.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def recover_until(world: TieredWorld, changes: int, *, torn_bytes: int = 7) -> bool:
    """Into an empty folder, killed after so many changes of the disk; whether that came before the end."""
    node = world.nodes[1]
    node.wipe()
    node.disk.die_after(changes, torn_bytes=torn_bytes, on_death=lambda: None)
    try:
        await recover(world, takes_over=False)
    except DeadError:
        return True
    finally:
        node.disk.crash()
    return False


async def read_recovered(world: TieredWorld, end: int) -> None:
    await world.start(1)
    peer = await world.connect(1)
    assert await values(peer, 0, end) == numbers(0, end)
    await peer.close()
    world.peers.clear()
    await world.kill(1)


@simulated
async def test_a_recovery_that_was_killed_is_run_again():
    async with running_tiered(**SETTINGS) as world:
        await tiered_topic(world)
        await settle(world)
        await lose_all(world)
        end = (await recover(world)).partitions[0].end_offset
        steps = 100
        while await recover_until(world, steps):
            steps += 20
        ended = 0
        # Every step of the end, where all is moved to its place, and some before.
        for number in sorted({*range(0, steps, 41), *range(steps - 60, steps)}):
            if not await recover_until(world, number):
                break
            if number % 2:
                world.nodes[1].disk.power_loss(Random(number))
            try:
                await recover(world, takes_over=False)
            except RecoveryError as error:
                if "is a node's data already" not in str(error):
                    raise
                ended += 1  # Everything had been moved.
            if ended or number % 41 == 0:
                await read_recovered(world, end)
        assert 0 < ended < 5
        await recover_until(world, steps - 60)
        with pytest.raises(KafkaError, match="does not know which cluster"):
            await world.start(1)
        await recover(world)
        await world.start(1)


@simulated
async def test_a_transaction_whose_end_is_lost_is_aborted():
    async with running_tiered(**SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", **SMALL)
        await world.fill(peer, 20)
        records = batch(b"in a transaction", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        begun = world.partition(1).append(memoryview(bytearray(records)), required_acks=-1)
        log = world.partition(1).log
        base = log.active.base_offset
        while log.active.base_offset == base:
            await world.fill(peer, 1)
        await commit_transaction(peer, 7)
        await world.wait(lambda: world.part(1).coverage().end_from(0) > begun.base_offset, "its beginning is copied")
        await settle(world)
        await lose_all(world)
        plan = await recover(world)
        (partition,) = plan.partitions
        assert begun.base_offset < partition.end_offset
        await world.start(1)
        peer = await world.connect(1)
        assert (await list_offset(peer, LATEST)).offset == partition.end_offset + 1, "a marker follows"
        answer = fetched(await peer.request(fetch("t", begun.base_offset, max_wait_ms=500, isolation_level=1), 11))
        assert answer.last_stable_offset == partition.end_offset + 1
        for _ in range(20):
            if answer.records:
                break
            answer = fetched(await peer.request(fetch("t", begun.base_offset, max_wait_ms=500, isolation_level=1), 11))
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [
            (7, begun.base_offset)
        ]
        again = batch(b"again", producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
        assert world.partition(1).append(memoryview(bytearray(again)), required_acks=-1).base_offset > begun.base_offset


async def commit_transaction(peer: Peer, producer_id: int) -> None:
    topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=[topic]
    )
    answer = await peer.request(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


@simulated
async def test_a_producer_goes_on_where_it_was():
    async with running_tiered(**SETTINGS) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", **SMALL)
        for number in range(30):
            records = batch(b"%06d" % number + bytes(400), producer_id=3, producer_epoch=0, base_sequence=number)
            assert produced(await peer.request(produce("t", records, acks=-1), 9)).error_code == 0
        await world.wait_tiered(1)
        await settle(world)
        await lose_all(world)
        (partition,) = (await recover(world)).partitions
        end = partition.end_offset
        await world.start(1)
        peer = await world.connect(1)

        async def send(sequence: int):
            records = batch(b"%06d" % sequence + bytes(400), producer_id=3, producer_epoch=0, base_sequence=sequence)
            return produced(await peer.request(produce("t", records, acks=-1), 9))

        known = await send(end - 1)
        assert (known.error_code, known.base_offset) == (0, end - 1), "it is there already"
        assert (await send(end + 1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        for sequence in range(end, end + 5):
            answer = await send(sequence)
            assert (answer.error_code, answer.base_offset) == (0, sequence)


@simulated
async def test_what_is_late_in_a_listing_is_not_lost():
    async with running_tiered(**SETTINGS) as world:
        peer = await tiered_topic(world)
        await asyncio.sleep(8)
        world.bucket.faults = StoreFaults(listing_lag_ms=8_000)
        await world.fill(peer, 20)
        await settle(world)
        await lose_all(world)
        plan = await recover(world)
        end = plan.partitions[0].end_offset
        assert end >= 30, "an older manifest costs the newest segments alone"
        world.bucket.faults = StoreFaults()
        await world.start(1)
        peer = await world.connect(1)
        read = await values(peer, 0, end)
        assert read == (numbers(0, 40) + numbers(0, 20))[:end]
        await world.fill(peer, 20)
        await asyncio.sleep(30)
        after = await values(peer, 0, end + 20)
        assert after == read + numbers(0, 20), "what the old cluster had after that stays gone"


@simulated
async def test_what_was_recovered_has_its_time_too():
    """Copies that a lost cluster made go by size and by age, and with them the log start, which a restart knows."""
    async with running_tiered(**SETTINGS) as world:
        await tiered_topic(world)
        await settle(world)
        await lose_all(world)
        end = (await recover(world)).partitions[0].end_offset
        old = world.segments
        await world.start(1)
        peer = await world.connect(1)
        assert (await alter(peer, retention_bytes="9000")).error_code == 0
        await world.wait(lambda: len(world.segments) == len(old) - 2, "objects of the lost cluster are deleted")
        start = (await list_offset(peer, EARLIEST)).offset
        assert 0 < start < end
        assert await values(peer, start, end) == numbers(start, end)
        assert fetched(await peer.request(fetch("t", start - 1), 11)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        await world.kill(1)
        await world.start(1)
        peer = await world.connect(1)
        assert (await list_offset(peer, EARLIEST)).offset == start
        # Its records are of long ago: in the end all that was recovered has had its time.
        assert (await alter(peer, retention_bytes="-1", retention_ms="1000", local_retention_ms="1000")).error_code == 0
        await world.wait(lambda: not set(world.segments) & set(old), "nothing of the lost cluster is left")
        assert (await list_offset(peer, EARLIEST)).offset == end
        await world.fill(peer, 1)
        assert (await list_offset(peer, LATEST)).offset == end + 1, "it goes on where it ended"

"""What clients see of a topic most of which lies in the store alone."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.sim.objects import StoreFaults
from tailrace.wire.apis.groups import FindCoordinatorRequest
from tailrace.wire.apis.shares import ShareFetchRequest, ShareGroupHeartbeatRequest
from tailrace.wire.records import iterate_headers, iterate_records
from tests.unit.broker.test_shares import configure
from tests.unit.broker.tier.tiered_world import (
    BASE_MS,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    PENDING_UPLOAD,
    SMALL,
    list_offset,
    read_all,
    running_tiered,
    tiered_topic,
)
from tests.unit.broker.world import batch, create_topic, fetch, fetched, produce, produced
from tests.unit.simulated import simulated


@simulated
async def test_everything_can_be_read_from_the_first_record_on():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        values = await read_all(peer, 0, 40)
        assert [value[:6] for value in values] == [b"%06d" % number for number in range(40)]
        assert world.partition(1).log.log_start_offset > 20, "most of it came from the store"
        assert await read_all(peer, 7, 40, partition_max_bytes=1) == values[7:], "a batch at a time"


@simulated
async def test_offsets_are_told_as_kafka_tells_them():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        await world.wait(lambda: len(world.segments) >= 6, "all closed segments are copied")
        await asyncio.sleep(2)
        local, active = world.partition(1).log.log_start_offset, world.partition(1).log.active.base_offset
        assert (await list_offset(peer, EARLIEST)).offset == 0
        assert (await list_offset(peer, LATEST)).offset == 40
        assert (await list_offset(peer, EARLIEST_LOCAL)).offset == local > 0
        tiered, pending = await list_offset(peer, LATEST_TIERED), await list_offset(peer, PENDING_UPLOAD)
        assert (tiered.offset, pending.offset, tiered.leader_epoch) == (active - 1, active, 0)
        for timestamp, offset in ((0, 0), (BASE_MS + 3000, 3), (BASE_MS + 3001, 4), (BASE_MS + 39_000, 39)):
            found = await list_offset(peer, timestamp)
            assert (found.timestamp, found.offset) == (BASE_MS + 1000 * offset, offset)
        assert (await list_offset(peer, BASE_MS + 40_000)).offset == -1
        assert (await list_offset(peer, MAX_TIMESTAMP)).offset == 39


@simulated
async def test_the_largest_timestamp_may_lie_in_the_store():
    async with running_tiered() as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", **SMALL)
        late = batch(b"late" * 100, now_ms=BASE_MS + 3_600_000)
        assert produced(await peer.request(produce("t", late), 9)).base_offset == 0
        await world.fill(peer, 40)
        await world.wait_tiered(1)
        found = await list_offset(peer, MAX_TIMESTAMP)
        assert (found.timestamp, found.offset) == (BASE_MS + 3_600_000, 0)


@simulated
async def test_several_cold_partitions_are_read_by_one_fetch():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        await create_topic(peer, "u", **SMALL)
        await world.fill(peer, topic="u")
        await world.wait_tiered(1, "u")
        both = fetch("t", 0, max_wait_ms=500)
        both.topics += fetch("u", 3).topics
        answer = await peer.request(both, 11)
        assert [bool(each.partitions[0].records) for each in answer.responses] == [True, True]


@simulated
async def test_a_store_that_is_away_makes_nobody_jump():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        world.bucket.faults = StoreFaults(away_until_ms=1e15)
        codes = []
        for _ in range(60):
            data = fetched(await peer.request(fetch("t", 0, max_wait_ms=500), 11))
            assert not data.records
            codes.append(data.error_code)
            if data.error_code:
                break
        assert codes[0] == 0, "it may still come"
        assert codes[-1] == ErrorCode.KAFKA_STORAGE_ERROR, "the circuit is open"
        assert produced(await peer.request(produce("t", batch(b"hot")), 9)).base_offset == 40
        assert fetched(await peer.request(fetch("t", 40), 11)).records, "what is here is read"
        problem = world.nodes[1].broker.tier.problem
        assert "nobody answers" in problem
        world.bucket.faults = StoreFaults()
        await world.wait(lambda: not world.nodes[1].broker.tier.problem, "the store is asked again")
        assert len(await read_all(peer, 0, 41)) == 41


@simulated
async def test_an_offset_before_the_start_is_out_of_range():
    async with running_tiered() as world:
        peer = await tiered_topic(world, retention_bytes="9000")
        await world.wait(lambda: world.part(1).log_start_offset > 0, "retention takes what is in the store")
        start = world.part(1).log_start_offset
        assert (await list_offset(peer, EARLIEST)).offset == start
        code = fetched(await peer.request(fetch("t", start - 1), 11)).error_code
        assert code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert len(await read_all(peer, start, 40)) == 40 - start


@simulated
async def test_a_damaged_object_is_an_error_and_never_wrong_bytes():
    async with running_tiered() as world:
        peer = await tiered_topic(world)
        name = world.segments[0]
        data = bytearray(world.bucket.objects[name].data)
        data[200] ^= 1
        world.bucket.store(name, bytes(data))
        data = fetched(await peer.request(fetch("t", 0, max_wait_ms=500), 11))
        assert (data.error_code, bytes(data.records or b"")) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")


@simulated
async def test_a_share_group_begins_with_what_lies_in_the_store_alone():
    async with running_tiered(**SHARES) as world:
        peer = await tiered_topic(world)
        local = await world.wait_tiered(1)
        assert await worked_off(world, peer, "earliest") == list(range(40))
        assert local > 20


@simulated
async def test_a_share_group_begins_at_a_time_that_lies_in_the_store_alone():
    async with running_tiered(**SHARES) as world:
        peer = await tiered_topic(world)
        local = await world.wait_tiered(1)
        await asyncio.sleep(60)
        age_s = int(world.nodes[1].broker.node.ports.clock.wall_ms() - BASE_MS) // 1000 - 8
        seen = await worked_off(world, peer, f"by_duration:PT{age_s}S")
        assert seen == list(range(seen[0], 40))
        assert 8 <= seen[0] < 18 < local, "some seconds have gone by since"


@simulated
async def test_members_of_a_group_in_order_are_told_that_keys_in_the_store_are_not_read():
    async with running_tiered(**SHARES) as world:
        peer = await tiered_topic(world)
        await configure(peer, "share.key.order", "true")
        await join(peer, "earliest")
        began = asyncio.get_running_loop().time()
        told = [each for epoch in range(6) for each in await share_fetch(world, peer, epoch, ())]
        assert not any(each.acquired_records for each in told)
        (code,) = {each.error_code for each in told}
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "set share.key.order=false" in told[0].error_message
        assert asyncio.get_running_loop().time() - began > 2, "whoever asks again at once waits"


@simulated
async def test_what_lies_in_the_store_alone_has_dead_letters_once_the_store_answers():
    async with running_tiered(**SHARES) as world:
        peer = await world.connect(1)
        await create_topic(peer, "t", **{**SMALL, "local_retention_bytes": "1000000"})
        await world.fill(peer, 40)
        await create_topic(peer, "dlq.t", errors_deadletterqueue_group_enable="true")
        await configure(peer, "errors.deadletterqueue.topic.name", "dlq.t")
        await configure(peer, "errors.deadletterqueue.copy.record.enable", "true")
        await join(peer, "earliest")
        held: list[int] = []
        epoch = 0
        while len(held) < 10:
            for told in await share_fetch(world, peer, epoch, ()):
                held += [offset for each in told.acquired_records for offset in each_offset(each)]
            epoch += 1
        await configure(peer, "local.retention.bytes", "1", kind=TOPIC_RESOURCE, resource_name="t")
        assert await world.wait_tiered(1) > held[-1], "what was given out lies in the store alone now"
        world.bucket.faults = StoreFaults(away_until_ms=1e15)
        for told in await share_fetch(world, peer, epoch, [(held[0], held[-1], REJECT)]):
            assert not told.acknowledge_error_code
        await asyncio.sleep(2)
        letters = world.partition(1, "dlq.t")
        assert letters.high_watermark == 0, "there is no telling yet what they would be copies of"
        world.bucket.faults = StoreFaults()
        await world.wait(lambda: letters.high_watermark >= len(held), "the letters are written")
        values = [value[:6] for value in await read_all(peer, 0, letters.high_watermark, "dlq.t")]
        assert values == [b"%06d" % offset for offset in held]


async def worked_off(world: Any, peer: Any, reset: str) -> list[int]:
    """The offsets that a new group is given and accepts, up to the last."""
    await join(peer, reset)
    seen: list[int] = []
    said: list[tuple[int, int, int]] = []
    for epoch in range(100):
        answer = await share_fetch(world, peer, epoch, said)
        said = []
        for told in answer:
            assert not told.error_code, told
            assert not told.acknowledge_error_code
            values = dict(records_in(told.records))
            for each in told.acquired_records:
                offsets = each_offset(each)
                assert all(values[offset].startswith(b"%06d" % offset) for offset in offsets)
                seen += offsets
                said.append((each.first_offset, each.last_offset, ACCEPT))
        if seen and seen[-1] == 39 and not said:
            break
    return seen


async def join(peer: Any, reset: str) -> None:
    await peer.request(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    await configure(peer, "share.auto.offset.reset", reset)
    asked = ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    assert (await peer.request(asked, 1)).error_code == 0


async def share_fetch(world: Any, peer: Any, epoch: int, said: Sequence[tuple[int, int, int]]) -> list[Any]:
    """Each of what is said is the first offset, the last, and what became of them."""
    request = ShareFetchRequest
    batches = [
        request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in said
    ]
    partition = request.FetchPartition(partition_index=0, acknowledgement_batches=batches)
    asked = request(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=1000,
        min_bytes=1,
        max_bytes=5000,
        max_records=3,
        topics=[request.FetchTopic(topic_id=world.partition(1).topic_id, partitions=[partition])],
    )
    answer = await peer.request(asked, 2)
    assert answer.error_code == 0
    return [each for topic in answer.responses for each in topic.partitions]


def each_offset(acquired: Any) -> range:
    return range(acquired.first_offset, acquired.last_offset + 1)


def records_in(records: Any) -> list[tuple[int, bytes]]:
    return [
        (record.offset, record.value or b"")
        for position, header in iterate_headers(records or b"", allow_partial=True)
        for record in iterate_records(records[position : position + header.size_bytes], max_decompressed_bytes=1 << 20)
    ]


ACCEPT, REJECT = 1, 3
TOPIC_RESOURCE = 2
SHARES = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}

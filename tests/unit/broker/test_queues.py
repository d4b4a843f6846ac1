"""What share groups do beyond Kafka 4.3: dead letters, records that come back later, one record of a key at a time."""

import asyncio
from typing import Any, NamedTuple

from tailrace.broker.shares.cold import hidden_in
from tailrace.broker.tier.cold import Aborted
from tailrace.model.errors import ErrorCode
from tailrace.wire.compression import Compression
from tailrace.wire.markers import Marker, build_marker
from tailrace.wire.records import build_batch, iterate_headers, iterate_records, set_base_offset
from tests.unit.broker.test_shares import (
    ACCEPT,
    REJECT,
    RELEASE,
    SETTINGS,
    TOPIC_RESOURCE,
    Member,
    another,
    configure,
    prepared,
    start_offset,
    write,
)
from tests.unit.broker.world import World, batch, create_topic, fetch, fetched, produce, running

TOPIC = "dlq.work"
NAME, COPY, ENABLE = (f"errors.deadletterqueue.{each}" for each in ("topic.name", "copy.record.enable", "group.enable"))
REJECTED, DELIVERED_TOO_OFTEN = "Offset rejected by client.", "Offset delivery count exceeded the threshold."
BROKER_RESOURCE = 4


class Letter(NamedTuple):
    offset: int
    delivery_count: int
    message: str
    key: bytes | None
    value: bytes | None


async def letters(member: Member, topic: str = TOPIC, partition: int = 0) -> list[Letter]:
    """Those that were written, each of them of partition 0 of topic t and group g."""
    records = fetched(await member.peer.request(fetch(topic, 0, partition=partition), 12)).records or b""
    found = []
    for position, header in iterate_headers(records):
        for record in iterate_records(records[position : position + header.size_bytes], max_decompressed_bytes=1 << 20):
            told = {name.removeprefix("__dlq.errors."): value.decode() for name, value in record.headers}
            assert (told["topic"], told["partition"], told["group"]) == ("t", "0", "g")
            assert len(told) == len(record.headers) == 6
            found.append(
                Letter(int(told["offset"]), int(told["delivery.count"]), told["message"], record.key, record.value)
            )
    return found


async def write_keys(member: Member, *keys: bytes | None, **options: Any) -> None:
    records = [(index, 1_767_225_600_000, key, b"v", ()) for index, key in enumerate(keys)]
    await member.peer.request(produce("t", build_batch(records, **options)), 9)


async def with_letters(world: World, *, partitions: int = 1, **configs: str) -> Member:
    member = await prepared(world)
    await create_topic(member.peer, TOPIC, partitions, **{ENABLE: "true"}, **configs)
    await configure(member.peer, NAME, TOPIC)
    return member


async def test_what_is_rejected_or_delivered_too_often_has_a_dead_letter() -> None:
    async with running(SETTINGS) as world:
        one = await with_letters(world)
        await configure(one.peer, "share.delivery.count.limit", "2")
        await configure(one.peer, "share.record.lock.duration.ms", "1000")
        await write(one, 4)
        assert await one.take() == [(0, 3, 1)]
        # Nobody is told that a record is done with before its letter is written.
        assert await one.acknowledge((0, 2, [ACCEPT, REJECT, RELEASE])) is ErrorCode.NONE
        assert await letters(one) == [Letter(1, 1, REJECTED, None, None)]
        assert await one.take() == [(2, 2, 2)]
        assert await one.acknowledge((2, 2, [RELEASE])) is ErrorCode.NONE
        assert (await letters(one))[1:] == [Letter(2, 2, DELIVERED_TOO_OFTEN, None, None)]
        assert await start_offset(one) == (3, 1)
        # A lock that runs out for the last time.
        assert await one.acknowledge((3, 3, [RELEASE])) is ErrorCode.NONE
        assert await one.take() == [(3, 3, 2)]
        while len(found := await letters(one)) < 3:
            await asyncio.sleep(0.1)
        assert found[2:] == [Letter(3, 2, DELIVERED_TOO_OFTEN, None, None)]
        while await start_offset(one) != (4, 0):
            await asyncio.sleep(0.02)


async def test_a_group_without_a_topic_for_them_has_none() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await create_topic(one.peer, TOPIC, **{ENABLE: "true"})
        await write(one, 1)
        assert await one.take() == [(0, 0, 1)]
        assert await one.acknowledge((0, 0, [REJECT])) is ErrorCode.NONE
        assert await start_offset(one) == (1, 0)
        assert await letters(one) == []


async def test_copies_have_key_and_value_and_go_to_the_partition_of_the_same_number() -> None:
    async with running(SETTINGS) as world:
        one = await with_letters(world, partitions=3)
        await configure(one.peer, COPY, "true")
        await write(one, 3)
        assert await one.take() == [(0, 2, 1)]
        assert await one.acknowledge((0, 2, [REJECT])) is ErrorCode.NONE
        assert [each.value for each in await letters(one)] == [b"0", b"1", b"2"]
        assert await letters(one, partition=1) == await letters(one, partition=2) == []


async def test_a_copy_that_the_topic_cannot_take_is_left_out() -> None:
    async with running(SETTINGS) as world:
        one = await with_letters(world, **{"max.message.bytes": "1000"})
        await configure(one.peer, COPY, "true")
        await one.peer.request(produce("t", batch(b"s", b"x" * 900, b"s")), 9)
        await write(one, 9)
        assert await one.take() == [(0, 11, 1)]
        assert await one.acknowledge((0, 11, [REJECT])) is ErrorCode.NONE
        found = await letters(one)
        assert [each.offset for each in found] == list(range(12))
        assert [each.value for each in found[:4]] == [b"s", None, b"s", b"0"]


async def test_a_topic_that_cannot_be_written_does_not_stop_the_group() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await configure(one.peer, NAME, TOPIC)
        await write(one, 4)
        assert await one.take(max_records=1) == [(0, 0, 1)]
        assert await one.acknowledge((0, 0, [REJECT])) is ErrorCode.NONE
        assert await one.take() == [(1, 3, 1)]
        assert await one.acknowledge((1, 3, [ACCEPT, REJECT, ACCEPT])) is ErrorCode.NONE
        assert await start_offset(one) == (0, 2), "what has no letter yet is not done with"
        # It is there, and does not take them. Then it does.
        await create_topic(one.peer, TOPIC)
        await asyncio.sleep(1)
        assert await letters(one) == []
        await configure(one.peer, ENABLE, "true", kind=TOPIC_RESOURCE, resource_name=TOPIC)
        while await start_offset(one) != (4, 0):
            await asyncio.sleep(0.1)
        assert [each.offset for each in await letters(one)] == [0, 2]


async def test_what_waits_is_given_up_when_there_is_no_room_for_anything_else() -> None:
    async with running({**SETTINGS, "group.share.partition.max.record.locks": "100"}) as world:
        one = await prepared(world)
        await configure(one.peer, NAME, "not.dlq")
        await write(one, 110)
        assert await one.take(max_records=100) == [(0, 99, 1)]
        assert await one.acknowledge((0, 99, [REJECT] + 99 * [ACCEPT])) is ErrorCode.NONE
        assert await start_offset(one) == (0, 11)
        assert await one.take() == [(100, 109, 1)]
        ((_, tally),) = world.broker.services.shares.tallies.items()
        assert (tally.lost, tally.written) == (1, 0)
        assert await start_offset(one) == (100, 10)


async def test_the_topic_is_created_if_the_cluster_says_so() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await configure(one.peer, NAME, TOPIC)
        name = "errors.deadletterqueue.auto.create.topics.enable"
        await configure(one.peer, name, "true", kind=BROKER_RESOURCE, resource_name="")
        await write(one, 1)
        assert await one.take() == [(0, 0, 1)]
        assert await one.acknowledge((0, 0, [REJECT])) is ErrorCode.NONE
        assert [each.offset for each in await letters(one)] == [0]


async def test_a_group_does_not_write_to_the_topic_that_it_reads() -> None:
    async with running({**SETTINGS, "errors.deadletterqueue.topic.name.prefix": ""}) as world:
        one = await prepared(world)
        await configure(one.peer, NAME, "t")
        await configure(one.peer, ENABLE, "true", kind=TOPIC_RESOURCE, resource_name="t")
        await write(one, 1)
        assert await one.take() == [(0, 0, 1)]
        assert await one.acknowledge((0, 0, [REJECT])) is ErrorCode.NONE
        assert await start_offset(one) == (1, 0)


async def test_what_comes_back_is_kept_from_everybody_for_longer_each_time() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        for name, value in (("ms", "100"), ("factor", "3.0"), ("max.ms", "500")):
            await configure(one.peer, f"share.retry.backoff.{name}", value)
        await write(one, 1)
        loop = asyncio.get_running_loop()
        assert await one.take() == [(0, 0, 1)]
        for count, seconds in ((2, 0.1), (3, 0.3), (4, 0.5)):
            begin = loop.time()
            assert await one.acknowledge((0, 0, [RELEASE])) is ErrorCode.NONE
            assert await one.take(wait_ms=20_000) == [(0, 0, count)]
            assert loop.time() - begin >= seconds
        # Others are not delayed by it, and a member that leaves does not shorten it.
        begin = loop.time()
        two = await another(world, one)
        assert await one.fetch(epoch=-1, wait_ms=0)
        await write(two, 1)
        assert await two.take() == [(1, 1, 1)]
        assert await two.take(wait_ms=20_000) == [(0, 0, 5)]
        assert loop.time() - begin >= 0.5


async def test_a_delay_outlives_the_last_member() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        await configure(one.peer, "share.retry.backoff.ms", "1000")
        await write(one, 1)
        assert await one.take() == [(0, 0, 1)]
        begin = asyncio.get_running_loop().time()
        await one.fetch(epoch=-1, wait_ms=0)
        one.epoch = 0
        assert await one.take(wait_ms=20_000) == [(0, 0, 2)]
        assert asyncio.get_running_loop().time() - begin >= 1.0


async def test_of_a_key_at_most_one_record_is_out_and_the_first_one_first() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        two = await another(world, one)
        await configure(one.peer, "share.key.order", "true")
        await write_keys(one, b"a", b"b", b"a", None, b"b", b"a")
        assert await one.take() == [(0, 1, 1), (3, 3, 1)]
        assert await two.take(wait_ms=0) == []
        assert await one.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
        assert await two.take() == [(2, 2, 1)]
        # What is released comes again before what follows it.
        assert await two.acknowledge((2, 2, [RELEASE])) is ErrorCode.NONE
        assert await one.take((1, 1, [REJECT])) == [(2, 2, 2), (4, 4, 1)]
        assert await one.take((2, 2, [ACCEPT]), (3, 4, [ACCEPT])) == [(5, 5, 1)]
        assert await one.acknowledge((5, 5, [ACCEPT])) is ErrorCode.NONE
        assert await start_offset(one) == (6, 0)


async def test_keys_of_compressed_batches_and_of_what_comes_later_are_read() -> None:
    async with running({**SETTINGS, "group.share.partition.max.record.locks": "100"}) as world:
        one = await prepared(world)
        await configure(one.peer, "share.key.order", "true")
        await write_keys(one, *[b"%d" % (number % 3) for number in range(250)], compression=Compression.GZIP)
        seen: list[int] = []
        while len(seen) < 250:
            acquired = await one.take()
            offsets = [offset for first, last, _ in acquired for offset in range(first, last + 1)]
            assert 0 < len(offsets) <= 3, "one of each key"
            seen += offsets
            assert await one.acknowledge(*((each, each, [ACCEPT]) for each in offsets)) is ErrorCode.NONE
        assert seen == sorted(seen) == list(range(250))


async def test_a_window_of_one_key_waits_and_says_so() -> None:
    async with running({**SETTINGS, "group.share.partition.max.record.locks": "100"}) as world:
        one = await prepared(world)
        two = await another(world, one)
        await configure(one.peer, "share.key.order", "true")
        await write_keys(one, *[b"same"] * 120, b"other")
        assert await one.take() == [(0, 0, 1)]
        assert await two.take(wait_ms=100) == []
        (share_partition,) = world.broker.services.shares.partitions.values()
        assert share_partition.is_full
        assert await one.acknowledge((0, 0, [ACCEPT])) is ErrorCode.NONE
        assert await two.take() == [(1, 1, 1)]


async def test_order_may_be_asked_for_and_given_up_while_records_are_out() -> None:
    async with running(SETTINGS) as world:
        one = await prepared(world)
        two = await another(world, one)
        await write_keys(one, b"a", b"a", b"b")
        await write_keys(one, b"a", b"b", b"c")
        assert await one.take(max_records=2) == [(0, 2, 1)]
        await configure(one.peer, "share.key.order", "true")
        assert await two.take() == [(5, 5, 1)]
        assert await one.acknowledge((0, 2, [ACCEPT, RELEASE, ACCEPT])) is ErrorCode.NONE
        assert await two.take() == [(1, 1, 2), (4, 4, 1)]
        await configure(one.peer, "share.key.order", "false")
        assert await one.take() == [(3, 3, 1)]


def test_of_what_comes_from_the_store_aborted_transactions_are_hidden() -> None:
    def transactional(base: int, producer_id: int) -> bytes:
        records = [(base + index, 0, None, b"v", ()) for index in range(2)]
        return build_batch(
            records, base_offset=base, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
        )

    def ended(base: int, producer_id: int, *, is_commit: bool) -> bytes:
        marker = bytearray(
            build_marker(Marker(is_commit, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=0)
        )
        set_base_offset(marker, 0, base)
        return bytes(marker)

    data = b"".join(
        (
            transactional(0, 1),
            transactional(2, 2),
            ended(4, 1, is_commit=False),
            transactional(5, 1),
            ended(7, 2, is_commit=True),
            ended(8, 1, is_commit=True),
        )
    )
    assert hidden_in(data, [Aborted(1, 0)]) == [(0, 1), (4, 4), (7, 7), (8, 8)]
    assert hidden_in(data, []) == [(4, 4), (7, 7), (8, 8)]

"""The consumer against a scripted broker: positions, whole batches, failures that pass and those that do not."""

import asyncio

import pytest

from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation, Position
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.records import Compression, Record, build_batch

from .log_peer import Broker, Transactions, batch
from .peer import HANG_UP

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


async def offsets(consumer: Consumer, count: int, partition: TopicPartition = T0) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        records = await consumer.poll(5000)
        assert records
        found += [record.offset for record in records[partition]]
    return found


async def test_reading_from_an_offset_inside_a_batch():
    async with Broker({0: [batch(0, 10), batch(10, 5, compression=Compression.ZSTD)]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 7})
        assert await offsets(consumer, 8) == list(range(7, 15))
        assert consumer.position(T0) == Position(15, 15)
        await consumer.close()
        consumer.cluster.close()


async def test_a_batch_that_is_cut_short_waits_for_the_next_fetch():
    whole, next_one = batch(0, 3), batch(3, 3)
    async with Broker({0: [(0, 6, whole[2] + next_one[2][:80])]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 0})
        assert await offsets(consumer, 3) == [0, 1, 2]
        assert consumer.position(T0).offset == 3
        await consumer.close()
        consumer.cluster.close()


async def test_control_batches_are_left_out_and_passed_over():
    marker = build_batch([Record(2, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=2, control=True, transactional=True)
    async with Broker({0: [batch(0, 2), (2, 3, marker), batch(3, 1)]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 0})
        assert await offsets(consumer, 3) == [0, 1, 3]
        await consumer.close()
        consumer.cluster.close()


async def test_a_compacted_tail_moves_the_position_on():
    kept = build_batch([Record(4, 0, b"k", b"v")], base_offset=0, last_offset_delta=9)
    async with Broker({0: [(0, 10, kept)]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 0})
        assert await offsets(consumer, 1) == [4]
        assert consumer.position(T0).offset == 10
        await consumer.close()
        consumer.cluster.close()


async def test_nothing_new_ends_with_the_timeout():
    async with Broker({0: [batch(0, 1)]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 1})
        assert await consumer.poll(50) == {}
        await consumer.close()
        consumer.cluster.close()


async def test_several_partitions():
    async with Broker({0: [batch(0, 4)], 1: [batch(10, 3)]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign(await consumer.offsets_at([T0, T1], EARLIEST))
        found: dict[TopicPartition, list[int]] = {T0: [], T1: []}
        while sum(map(len, found.values())) < 7:
            for partition, records in (await consumer.poll(5000)).items():
                found[partition] += [record.offset for record in records]
        assert found == {T0: [0, 1, 2, 3], T1: [10, 11, 12]}
        await consumer.close()
        consumer.cluster.close()


@pytest.mark.parametrize("trouble", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, HANG_UP])
async def test_what_may_pass_is_tried_again(trouble: ErrorCode | str):
    async with Broker({0: [batch(0, 3)]}) as broker:
        broker.plan = [trouble, trouble]
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 0})
        assert await offsets(consumer, 3) == [0, 1, 2]
        assert len(broker.received(MetadataRequest)) >= 3
        await consumer.close()
        consumer.cluster.close()


async def test_it_gives_up_in_the_end():
    async with Broker({0: [batch(0, 3)]}) as broker:
        broker.plan = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1000
        consumer = Consumer(broker.cluster(), ConsumerOptions(retry_timeout_ms=200))
        await consumer.assign({T0: 0})
        with pytest.raises(KafkaError) as raised:
            await consumer.poll(10_000)
        assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await consumer.close()
        consumer.cluster.close()


async def test_an_offset_that_is_not_there_is_told_at_once():
    async with Broker({0: [batch(0, 3)]}) as broker:
        broker.plan = [ErrorCode.OFFSET_OUT_OF_RANGE]
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 99})
        with pytest.raises(KafkaError, match="offset 99 is not in t-0"):
            await consumer.poll(10_000)
        await consumer.close()
        consumer.cluster.close()


@pytest.mark.parametrize("at", [-2, 2], ids=["its records", "its offset, which no CRC covers"])
async def test_a_damaged_batch_is_not_handed_out(at):
    start, end, good = batch(0, 3)
    damaged = bytearray(good)
    damaged[at] ^= 1
    async with Broker({0: [(start, end, bytes(damaged))]}) as broker:
        consumer = Consumer(broker.cluster(), ConsumerOptions(retry_timeout_ms=0))
        await consumer.assign({T0: 0})
        with pytest.raises(KafkaError, match="is damaged") as raised:
            await consumer.poll(10_000)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        await consumer.close()
        consumer.cluster.close()


async def test_what_a_batch_decompresses_to_is_bounded():
    big = build_batch([Record(0, 0, None, bytes(100_000))], compression=Compression.GZIP)
    async with Broker({0: [(0, 1, big)]}) as broker:
        consumer = Consumer(broker.cluster(), ConsumerOptions(decompressed_bytes_max=50_000))
        await consumer.assign({T0: 0})
        with pytest.raises(KafkaError, match="decompresses"):
            await consumer.poll(10_000)
        await consumer.close()
        consumer.cluster.close()


async def test_a_time_after_the_last_record_is_the_end():
    async with Broker({0: [batch(5, 3)]}) as broker:
        consumer = Consumer(broker.cluster())
        assert await consumer.offsets_at([T0], EARLIEST) == {T0: 5}
        assert await consumer.offsets_at([T0], LATEST) == {T0: 8}
        assert await consumer.offsets_at([T0], 1_700_000_000_000) == {T0: 8}
        consumer.cluster.close()


async def test_assigning_anew_drops_what_is_under_way():
    async with Broker({0: [batch(0, 3)], 1: [batch(0, 2)]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 3})
        poll = asyncio.create_task(consumer.poll(100))
        await poll
        await consumer.assign({T1: 0})
        assert await offsets(consumer, 2, T1) == [0, 1]
        await consumer.close()
        consumer.cluster.close()


async def test_a_poll_is_interrupted_once():
    async with Broker({0: []}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 0})
        polling = asyncio.create_task(consumer.poll(20_000))
        await asyncio.sleep(0.05)
        consumer.interrupt()
        consumer.interrupt()
        assert await asyncio.wait_for(polling, 5) == {}
        broker.batches[0].append(batch(0, 3))
        assert await offsets(consumer, 3) == [0, 1, 2]
        await consumer.close()
        consumer.cluster.close()


async def test_partitions_come_and_go_while_others_are_read():
    async with Broker({0: [batch(0, 3)], 1: [batch(0, 5)]}) as broker:
        consumer = Consumer(broker.cluster())
        await consumer.assign({T0: 0})
        assert await offsets(consumer, 3) == [0, 1, 2]
        consumer.change(added={T1: 2})
        assert await offsets(consumer, 3, T1) == [2, 3, 4]
        assert consumer.position(T0).offset == 3
        consumer.change(added={T1: 4}, removed=[T0])
        broker.batches[0].append(batch(3, 3))
        assert await offsets(consumer, 1, T1) == [4]
        assert await consumer.poll(200) == {}
        await consumer.close()
        consumer.cluster.close()


@pytest.mark.parametrize(
    ("isolation", "expected", "end"),
    [(Isolation.READ_UNCOMMITTED, [0, 1, 2, 3, 6, 7, 8], 12), (Isolation.READ_COMMITTED, [2, 3, 6, 7, 8], 10)],
)
async def test_aborted_records_are_passed_over_by_who_asks_for_it(isolation: Isolation, expected: list[int], end: int):
    async with Transactions() as broker:
        cluster = broker.cluster()
        consumer = Consumer(cluster, ConsumerOptions(isolation=isolation))
        await consumer.assign({T0: 0})
        assert await offsets(consumer, len(expected)) == expected
        assert consumer.position(T0) == Position(10, end)
        assert broker.isolation_levels == {isolation}
        await consumer.close()
        cluster.close()

"""Produce of batches that take long to check: others are served meanwhile, and nothing else differs."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tailrace.log.plain_batches import RECORDS_PER_SCAN
from tailrace.log.validation import RECORDS_PER_STEP, InvalidRecordsError
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.real.background import RealBackground
from tailrace.replica.partition import Partition
from tailrace.sim.background import SimBackground
from tailrace.wire.apis.data import MetadataRequest, ProduceRequest, ProduceResponse
from tailrace.wire.records import Compression, build_batch, iterate_headers
from tests.unit.broker.world import World, batch, create_topic, delete_topic, fetch, fetched, produce, produced, running
from tests.unit.replica.replicas import led_by

T = TypeVar("T")
TIMESTAMP_MS = 1_767_225_600_000
LARGE = 40 * RECORDS_PER_STEP  # More than is copied at once, too.


def large(count: int = LARGE, *, keyless: tuple[int, ...] = (), **options: object) -> bytes:
    records = [(index, TIMESTAMP_MS, None if index in keyless else b"k", b"v", ()) for index in range(count)]
    return build_batch(records, **options)  # type: ignore[arg-type]


class HookedBackground(SimBackground):
    """Does something else first when the codec work of a check begins."""

    def __init__(self) -> None:
        self.hook: Callable[[], object] | None = None

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()
        return super().run(work)


async def count_turns(until: asyncio.Future[object]) -> int:
    turns = 0
    while not until.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def until_taken(world: World) -> None:
    """The request is in memory: received in part at least."""
    async with asyncio.timeout(5):
        while world.broker.statistics()["request_buffer_bytes"] == 0:
            await asyncio.sleep(0)


async def test_others_are_served_meanwhile():
    async with running() as world:
        slow, other = await world.connect(), await world.connect()
        await create_topic(slow, "t", cleanup_policy="compact")
        answer = asyncio.ensure_future(slow.request(produce("t", large(100 * RECORDS_PER_STEP)), 9))
        turns = asyncio.ensure_future(count_turns(answer))
        await until_taken(world)
        for _ in range(5):
            assert (await other.request(MetadataRequest(topics=[]), 9)).error_code == 0
        assert not answer.done()
        assert produced(await answer).base_offset == 0
        assert await turns >= 100 * RECORDS_PER_STEP // RECORDS_PER_SCAN
        assert world.broker.statistics()["request_buffer_bytes"] == 0


async def test_a_connection_keeps_its_order():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact")
        for records in (large(), large(1), large(), large(2)):
            peer.send(produce("t", records), 9)
        offsets = [produced(await peer.receive()).base_offset for _ in range(4)]
        assert offsets == [0, LARGE, LARGE + 1, 2 * LARGE + 1]


def seen(answer: ProduceResponse.PartitionProduceResponse) -> tuple[object, ...]:
    # The message of INVALID_TIMESTAMP tells the time.
    message = None if answer.error_code == ErrorCode.INVALID_TIMESTAMP else answer.error_message
    has_append_time = answer.log_append_time_ms >= 0
    return answer.error_code, answer.base_offset, has_append_time, message, len(answer.record_errors)


def appended(partition: Partition, records: bytearray) -> tuple[object, ...]:
    """What the append says that no check in slices goes before."""
    try:
        result = partition.append(memoryview(records), required_acks=1)
    except KafkaError as error:
        message = None if error.code is ErrorCode.INVALID_TIMESTAMP else error.message
        named = error.record_errors if isinstance(error, InvalidRecordsError) else []
        return int(error.code), -1, False, message, len(named)
    return 0, result.base_offset, result.log_append_time_ms >= 0, None, 0


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup_policy": "compact"},
        {"record_validation_deep": "true", "message_timestamp_type": "LogAppendTime"},
        {"compression_type": "gzip", "max_message_bytes": "6000"},
        {"message_timestamp_before_max_ms": "1000"},
    ],
)
async def test_answers_are_those_of_the_direct_way(settings):
    chance = random.Random(5)
    background = RealBackground()
    try:
        async with running(background=background) as world:
            peer = await world.connect()
            await create_topic(peer, "slow", **settings)
            await create_topic(peer, "direct", **settings)
            direct = world.broker.replicas.find("direct", 0)
            for number in range(12):
                keyless = tuple(chance.sample(range(LARGE), chance.choice([0, 0, 1, 200])))
                records = bytearray(large(keyless=keyless, compression=Compression(number % 5)))
                if chance.random() < 0.2:
                    records[chance.randrange(70, len(records))] ^= 1
                answer = produced(await peer.request(produce("slow", bytes(records)), 9))
                assert seen(answer) == appended(direct, records)
    finally:
        background.close()


async def test_partitions_stand_or_fall_alone():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=4, cleanup_policy="compact")
        request = produce("t", large())
        for index, records in enumerate((large(1), large(keyless=(7,)), large(), large()), start=1):
            data = ProduceRequest.PartitionProduceData(index=index, records=records)
            request.topic_data[0].partition_data.append(data)
        answers = (await peer.request(request, 9)).responses[0].partition_responses
        unknown = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert [each.index for each in answers] == [0, 1, 2, 3, 4]
        assert [each.error_code for each in answers] == [0, 0, int(ErrorCode.INVALID_RECORD), 0, unknown]
        assert [each.batch_index for each in answers[2].record_errors] == [7]


async def test_acks_0_has_no_answer_and_an_error_closes():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact")
        peer.send(produce("t", large(), acks=0), 9, expects_answer=False)
        assert (await peer.request(MetadataRequest(topics=[]), 9)).error_code == 0
        assert world.broker.replicas.find("t", 0).high_watermark == LARGE
        peer.send(produce("t", large(keyless=(3,)), acks=0), 9, expects_answer=False)
        assert await peer.is_closed()
        assert world.broker.replicas.find("t", 0).high_watermark == LARGE


async def test_an_acknowledgement_may_still_have_to_wait_for_the_sync():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact", flush_messages="1")
        peer.send(produce("t", large(), acks=-1), 9)
        peer.send(produce("t", large(1), acks=-1), 9)
        assert [produced(await peer.receive()).base_offset for _ in range(2)] == [0, LARGE]


async def test_what_is_confirmed_while_another_partition_is_checked_is_not_waited_for():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2, cleanup_policy="compact", flush_messages="1")
        request = produce("t", large(1), acks=-1)
        data = ProduceRequest.PartitionProduceData(index=1, records=large())
        request.topic_data[0].partition_data.append(data)
        answers = (await peer.request(request, 9)).responses[0].partition_responses
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 0)]


async def test_a_producer_that_repeats_itself_is_told_the_first_offset():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact")
        records = large(producer_id=7, producer_epoch=0, base_sequence=0)
        answers = [produced(await peer.request(produce("t", records), 9)) for _ in range(2)]
        assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 0)]
        assert world.broker.replicas.find("t", 0).high_watermark == LARGE


async def test_the_records_are_those_that_were_sent_though_the_buffer_is_used_again():
    async with running() as world:
        slow, other = await world.connect(), await world.connect()
        await create_topic(slow, "t", record_validation_deep="true")
        await create_topic(other, "u")
        sent = large()
        slow.send(produce("t", sent), 9)
        slow.send(produce("u", batch(b"x" * len(sent))), 9)
        for _ in range(5):
            await other.request(produce("u", batch(b"y" * len(sent))), 9)
        assert [produced(await slow.receive()).error_code for _ in range(2)] == [0, 0]
        stored = bytes(fetched(await other.request(fetch("t", 0), 11)).records)
        assert [header.crc for _, header in iterate_headers(stored)] == [
            header.crc for _, header in iterate_headers(sent)
        ]
        assert stored[61:] == sent[61:]


async def test_settings_that_change_meanwhile_hold():
    background = HookedBackground()
    async with running(background=background) as world:
        peer = await world.connect()
        await create_topic(peer, "t", record_validation_deep="true")
        partition = world.broker.replicas.find("t", 0)
        background.hook = lambda: partition.log.reconfigure(TopicConfig(cleanup_policy=frozenset({"compact"})))
        answer = produced(await peer.request(produce("t", large(keyless=(0,))), 9))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert partition.log.log_end_offset == 0
        assert background.hook is None


async def test_leadership_that_is_lost_meanwhile_counts():
    background = HookedBackground()
    async with running(background=background) as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact")
        partition = world.broker.replicas.find("t", 0)
        both = (NodeId(1), NodeId(2))
        background.hook = lambda: partition.follow_image(led_by(NodeId(2), epoch=9, replicas=both, isr=both))
        answer = produced(await peer.request(produce("t", large()), 9))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log.log_end_offset == 0


async def test_a_topic_deleted_meanwhile_takes_nothing():
    async with running() as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact", max_message_bytes="10000000")
        answer = asyncio.ensure_future(peer.request(produce("t", large(300 * RECORDS_PER_STEP)), 9))
        await until_taken(world)
        await delete_topic(other, "t")
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert produced(await answer).error_code in unknown


async def test_a_client_that_leaves_meanwhile_leaves_nothing_behind():
    async with running() as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact", flush_messages="1")
        peer.send(produce("t", large(50 * RECORDS_PER_STEP)), 9)
        await until_taken(world)
        await peer.close()
        partition = world.broker.replicas.find("t", 0)
        async with asyncio.timeout(5):
            while partition.high_watermark == 0:
                await other.request(MetadataRequest(topics=[]), 9)
        assert not partition.produces
        assert world.broker.statistics()["request_buffer_bytes"] == 0


async def test_many_at_once_take_turns():
    async with running() as world:
        peers = [await world.connect() for _ in range(6)]
        await create_topic(peers[0], "t", cleanup_policy="compact")
        answers = await asyncio.gather(*[peer.request(produce("t", large()), 9) for peer in peers])
        assert sorted(produced(each).base_offset for each in answers) == [number * LARGE for number in range(6)]


async def test_a_few_hundred_plain_records_are_checked_on_the_spot(monkeypatch):
    monkeypatch.delattr("tailrace.broker.handlers.produce._finish_slowly")
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact")
        sent = large(RECORDS_PER_SCAN)
        assert produced(await peer.request(produce("t", sent), 9)).base_offset == 0
        refused = produced(await peer.request(produce("t", large(RECORDS_PER_STEP - 1, keyless=(7,))), 9))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert [each.batch_index for each in refused.record_errors] == [7]
        stored = bytes(fetched(await peer.request(fetch("t", 0), 11)).records)
        assert stored[61:] == sent[61:]

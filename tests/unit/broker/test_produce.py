"""Produce: what is taken, what is refused with which code, and when the answer comes."""

import asyncio
import errno

import pytest

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.sim.background import HeldBackground
from tailrace.wire.apis.data import MetadataRequest, ProduceRequest
from tailrace.wire.records import Compression
from tests.unit.broker.world import (
    batch,
    create_topic,
    delete_topic,
    fetch,
    fetched,
    produce,
    produced,
    running,
)
from tests.unit.replica.replicas import led_by

VERSIONS = range(3, 13)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
async def test_every_version_appends_and_says_where(version, acks):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        for expected in (0, 2, 4):
            answer = produced(await peer.request(produce("t", batch(b"a", b"b"), acks=acks), version))
            assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, expected, -1)
            assert answer.log_start_offset == (0 if version >= 5 else -1)


async def test_version_13_names_topics_by_id():
    async with running() as world:
        peer = await world.connect()
        topic_id = await create_topic(peer, "t")
        response = await peer.request(produce("", batch(b"a"), topic_id=topic_id), 13)
        assert response.responses[0].topic_id == topic_id
        assert produced(response).base_offset == 0
        answer = produced(await peer.request(produce("", batch(b"a"), topic_id=bytes(15) + b"x"), 13))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_acks_0_has_no_answer():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        peer.send(produce("t", batch(b"a"), acks=0), 9, expects_answer=False)
        assert (await peer.request(MetadataRequest(topics=[]), 9)).error_code == 0
        assert world.broker.replicas.find("t", 0).high_watermark == 1


async def test_an_error_with_acks_0_closes_the_connection_after_earlier_answers():
    async with running() as world:
        peer = await world.connect()
        peer.send(MetadataRequest(topics=[]), 9)
        peer.send(produce("missing", batch(b"a"), acks=0), 9, expects_answer=False)
        assert (await peer.receive()).error_code == 0
        assert await peer.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 7])
async def test_other_acks_are_refused(acks):
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        answer = produced(await peer.request(produce("t", batch(b"a"), acks=acks), 9))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
        assert world.broker.replicas.find("t", 0).high_watermark == 0


def _damaged(records: bytes, position: int) -> bytes:
    changed = bytearray(records)
    changed[position] ^= 0xFF
    return bytes(changed)


def _with_magic(magic: int) -> bytes:
    changed = bytearray(batch(b"a"))
    changed[16] = magic
    return bytes(changed)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
        (batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (_damaged(batch(b"a"), 65), ErrorCode.CORRUPT_MESSAGE),
        (_with_magic(1), ErrorCode.INVALID_RECORD),
        (_with_magic(3), ErrorCode.CORRUPT_MESSAGE),
        (b"\x0f" * 40, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a", last_offset_delta=5), ErrorCode.INVALID_RECORD),
        (batch(b"a", control=True), ErrorCode.INVALID_RECORD),
        (batch(b"a", producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"a", now_ms=1 << 60), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "records",
)
async def test_bad_records_are_refused_with_a_message_and_nothing_is_written(records, code):
    async with running({"message.max.bytes": "1000"}) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        answer = produced(await peer.request(produce("t", records), 9))
        assert answer.error_code == code
        assert answer.error_message
        assert answer.base_offset == -1
        assert produced(await peer.request(produce("t", batch(b"good")), 9)).base_offset == 0


async def test_record_errors_name_the_records():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", cleanup_policy="compact")
        answer = produced(await peer.request(produce("t", batch(b"no key", b"none either")), 8))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [0, 1]


async def test_every_partition_stands_or_falls_alone():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=2)
        request = produce("t", batch(b"a"))
        partitions = request.topic_data[0].partition_data
        partitions.append(ProduceRequest.PartitionProduceData(index=1, records=batch(b"b")[:-1]))
        partitions.append(ProduceRequest.PartitionProduceData(index=2, records=batch(b"c")))
        partitions.append(ProduceRequest.PartitionProduceData(index=0, records=batch(b"twice")))
        response = await peer.request(request, 9)
        assert [(each.index, each.error_code) for each in response.responses[0].partition_responses] == [
            (0, ErrorCode.NONE),
            (1, ErrorCode.CORRUPT_MESSAGE),
            (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (0, ErrorCode.INVALID_REQUEST),
        ]
        assert world.broker.replicas.find("t", 0).high_watermark == 1


async def test_internal_topics_and_transactions_of_nobody_are_refused():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        answer = produced(await peer.request(produce("__consumer_offsets", batch(b"a")), 9))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        of_nobody = batch(b"a", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
        answer = produced(await peer.request(produce("t", of_nobody), 9))
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        answer = produced(await peer.request(produce("__cluster_metadata", batch(b"a")), 9))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_zstd_needs_version_7():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        records = batch(b"a" * 100, compression=Compression.ZSTD)
        answer = produced(await peer.request(produce("t", records), 6))
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert produced(await peer.request(produce("t", records), 7)).error_code == 0


async def test_duplicates_are_answered_with_their_first_offset():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        first = batch(b"a", b"b", producer_id=9, producer_epoch=0, base_sequence=0)
        second = batch(b"c", producer_id=9, producer_epoch=0, base_sequence=2)
        gap = batch(b"d", producer_id=9, producer_epoch=0, base_sequence=9)
        old = batch(b"e", producer_id=9, producer_epoch=0, base_sequence=3)
        assert produced(await peer.request(produce("t", first, acks=-1), 9)).base_offset == 0
        assert produced(await peer.request(produce("t", second, acks=-1), 9)).base_offset == 2
        assert produced(await peer.request(produce("t", first, acks=-1), 9)).base_offset == 0
        answer = produced(await peer.request(produce("t", gap, acks=-1), 9))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        newer = batch(b"f", producer_id=9, producer_epoch=1, base_sequence=0)
        assert produced(await peer.request(produce("t", newer, acks=-1), 9)).base_offset == 3
        answer = produced(await peer.request(produce("t", old, acks=-1), 9))
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_log_append_time_is_told():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", message_timestamp_type="LogAppendTime")
        before = world.clock.wall_ms()
        answer = produced(await peer.request(produce("t", batch(b"a")), 9))
        assert before <= answer.log_append_time_ms <= world.clock.wall_ms()


async def test_too_few_in_sync_replicas_refuse_acks_all_alone():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", min_insync_replicas="2")
        world.broker.replicas.find("t", 0).follow_image(
            led_by(NodeId(1), epoch=1, replicas=(NodeId(1), NodeId(2)), isr=(NodeId(1),))
        )
        answer = produced(await peer.request(produce("t", batch(b"a"), acks=-1), 9))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produced(await peer.request(produce("t", batch(b"a"), acks=1), 9)).error_code == 0


async def test_a_full_disk_fails_one_partition_and_it_recovers():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "full")
        await create_topic(peer, "fine")
        assert produced(await peer.request(produce("full", batch(b"a")), 9)).base_offset == 0
        world.disk.fail("append", "*full-0*", error=errno.ENOSPC)
        answer = produced(await peer.request(produce("full", batch(b"b")), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produced(await peer.request(produce("fine", batch(b"b")), 9)).base_offset == 0
        world.disk.heal()
        assert produced(await peer.request(produce("full", batch(b"c")), 9)).base_offset == 1
        assert len(fetched(await peer.request(fetch("full", 0), 11)).records) == 2 * len(batch(b"a"))


async def test_flush_messages_1_acknowledges_after_the_sync_and_the_loop_goes_on():
    background = HeldBackground(is_holding=False)
    async with running(background=background) as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(peer, "t", flush_messages="1")
        background.is_holding = True
        background.run_count = 0
        for _ in range(10):
            peer.send(produce("t", batch(b"a")), 9)
        await asyncio.sleep(0.05)
        assert not peer.reader._buffer
        partition = world.broker.replicas.find("t", 0)
        assert (partition.log.log_end_offset, partition.high_watermark) == (10, 0)
        # Nobody sees what is not safe yet; others are served meanwhile.
        assert not fetched(await other.request(fetch("t", 0), 11)).records
        background.release_all()
        assert [produced(await peer.receive()).base_offset for _ in range(10)] == list(range(10))
        assert partition.high_watermark == 10
        assert background.run_count <= 3  # One for the first, one for all that came meanwhile.


async def test_acks_all_times_out_when_the_sync_does_not_end():
    background = HeldBackground(is_holding=False)
    async with running(background=background) as world:
        peer = await world.connect()
        await create_topic(peer, "t", flush_messages="1")
        background.is_holding = True
        answer = produced(await peer.request(produce("t", batch(b"a"), acks=-1, timeout_ms=50), 9))
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert not world.broker.replicas.find("t", 0).produces  # A disk that hangs must not gather them.
        background.release_all()


async def test_a_failed_sync_takes_the_log_offline():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", flush_messages="1")
        world.disk.fail("sync", "*t-0*", error=errno.EIO)
        answer = produced(await peer.request(produce("t", batch(b"a"), acks=-1), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        world.disk.heal()
        answer = produced(await peer.request(produce("t", batch(b"a"), acks=-1), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetched(await peer.request(fetch("t", 0), 11)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_deleted_topic_ends_the_wait_of_its_producers():
    background = HeldBackground(is_holding=False)
    async with running(background=background) as world:
        peer, admin = await world.connect(), await world.connect()
        await create_topic(peer, "t", flush_messages="1")
        partition = world.broker.replicas.find("t", 0)
        background.is_holding = True
        peer.send(produce("t", batch(b"a")), 9)
        await asyncio.sleep(0.05)
        partition.close()
        assert produced(await peer.receive()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        background.release_all()
        await delete_topic(admin, "t")
        answer = produced(await peer.request(produce("t", batch(b"a")), 9))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_disconnect_does_not_undo_an_append():
    background = HeldBackground(is_holding=False)
    async with running(background=background) as world:
        peer = await world.connect()
        await create_topic(peer, "t", flush_messages="1")
        background.is_holding = True
        peer.send(produce("t", batch(b"a")), 9)
        await asyncio.sleep(0.05)
        await peer.close()
        background.release_all()
        await asyncio.sleep(0.05)
        assert world.broker.replicas.find("t", 0).high_watermark == 1


async def test_answers_outstanding_are_bounded():
    background = HeldBackground(is_holding=False)
    async with running({"max.pending.responses.per.connection": "3"}, background=background) as world:
        peer = await world.connect()
        await create_topic(peer, "t", flush_messages="1")
        background.is_holding = True
        for _ in range(10):
            peer.send(produce("t", batch(b"a")), 9)
        await asyncio.sleep(0.05)
        assert world.broker.replicas.find("t", 0).log.log_end_offset == 3
        background.release_all()
        assert [produced(await peer.receive()).base_offset for _ in range(10)] == list(range(10))


async def test_records_that_too_few_replicas_can_confirm_are_said_to_be_written():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", min_insync_replicas="2")
        partition = world.broker.replicas.find("t", 0)
        both = (NodeId(1), NodeId(2))
        for expected, isr in [
            (ErrorCode.REQUEST_TIMED_OUT, both),
            (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, (NodeId(1),)),
        ]:
            partition.follow_image(led_by(NodeId(1), epoch=1, replicas=both, isr=both))
            end_offset = partition.log.log_end_offset
            waiting = asyncio.create_task(peer.request(produce("t", batch(b"a"), acks=-1, timeout_ms=200), 9))
            while partition.log.log_end_offset == end_offset:
                await asyncio.sleep(0.01)
            partition.follow_image(led_by(NodeId(1), epoch=1, replicas=both, isr=isr))
            assert produced(await waiting).error_code == expected

"""What a hostile or unlucky client can do to a broker: memory, answers and wake-ups that must not be lost."""

import asyncio
import logging
import statistics

import pytest

from tailrace.broker.handlers.fetch import FetchAttempt
from tailrace.broker.serving.dispatch import Dispatcher
from tailrace.model.errors import ErrorCode
from tailrace.sim.background import HeldBackground
from tailrace.wire.apis.admin import CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tailrace.wire.apis.data import FetchRequest, ListOffsetsRequest, MetadataRequest
from tests.unit.broker.world import (
    Peer,
    batch,
    create_topic,
    delete_topic,
    fetch,
    fetched,
    produce,
    produced,
    running,
)

LONG_NAME = "n" * 32767


async def served_by(peer: Peer) -> bool:
    return (await peer.request(MetadataRequest(topics=[]), 9)).error_code == 0


# ---- answers


@pytest.mark.parametrize("version", range(3, 13))
async def test_an_error_that_quotes_a_long_name_fits_into_its_answer(version):
    async with running() as world:
        peer = await world.connect()
        answer = produced(await peer.request(produce(LONG_NAME, batch(b"x")), version))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(2, 8))
async def test_an_error_that_quotes_many_long_names_fits_into_its_answer(version):
    configs = [CreateTopicsRequest.CreatableTopicConfig(name="s" * 30_000, value=None) for _ in range(5)]
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    async with running() as world:
        peer = await world.connect()
        response = await peer.request(CreateTopicsRequest(topics=[topic], timeout_ms=1000), version)
        assert response.topics[0].error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("held", [False, True], ids=["of a handler", "of a pending answer"])
async def test_an_answer_that_cannot_be_encoded_closes_its_connection(held, monkeypatch, caplog):
    """A bug of ours; but a client that is never answered, or is answered out of turn, is worse than one cut off."""
    background = HeldBackground(is_holding=False)
    async with running(background=background) as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(other, "t", flush_messages="1")
        background.is_holding = True
        if held:
            peer.send(produce("t", batch(b"a"), acks=-1), 9)
        else:
            topic = CreateTopicsRequest.CreatableTopic(name="u", num_partitions=1, replication_factor=1)
            peer.send(CreateTopicsRequest(topics=[topic]), 7)
        await asyncio.sleep(0.02)
        dispatcher = world.broker.protocols[0].dispatcher
        monkeypatch.setattr(dispatcher, "encode", lambda *_: 1 / 0)
        background.release_all()
        assert await peer.is_closed()
        monkeypatch.undo()
        assert await served_by(other)
    assert any("ZeroDivisionError" in (record.exc_text or "") or record.exc_info for record in caplog.records)


async def test_a_clean_stop_waits_for_a_handler_under_way():
    background = HeldBackground(is_holding=False)
    async with running(background=background) as world:
        peer = await world.connect()
        assert await served_by(peer)
        background.is_holding = True
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        await asyncio.sleep(0.02)
        stopping = asyncio.ensure_future(world.broker.stop())
        await asyncio.sleep(0.02)
        background.release_all()
        assert (await peer.receive()).topics[0].error_code == 0
        await asyncio.wait_for(stopping, 5)


async def test_answers_of_one_turn_are_bounded_by_their_size():
    """A client that asks for much and reads nothing: what is queued for it does not grow with what it asked."""
    async with running() as world:
        peer, other = await world.connect(), await world.connect()
        names = [f"topic-{number}-" + "x" * 200 for number in range(300)]
        topics = [CreateTopicsRequest.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
        await other.request(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        peer.reader._transport.pause_reading()
        for _ in range(400):
            peer.send(MetadataRequest(topics=None), 9)
        await asyncio.sleep(0.3)
        (slow, _other) = world.broker.acceptors[0].connections
        assert sum(len(part) for part in slow._outbox._parts) < 2 << 20
        peer.reader._transport.resume_reading()
        for _ in range(400):
            assert len((await peer.receive()).topics) == 300


async def test_answers_behind_a_pending_one_are_bounded_by_their_size():
    background = HeldBackground(is_holding=False)
    async with running(background=background) as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(other, "t", flush_messages="1")
        names = [f"topic-{number}-" + "x" * 200 for number in range(300)]
        topics = [CreateTopicsRequest.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
        await other.request(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
        background.is_holding = True
        peer.send(produce("t", batch(b"a"), acks=-1), 9)
        for _ in range(200):
            peer.send(MetadataRequest(topics=None), 9)
        await asyncio.sleep(0.3)
        slow = next(iter(world.broker.acceptors[0].connections))
        assert sum(len(part) for slot in slow._slots._slots for part in slot.parts or []) < 2 << 20
        background.release_all()
        assert produced(await peer.receive()).base_offset == 0
        for _ in range(200):
            assert len((await peer.receive()).topics) == 301


@pytest.mark.parametrize(("kind", "few"), [("answered at once", 150), ("answered by a task", 25)])
async def test_pipelines_do_not_hold_up_who_has_one_request(kind, few, monkeypatch):
    """However many of them there are, few of their requests are served between the other's and its answer."""
    served = []
    dispatch = Dispatcher.dispatch
    monkeypatch.setattr(Dispatcher, "dispatch", lambda *given: served.append(1) or dispatch(*given))
    broker = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
    broker.configuration_keys = ["max.connections"]
    asked, version = MetadataRequest(topics=None), 9
    if kind == "answered by a task":
        asked, version = DescribeConfigsRequest(resources=[broker]), 1
    async with running() as world:
        crowd = [await world.connect() for _ in range(30)]
        neighbour = await world.connect()
        for peer in crowd:
            peer.reader._transport.pause_reading()
            peer.writer.write(b"".join(peer.frame(asked, version) for _ in range(200)))
        between = []
        for _ in range(20):
            before = len(served)
            assert await served_by(neighbour)
            between.append(len(served) - before)
        assert len(served) < 30 * 200  # They are still at it.
        assert statistics.median(between) < few, between
        for peer in crowd:
            peer.reader._transport.resume_reading()
            for _ in range(200):
                await peer.receive()


# ---- memory for requests


async def test_memory_given_back_wakes_all_who_now_fit():
    """The first who waits asks for more than there is; those behind it must not wait for it."""
    async with running({"queued.max.request.bytes": str(256 * 1024), "message.max.bytes": "1000000"}) as world:
        one, two, large, small = [await world.connect() for _ in range(4)]
        frames = [peer.frame(MetadataRequest(topics=[]), 9) for peer in (one, two)]
        one.writer.write(frames[0][:10])
        two.writer.write(frames[1][:10])
        large.writer.write(large.frame(produce("t", batch(b"x" * 500_000)), 9)[:200_000])
        await asyncio.sleep(0.05)
        # 64, 64 and 128 KB are lent, and the third borrower waits for 256 instead.
        assert world.broker.statistics()["request_buffer_bytes"] == 256 * 1024
        small.send(produce("t", batch(b"x" * 50_000)), 9)
        await asyncio.sleep(0.02)
        assert not small.reader._buffer
        one.writer.write(frames[0][10:])
        assert (await one.receive()).error_code == 0
        assert produced(await small.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_request_larger_than_all_memory_for_requests_is_served_alone():
    async with running({"queued.max.request.bytes": str(128 * 1024), "message.max.bytes": "1000000"}) as world:
        large = await world.connect()
        await create_topic(large, "t")
        assert produced(await large.request(produce("t", batch(b"x" * 900_000)), 9)).base_offset == 0


async def test_a_client_that_leaves_while_it_waits_for_memory_passes_its_turn_on():
    async with running({"queued.max.request.bytes": str(64 * 1024), "connections.max.idle.ms": "-1"}) as world:
        holder, gone, waiting = [await world.connect() for _ in range(3)]
        held = holder.frame(MetadataRequest(topics=[]), 9)
        holder.writer.write(held[:10])
        await asyncio.sleep(0.02)
        gone.send(produce("t", batch(b"x" * 50_000)), 9)
        await asyncio.sleep(0.02)
        waiting.send(produce("t", batch(b"x" * 50_000)), 9)
        await asyncio.sleep(0.02)
        assert not waiting.reader._buffer
        list(world.broker.acceptors[0].connections)[1].close()
        holder.writer.write(held[10:])
        assert (await holder.receive()).error_code == 0
        assert produced(await waiting.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_reader_that_stopped_reading_is_idle_too():
    async with running({"connections.max.idle.ms": "500", "message.max.bytes": "2000000"}) as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(other, "t")
        await other.request(produce("t", batch(b"x" * 1_500_000)), 9)
        peer.reader._transport.pause_reading()
        for _ in range(20):
            peer.send(fetch("t", 0, partition_max_bytes=1 << 21), 11)
        for _ in range(30):
            await asyncio.sleep(0.05)
            assert await served_by(other)
        assert world.broker.statistics()["connections"] == 1
        assert world.broker.statistics()["request_buffer_bytes"] == 0


async def test_a_reader_that_reads_slowly_is_not_idle():
    async with running({"connections.max.idle.ms": "500", "message.max.bytes": "8000000"}) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        for _ in range(8):
            await peer.request(produce("t", batch(b"x" * 4_000_000)), 9)
        transport = peer.reader._transport
        peer.send(fetch("t", 0, partition_max_bytes=1 << 25), 11)
        for _ in range(25):
            transport.pause_reading()
            await asyncio.sleep(0.05)
            transport.resume_reading()
            await asyncio.sleep(0.001)
        assert len(fetched(await peer.receive()).records) > 8_000_000


# ---- what a request may ask for


async def test_a_partition_named_many_times_in_a_fetch_is_read_once():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await peer.request(produce("t", batch(b"a")), 9)
        asked = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchRequest.FetchTopic(topic="t", partitions=[asked] * 1000)
        response = await peer.request(FetchRequest(topics=[topic], max_wait_ms=0, min_bytes=1), 11)
        assert [len(each.partitions) for each in response.responses] == [1]


async def test_a_request_with_more_items_than_allowed_is_refused_before_it_costs_memory(caplog):
    async with running({"max.request.items": "1000"}) as world:
        peer, other = await world.connect(), await world.connect()
        topics = [MetadataRequest.MetadataRequestTopic(name="t") for _ in range(1000)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        assert len((await other.request(request, 9)).topics) == 1
        topics.append(MetadataRequest.MetadataRequestTopic(name="t"))
        peer.send(request, 9)
        assert await peer.is_closed()
        assert await served_by(other)
    # On a busy machine the loop may have something to say, too.
    (said,) = [record for record in caplog.records if record.name == "tailrace.connections"]
    assert said.levelno == logging.WARNING
    assert "max.request.items" in str(said.facts)


async def test_a_broker_is_not_named_by_a_number_of_five_thousand_digits():
    name = "9" * 5000
    describe = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name=name)
    config = IncrementalAlterConfigsRequest.AlterableConfig(name="max.connections", value="7")
    alter = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name=name, configs=[config])
    async with running() as world:
        peer = await world.connect()
        described = await peer.request(DescribeConfigsRequest(resources=[describe]), 4)
        assert described.results[0].error_code == ErrorCode.INVALID_REQUEST
        altered = await peer.request(IncrementalAlterConfigsRequest(resources=[alter]), 1)
        assert altered.responses[0].error_code == ErrorCode.INVALID_REQUEST


async def test_records_for_a_topic_id_never_go_to_another_topic_of_its_name():
    async with running() as world:
        peer = await world.connect()
        old = await create_topic(peer, "t")
        assert produced(await peer.request(produce("", batch(b"a"), topic_id=old), 13)).base_offset == 0
        await delete_topic(peer, "t")
        await create_topic(peer, "t")
        for _ in range(200):
            answer = produced(await peer.request(produce("", batch(b"stale"), topic_id=old), 13))
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert world.broker.replicas.find("t", 0).high_watermark == 0


async def test_fetch_sessions_are_bounded_by_what_they_remember():
    settings = {"max.incremental.fetch.session.partitions": "100"}
    partition = FetchRequest.FetchPartition
    async with running(settings) as world:
        peer = await world.connect()
        await create_topic(peer, "t")

        async def ask(partitions: range, **fields: int):
            topic = FetchRequest.FetchTopic(
                topic="t", partitions=[partition(partition=index, partition_max_bytes=1) for index in partitions]
            )
            return await peer.request(FetchRequest(topics=[topic], max_wait_ms=0, **fields), 11)

        assert (await ask(range(101), session_epoch=0)).session_id == 0
        session_id = (await ask(range(60), session_epoch=0)).session_id
        assert session_id
        assert (await ask(range(60), session_epoch=0)).session_id == 0
        grown = await ask(range(60, 101), session_id=session_id, session_epoch=1)
        assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(world.broker.services.sessions) == 0
        assert (await ask(range(100), session_epoch=0)).session_id


async def test_producers_go_on_after_the_disk_was_behind(monkeypatch):
    """What is written during a sync is synced after it, even if by then nothing more may be written."""
    background = HeldBackground(is_holding=False)
    async with running({"log.unsynced.max.bytes": str(1 << 20)}, background=background) as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        await peer.request(produce("t", batch(b"a")), 9)
        background.is_holding = True
        flusher = world.broker.replicas.flusher
        flusher.request(world.broker.replicas.find("t", 0))
        await asyncio.sleep(0.01)
        for _ in range(40):
            peer.send(produce("t", batch(b"x" * 100_000)), 9)
        await asyncio.sleep(0.05)
        assert flusher.is_saturated
        background.release_all()
        for number in range(40):
            assert produced(await peer.receive()).base_offset == number + 1


@pytest.mark.parametrize("timestamp", [0, -3], ids=["by time", "the largest"])
async def test_a_broken_disk_is_told_of_by_the_partition_that_is_on_it(timestamp):
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[asked]) for name in ("broken", "fine")]
    async with running() as world:
        peer = await world.connect()
        for name in ("broken", "fine"):
            await create_topic(peer, name)
            await peer.request(produce(name, batch(b"a")), 9)
        world.disk.fail("read", "*broken-0*")
        response = await peer.request(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        broken, fine = [topic.partitions[0] for topic in response.topics]
        assert (broken.error_code, fine.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE)
        assert fine.offset == 0


async def test_a_request_for_too_many_things_is_told_which_setting_it_met():
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t")
    async with running({"max.resources.per.describe": "3"}) as world:
        peer = await world.connect()
        refused = (await peer.request(DescribeConfigsRequest(resources=[resource] * 4), 4)).results
    assert all("max.resources.per.describe is 3" in each.error_message for each in refused)
    assert len(refused) == 4


async def test_a_parked_fetch_of_many_partitions_does_not_read_them_all_with_every_append(monkeypatch):
    reads = []
    read = FetchAttempt.read
    monkeypatch.setattr(FetchAttempt, "read", lambda self: reads.append(1) or read(self))
    async with running() as world:
        parked, producer = await world.connect(), await world.connect()
        await create_topic(producer, "t", partitions=500)
        asked = [FetchRequest.FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(500)]
        topic = FetchRequest.FetchTopic(topic="t", partitions=asked)
        parked.send(FetchRequest(topics=[topic], max_wait_ms=1500, min_bytes=1 << 30), 11)
        await asyncio.sleep(0.05)
        for _ in range(200):
            await producer.request(produce("t", batch(b"a")), 9)
        assert len(reads) < 40
        response = await parked.receive()
        assert len(response.responses[0].partitions[0].records) == 200 * len(batch(b"a"))


async def test_many_new_partitions_are_served_at_once_and_get_their_logs_in_turns():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=300)
        replicas = world.broker.replicas
        assert len(replicas.partitions) < 300
        for partition in (0, 150, 299):
            assert produced(await peer.request(produce("t", batch(b"a"), partition=partition), 9)).base_offset == 0
        async with asyncio.timeout(5):
            while len(replicas.partitions) < 300:
                await asyncio.sleep(0.01)
        assert replicas.find("t", 150).high_watermark == 1


@pytest.mark.parametrize("asks", ["offsets", "records"])
async def test_who_asks_for_many_new_partitions_waits_for_their_logs_and_nobody_else_does(asks):
    count = 600
    async with running() as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(peer, "t", partitions=count)
        partitions = world.broker.replicas.partitions
        if asks == "offsets":
            asked = [
                ListOffsetsRequest.ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(count)
            ]
            peer.send(ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=asked)]), 7)
        else:
            request = fetch("t", 0)
            (part,) = request.topics[0].partitions
            request.topics[0].partitions = [
                FetchRequest.FetchPartition(
                    partition=each, fetch_offset=0, partition_max_bytes=part.partition_max_bytes
                )
                for each in range(count)
            ]
            peer.send(request, 12)
        for _ in range(3):
            assert await served_by(other)
            assert len(partitions) < count, "the logs were made in one go"
        answer = await peer.receive()
        (topic,) = answer.topics if asks == "offsets" else answer.responses
        assert [each.error_code for each in topic.partitions] == [0] * count
        assert len(partitions) == count


async def test_a_topic_deleted_before_it_has_all_its_logs_leaves_none():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", partitions=300)
        await delete_topic(peer, "t")
        await create_topic(peer, "t", partitions=1)
        async with asyncio.timeout(5):
            while world.broker.replicas.owed:
                await asyncio.sleep(0.01)
        assert set(world.broker.replicas.partitions) == {("t", 0)}

"""Connections: order, pipelining, back-pressure, bounds, and peers that break the protocol."""

import asyncio
import logging
import socket
import time

import pytest

from tailrace.broker.serving import turns
from tailrace.broker.serving.connection import KafkaConnection
from tailrace.broker.serving.express import Express
from tailrace.model.ids import NodeId
from tailrace.real.network import SocketStream
from tailrace.wire.apis.data import ApiVersionsRequest, MetadataRequest
from tests.unit.broker.world import batch, create_topic, fetch, fetched, produce, produced, running
from tests.unit.replica.replicas import led_by

BOTH = (NodeId(1), NodeId(2))


async def test_requests_are_answered_in_order():
    async with running() as world:
        peer = await world.connect()
        for _ in range(100):
            peer.send(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3)
            peer.send(MetadataRequest(topics=[]), 9)
        for _ in range(200):
            assert (await peer.receive()).error_code == 0


async def test_a_frame_may_arrive_byte_by_byte():
    async with running() as world:
        peer = await world.connect()
        for byte in peer.frame(MetadataRequest(topics=[]), 9):
            peer.writer.write(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.receive()).cluster_id == world.broker.image.cluster_id


async def test_an_idle_connection_holds_no_buffer_and_half_a_request_holds_one():
    async with running() as world:
        peer = await world.connect()
        frame = peer.frame(MetadataRequest(topics=[]), 9)
        peer.writer.write(frame[:10])
        await asyncio.sleep(0.02)
        assert world.broker.statistics()["request_buffer_bytes"] == 64 * 1024
        peer.writer.write(frame[10:])
        await peer.receive()
        assert world.broker.statistics()["request_buffer_bytes"] == 0


async def test_a_large_request_grows_the_buffer_only_as_it_arrives():
    async with running({"message.max.bytes": "4000000"}) as world:
        peer = await world.connect()
        await create_topic(peer, "large")
        frame = peer.frame(produce("large", batch(b"x" * 3_000_000)), 9)
        peer.writer.write(frame[:70_000])
        await asyncio.sleep(0.05)
        assert world.broker.statistics()["request_buffer_bytes"] == 128 * 1024
        peer.writer.write(frame[70_000:])
        assert produced(await peer.receive()).base_offset == 0
        assert world.broker.statistics()["request_buffer_bytes"] == 0


async def test_large_requests_of_many_are_not_all_taken_in_one_round_even_if_each_arrives_at_once(monkeypatch):
    """Whoever has sent one is expected to send another. What is small is not held back by them."""
    monkeypatch.setattr(turns, "_PIECES_MS", 0.0)  # One piece in a round.
    taken: dict[int, list[int]] = {}
    take, loop, rounds = KafkaConnection._take_frames, asyncio.get_running_loop(), 0

    def noted(connection: KafkaConnection, now_ms: float) -> None:
        start = connection.inbox.start
        take(connection, now_ms)
        taken.setdefault(rounds, []).append(connection.inbox.start - start)

    def count_rounds() -> None:
        nonlocal rounds
        rounds += 1
        loop.call_soon(count_rounds)

    async with running() as world:
        crowd, small = [await world.connect() for _ in range(4)], await world.connect()
        await create_topic(small, "t")
        frame = crowd[0].frame(produce("t", batch(b"x" * 100_000)), 9)
        for _ in range(2):
            for peer in crowd:
                peer.writer.write(frame)
                await peer.writer.drain()
                await asyncio.sleep(0.02)
        monkeypatch.setattr(KafkaConnection, "_take_frames", noted)
        loop.call_soon(count_rounds)
        for peer in crowd:
            peer.writer.write(frame)
            assert peer.writer.transport.get_write_buffer_size() == 0
        small.send(MetadataRequest(topics=[]), 9)
        time.sleep(0.05)  # noqa: ASYNC251 - all of it is here when the loop looks next
        await small.receive()
        async with asyncio.timeout(5):
            while sum(map(sum, taken.values())) < 4 * len(frame):
                await asyncio.sleep(0)
    assert [sizes.count(len(frame)) for sizes in taken.values() if len(frame) in sizes] == [1, 1, 1, 1]
    first, *_ = taken.values()
    assert min(first) < 1000, "the small one is taken in the first round"


async def test_answers_that_were_waited_for_are_sent_together_as_soon_as_the_last_one_is_known(monkeypatch):
    sent: list[int] = []
    send = SocketStream.send

    def noted(stream, parts):
        sent.append(len(parts))
        return send(stream, parts)

    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t", min_insync_replicas="2")
        partition = world.broker.replicas.find("t", 0)
        partition.follow_image(led_by(BOTH[0], epoch=1, replicas=BOTH, isr=BOTH))
        monkeypatch.setattr(SocketStream, "send", noted)
        # One by one: an express run would have one answer for all.
        monkeypatch.setattr(Express, "take", lambda self, buffer, view, position, end: position)
        for _ in range(3):
            peer.send(produce("t", batch(b"x"), acks=-1), 9)
        async with asyncio.timeout(5):
            while partition.log.log_end_offset < 3:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert sent == []
        partition.note_fetch(BOTH[1], 5, offset=3, log_start_offset=0)
        assert sent == [3]
        assert [produced(await peer.receive()).base_offset for _ in range(3)] == [0, 1, 2]


async def test_a_parked_fetch_holds_the_later_requests_of_its_connection_only():
    async with running() as world:
        waiting, other = await world.connect(), await world.connect()
        await create_topic(other, "t")
        waiting.send(fetch("t", 0, max_wait_ms=60_000), 11)
        waiting.send(MetadataRequest(topics=[]), 9)
        await asyncio.sleep(0.05)
        assert not waiting.reader._buffer  # nothing has been answered
        assert produced(await other.request(produce("t", batch(b"a")), 9)).base_offset == 0
        assert fetched(await waiting.receive()).high_watermark == 1
        assert (await waiting.receive()).error_code == 0


async def test_a_parked_fetch_ends_when_its_time_is_over():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        started = asyncio.get_running_loop().time()
        assert not fetched(await peer.request(fetch("t", 0, max_wait_ms=100), 11)).records
        assert asyncio.get_running_loop().time() - started >= 0.09


async def test_a_client_that_leaves_takes_its_parked_fetch_with_it():
    async with running() as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(other, "t")
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        await asyncio.sleep(0.02)
        partition = world.broker.replicas.find("t", 0)
        assert partition.readers
        await peer.close()
        await asyncio.sleep(0.02)
        assert not partition.readers
        assert world.broker.statistics()["connections"] == 1


async def test_a_slow_reader_is_held_back_and_gets_everything():
    async with running({"message.max.bytes": "2000000"}) as world:
        peer, other = await world.connect(), await world.connect()
        await create_topic(other, "t")
        await other.request(produce("t", batch(b"x" * 1_500_000)), 9)
        peer.reader._transport.pause_reading()
        for _ in range(20):
            peer.send(fetch("t", 0, partition_max_bytes=1 << 21), 11)
        await asyncio.sleep(0.05)
        # It costs the others nothing, and its later requests wait in its own buffer.
        assert (await other.request(MetadataRequest(topics=[]), 9)).error_code == 0
        assert world.broker.statistics()["request_buffer_bytes"] <= 64 * 1024
        peer.reader._transport.resume_reading()
        for _ in range(20):
            assert len(fetched(await peer.receive()).records) > 1_500_000


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32), "TLS handshake"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP request"),
        (b"\xff\xff\xff\xff" + bytes(20), "a request of -1 bytes"),
        (b"\x00\x00\x00\x03abc", "a request of 3 bytes"),
        (b"\x7f\xff\xff\xff" + bytes(20), "more than socket.request.max.bytes"),
        (b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff", "API key 999"),
        (b"\x00\x00\x00\x0a\x00\x04\x00\x00\x00\x00\x00\x01\xff\xff", "API key 4,"),
        (b"\x00\x00\x00\x0a\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff", "Metadata in version 99"),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff", "Produce in version 2"),
        (b"\x00\x00\x00\x0c\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff\x7f\xff", "MetadataRequest"),
    ],
)
async def test_what_breaks_the_protocol_is_named_and_its_connection_closed(greeting, said, caplog):
    async with running() as world:
        other, peer = await world.connect(), await world.connect()
        peer.writer.write(greeting)
        assert await peer.is_closed()
        records = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(records) == 1
        assert said in str(records[0].facts)
        assert records[0].facts["peer"].startswith("127.0.0.1:")
        assert (await other.request(MetadataRequest(topics=[]), 9)).error_code == 0


async def test_earlier_answers_are_sent_before_a_broken_connection_closes():
    async with running() as world:
        peer = await world.connect()
        peer.send(MetadataRequest(topics=[]), 9)
        peer.writer.write(b"\xff\xff\xff\xff")
        assert (await peer.receive()).error_code == 0
        assert await peer.is_closed()


async def test_a_storm_of_garbage_fills_no_log(caplog):
    async with running() as world:
        for _ in range(20):
            peer = await world.connect()
            peer.writer.write(b"\xff\xff\xff\xff")
            assert await peer.is_closed()
            await peer.close()
        assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
        assert world.broker.statistics()["refused_connections"] == 20


@pytest.mark.parametrize("setting", ["max.connections", "max.connections.per.ip"])
async def test_connections_are_bounded(setting):
    async with running({setting: "2"}) as world:
        first, second = await world.connect(), await world.connect()
        third = await world.connect()
        assert await third.is_closed()
        await first.close()
        await asyncio.sleep(0.02)
        fourth = await world.connect()
        assert (await fourth.request(MetadataRequest(topics=[]), 9)).error_code == 0
        for peer in (second, third, fourth):
            await peer.close()


async def test_idle_connections_are_closed_and_parked_ones_are_not():
    async with running({"connections.max.idle.ms": "100"}) as world:
        idle, parked = await world.connect(), await world.connect()
        await create_topic(parked, "t")
        parked.send(fetch("t", 0, max_wait_ms=400), 11)
        assert await idle.is_closed()
        assert not fetched(await parked.receive()).records


async def test_memory_for_requests_is_bounded_and_waited_for():
    """Two buffers at most: the third sender of a large request waits until one of the others is done; small ones do
    not."""
    async with running({"queued.max.request.bytes": str(128 * 1024)}) as world:
        first, second, third, small = [await world.connect() for _ in range(4)]
        await create_topic(small, "t")
        frames = [peer.frame(MetadataRequest(topics=[]), 9) for peer in (first, second)]
        first.writer.write(frames[0][:10])
        second.writer.write(frames[1][:10])
        await asyncio.sleep(0.02)
        third.send(produce("t", batch(b"x" * 50_000)), 9)
        await asyncio.sleep(0.02)
        assert not third.reader._buffer
        assert world.broker.statistics()["request_buffer_bytes"] == (64 + 64 + 32) * 1024
        for number in range(20):
            assert produced(await small.request(produce("t", batch(b"x" * 20_000)), 9)).base_offset == number
        first.writer.write(frames[0][10:])
        assert (await first.receive()).error_code == 0
        assert produced(await third.receive()).base_offset == 20
        second.writer.write(frames[1][10:])
        assert (await second.receive()).error_code == 0
        assert world.broker.statistics()["request_buffer_bytes"] == 0


async def test_a_thousand_idle_connections_cost_the_others_nothing():
    async with running() as world:
        idle = [socket.create_connection(("127.0.0.1", world.broker.port)) for _ in range(400)]
        await asyncio.sleep(0.1)
        peer = await world.connect()
        assert (await peer.request(MetadataRequest(topics=[]), 9)).error_code == 0
        assert world.broker.statistics()["connections"] == 401
        assert world.broker.statistics()["request_buffer_bytes"] == 0
        for connection in idle:
            connection.close()


async def test_a_clean_stop_answers_what_is_under_way():
    async with running() as world:
        peer = await world.connect()
        await create_topic(peer, "t")
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        await asyncio.sleep(0.02)
        stopping = asyncio.ensure_future(world.broker.stop())
        assert fetched(await peer.receive()).error_code == 0
        assert await peer.is_closed()
        await asyncio.wait_for(stopping, 5)

"""HTTP as clients of all kinds speak it, the hostile ones too: bounded, and told what is wrong."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from tailrace.broker.metrics.elections import Elections
from tailrace.broker.metrics.families import partitions, pieces
from tailrace.broker.metrics.watched import Watched
from tailrace.model.metrics.text import Text
from tailrace.replica.partition import Partition
from tests.unit.broker.metrics.web import SETTINGS, get, port_of, scrape
from tests.unit.broker.world import create_topic, running


async def say(broker: Any, *words: bytes, pause_s: float = 0.0) -> bytes:
    """Everything that the other side says until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
    try:
        for word in words:
            writer.write(word)
            await writer.drain()
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_health():
    async with running(SETTINGS) as world:
        for path in ("live", "ready", "cluster"):
            status, text = await get(world.broker, f"/health/{path}")
            assert (status, json.loads(text)["status"], json.loads(text)["reason"]) == (200, "pass", "")
        assert (await get(world.broker, "/nothing"))[0] == 404


async def test_a_node_that_stops_is_not_ready():
    async with running(SETTINGS) as world:
        world.broker.is_running = False
        status, text = await get(world.broker, "/health/ready")
        assert (status, json.loads(text)["status"]) == (503, "fail")
        assert "stopping" in json.loads(text)["reason"]
        assert (await get(world.broker, "/health/live"))[0] == 200
        assert (await get(world.broker, "/metrics"))[0] == 503
        world.broker.is_running = True


async def test_a_connection_is_used_again_and_requests_may_come_together():
    async with running(SETTINGS) as world:
        asked = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answers = await say(world.broker, asked + asked + last)
        assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3


async def test_old_clients_and_heads():
    async with running(SETTINGS) as world:
        answer = await say(world.broker, b"GET /health/live HTTP/1.0\r\n\r\n")
        assert b"Transfer-Encoding" not in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == "pass"
        answer = await say(world.broker, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\n")


async def test_a_head_that_comes_byte_by_byte():
    async with running(SETTINGS) as world:
        asked = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = await say(world.broker, *[asked[number : number + 1] for number in range(len(asked))])
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01", 400),  # A TLS hello has no end of a head to wait for.
        (b"\x00\x00\x00\x10\x00\x12\x00\x00junkjunk\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 505),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET http://other/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000, 431),
    ],
)
async def test_what_is_not_understood_is_told_and_ends_the_connection(asked: bytes, status: int):
    async with running(SETTINGS) as world:
        answer = await say(world.broker, asked)
        # A client that still sends may meet the close before the words.
        assert answer.startswith(b"HTTP/1.1 %d " % status) or (status == 431 and not answer)
        assert (await get(world.broker, "/health/live"))[0] == 200


async def test_who_takes_too_long_or_says_nothing_is_closed():
    settings = {"metrics.request.max.ms": "300", "metrics.connections.max.idle.ms": "1000"}
    async with running({**SETTINGS, **settings}) as world:
        assert await say(world.broker, b"GET /met") == b""
        assert await say(world.broker) == b""
        trickle = [b"X: y\r\n"] * 40
        assert await say(world.broker, b"GET / HTTP/1.1\r\n", *trickle, pause_s=0.1) == b""


async def test_a_client_that_asks_and_does_not_read_is_closed():
    settings = {"metrics.request.max.ms": "500", "socket.send.buffer.bytes": "16384"}
    async with running({**SETTINGS, **settings}) as world:
        peer = await world.connect()
        for number in range(2):
            await create_topic(peer, f"{number}-".ljust(249, "x"), partitions=60)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
            client.connect(("127.0.0.1", port_of(world.broker)))
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            (connection,) = await _wait_connections(world.broker, 1)
            async with asyncio.timeout(30):
                while not connection.is_closed:
                    await asyncio.sleep(0.05)
        assert len((await scrape(world.broker)).text) > 400_000


@pytest.mark.parametrize("said", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: "])
async def test_connections_are_bounded_and_who_only_holds_them_gives_way(said: bytes):
    async with running({**SETTINGS, "metrics.max.connections": "5"}) as world:
        held = []
        for _ in range(5):
            held.append(await asyncio.open_connection("127.0.0.1", port_of(world.broker)))
            held[-1][1].write(said)
        await _wait_connections(world.broker, 5)
        for number in range(3):
            assert (await get(world.broker, "/health/live"))[0] == 200
            async with asyncio.timeout(30):
                assert await held[number][0].read() == b"", "the oldest"
            held.append(await asyncio.open_connection("127.0.0.1", port_of(world.broker)))
            await _wait_connections(world.broker, 5)
        for _, writer in held:
            writer.close()
        await _wait_connections(world.broker, 0)


async def test_who_is_being_answered_does_not_give_way():
    settings = {"metrics.max.connections": "3", "socket.send.buffer.bytes": "16384"}
    async with running({**SETTINGS, **settings}) as world:
        peer = await world.connect()
        await create_topic(peer, "x" * 249, partitions=150)
        with ExitStack() as stack:
            for _ in range(3):
                client = stack.enter_context(socket.socket())
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
                client.connect(("127.0.0.1", port_of(world.broker)))
                client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(30):
                while sum(each.is_asked for each in world.broker.metrics._acceptor.connections) < 3:
                    await asyncio.sleep(0.01)
            assert await say(world.broker, b"GET / HTTP/1.1\r\n\r\n") == b"", "it is turned away"
        await _wait_connections(world.broker, 0)
        assert (await get(world.broker, "/health/live"))[0] == 200


async def _wait_connections(broker: Any, count: int) -> list[Any]:
    async with asyncio.timeout(30):
        while len(broker.metrics._acceptor.connections) != count:
            await asyncio.sleep(0.01)
    return list(broker.metrics._acceptor.connections)


async def test_what_others_may_not_see(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tailrace.broker.metrics.pages.host_of", lambda _peer: "192.0.2.7")
    async with running(SETTINGS) as world:
        status, text = await get(world.broker, "/metrics")
        assert status == 403
        assert "HTTPS" in text or "this machine" in text
        assert (await get(world.broker, "/health/ready"))[0] == 200


async def test_caps_are_told():
    async with running({**SETTINGS, "metrics.partitions.max": "3", "metrics.topics.max": "1"}) as world:
        peer = await world.connect()
        await create_topic(peer, "a", partitions=5)
        await create_topic(peer, "b", partitions=1)
        found = await scrape(world.broker)
        assert found.value("tailrace_metrics_partitions_left_out") == 3
        assert found.value("tailrace_metrics_topics_left_out") == 1
        assert found.text.count("\nkafka_log_log_size{") == 3
        assert 'topic="b"' not in found.text
        assert found.value("kafka_server_replicamanager_partitioncount") == 6


async def test_the_other_spelling():
    async with running({**SETTINGS, "metrics.kafka.names": "plain"}) as world:
        found = await scrape(world.broker)
        assert "kafka_server_brokertopicmetrics_messagesinpersec_count" in found.names
        assert "kafka_server_brokertopicmetrics_messagesin_total" not in found.names


async def test_a_page_is_made_in_small_pieces():
    """None of them tells of more than a few partitions, or looks at more than is said."""
    async with running(SETTINGS) as world:
        peer = await world.connect()
        await create_topic(peer, "many", partitions=150)
        broker = world.broker
        watched = Watched(broker, broker.services, broker.roles, broker.metrics.meters, Elections(), 0)
        looked: list[int] = []
        is_leader = Partition.is_leader

        def note(partition: Partition) -> bool:
            looked.append(partition.topic_partition.partition)
            return is_leader.fget(partition)  # type: ignore[attr-defined,no-any-return]

        most = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Partition, "is_leader", property(note))
            patch.setattr(partitions, "_CHOSEN_AT_ONCE", 64)
            for piece in pieces(watched, Text()):
                assert piece.count("\n") <= 130, piece[:500]
                most = max(most, len(looked))
                looked.clear()
        assert 0 < most <= 64

"""Many connections, most of them useless: idle, stuck in the middle of a request, or never reading their answers.

None of them may cost the others anything: another client is served as before, and memory stays bounded.
"""

import os
import struct
from contextlib import ExitStack

import pytest

from tailrace.testing import Broker

from .raw import FETCH, RawClient, batch, request, string

IDLE_CONNECTIONS = 1000
STUCK_SENDERS = 50
SLOW_READERS = 20
STORED_BYTES = 32 << 20
# 1,000 connections without unread bytes hold no buffers; each of the others one of 64 KB and what the kernel takes.
MEMORY_MAX_BYTES = 48 << 20


@pytest.mark.usefixtures("many_files")
def test_idle_stuck_and_slow_clients_cost_the_others_nothing(fresh_tailrace_broker: Broker):
    broker = fresh_tailrace_broker
    with ExitStack() as crowd:
        client = crowd.enter_context(RawClient(broker.bootstrap))
        _fill(client)
        before = _memory_bytes(broker)
        everything = crowd.enter_context(RawClient(broker.bootstrap))
        for _ in range(IDLE_CONNECTIONS):
            assert crowd.enter_context(RawClient(broker.bootstrap)).is_served()
        for _ in range(STUCK_SENDERS):
            crowd.enter_context(RawClient(broker.bootstrap)).send(struct.pack(">i", 50 << 20) + bytes(30_000))
        for _ in range(SLOW_READERS):
            _ask_for_everything(crowd.enter_context(RawClient(broker.bootstrap)))

        for number in range(500):
            assert client.produce("small", batch(b"value"))[:2] == (0, number)
        _ask_for_everything(everything)
        assert len(everything.receive()) > STORED_BYTES
        assert _memory_bytes(broker) - before < MEMORY_MAX_BYTES


def test_connections_are_counted():
    with Broker({"max.connections.per.ip": 3}) as broker, ExitStack() as crowd:
        clients = [crowd.enter_context(RawClient(broker.bootstrap)) for _ in range(3)]
        assert all(client.is_served() for client in clients)
        with RawClient(broker.bootstrap) as one_too_many:
            assert one_too_many.is_closed_by_broker()
        clients[0].socket.close()
        assert clients[1].is_served()
        with RawClient(broker.bootstrap) as next_one:
            assert next_one.is_served()


def test_idle_connections_are_closed_in_time():
    with Broker({"connections.max.idle.ms": 1000}) as broker, RawClient(broker.bootstrap) as client:
        assert client.is_served()
        assert client.is_closed_by_broker()


def _fill(client: RawClient) -> None:
    assert client.create_topic("large") == 0
    assert client.create_topic("small") == 0
    value = os.urandom(1 << 19)
    for _ in range(STORED_BYTES // len(value)):
        assert client.produce("large", batch(value)).error == 0


def _ask_for_everything(client: RawClient) -> None:
    body = struct.pack(">iiiibi", -1, 0, 0, 1 << 30, 0, 1) + string("large") + struct.pack(">iiqi", 1, 0, 0, 1 << 30)
    client.send(request(FETCH, 4, body))


def _memory_bytes(broker: Broker) -> int:
    """Its own, without what it shares with the page cache."""
    with open(f"/proc/{broker.process_id}/status") as status:
        own = next(line for line in status if line.startswith("RssAnon"))
    return int(own.split()[1]) * 1024

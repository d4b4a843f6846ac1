"""Readers: events and sockets, where they go on, what a group has committed, and those who are slow."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tailrace.testing import Broker

from .conftest import Gateway, running_gateway

DEADLINE_S = 60.0


def fill(gateway: Gateway, topic: str, numbers: range) -> None:
    status, told = gateway.ask("POST", f"/topics/{topic}", [{"key": str(n), "value": n} for n in numbers])
    assert status == 200, told


class Events:
    """A reader of server-sent events."""

    def __init__(self, gateway: Gateway, path: str, *, last_id: str = "") -> None:
        place = urlsplit(gateway.url)
        self.socket = socket.create_connection((place.hostname or "", place.port or 0), DEADLINE_S)
        resume = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n{resume}\r\n".encode())
        self.file = self.socket.makefile("rb")
        self.status = int(self.file.readline().split()[1])
        self.last_id = last_id

    def read(self, count: int) -> list[dict]:
        found: list[dict] = []
        while len(found) < count:
            line = self.file.readline()
            assert line, "the stream has ended"
            name, _, text = line.decode().strip().partition(": ")
            if name == "id":
                self.last_id = text
            elif name == "data":
                found.append(json.loads(text))
        return found

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@contextmanager
def events(gateway: Gateway, path: str, **options: str) -> Iterator[Events]:
    reader = Events(gateway, path, **options)
    try:
        yield reader
    finally:
        reader.close()


@contextmanager
def opened(gateway: Gateway, path: str, **options) -> Iterator[ClientConnection]:
    with connect(gateway.url.replace("http", "ws", 1) + path, open_timeout=DEADLINE_S, **options) as found:
        yield found


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.1)


def read_to_the_end(found: ClientConnection) -> None:
    while True:
        found.recv(DEADLINE_S)


def committed(gateway: Gateway, group: str) -> int:
    status, told = gateway.ask("GET", f"consumer-groups/{group}/lags")
    return sum(each["current_offset"] for each in told["data"]) if status == 200 else -1


def test_a_reader_goes_on_where_its_last_event_was(gateway: Gateway):
    topic = gateway.create("events", 2)
    fill(gateway, topic, range(50))
    path = f"/topics/{topic}/events?from=earliest"
    with events(gateway, path) as reader:
        assert reader.status == 200
        first = [each["value"] for each in reader.read(20)]
    with events(gateway, path, last_id=reader.last_id) as reader:
        rest = [each["value"] for each in reader.read(30)]
        assert sorted(first + rest) == list(range(50))
        fill(gateway, topic, range(50, 51))
        assert reader.read(1)[0]["value"] == 50


def test_a_reader_begins_where_it_says(gateway: Gateway):
    topic = gateway.create("begins", 2)
    results = gateway.ask("POST", f"/topics/{topic}", [{"value": n, "partition": 1} for n in range(10)])[1]["results"]
    assert results[9]["offset"] == 9
    with events(gateway, f"/topics/{topic}/events?partition=1&offset=7") as reader:
        assert [each["offset"] for each in reader.read(3)] == [7, 8, 9]
    with events(gateway, f"/topics/{topic}/events?partition=1&offset=5000") as reader:
        # Beyond the end: on from where the log begins, which the offsets tell.
        assert reader.read(1)[0]["offset"] == 0
    for bad, status in (("partition=9", 404), ("from=x", 400), ("value.format=xml", 400)):
        assert gateway.raw("GET", f"/topics/{topic}/events?{bad}")[0] == status
    assert gateway.raw("GET", "/topics/no-such-topic/events")[0] == 404


@pytest.mark.long
def test_a_group_is_given_everything_and_commits_what_was_sent(gateway: Gateway):
    topic = gateway.create("grouped", 2)
    fill(gateway, topic, range(40))
    path = f"/topics/{topic}/events?group=sse&from=earliest"
    with events(gateway, path) as reader:
        assert sorted(each["value"] for each in reader.read(40)) == list(range(40))
        wait_until(lambda: committed(gateway, "sse") == 40)
    wait_until(lambda: gateway.ask("GET", "consumer-groups/sse")[1]["state"] == "EMPTY")
    fill(gateway, topic, range(40, 60))
    with events(gateway, path) as reader:
        assert sorted(each["value"] for each in reader.read(20)) == list(range(40, 60))


def test_over_a_socket_only_what_was_acknowledged_is_committed(gateway: Gateway):
    topic = gateway.create("socket")
    fill(gateway, topic, range(20))
    path = f"/topics/{topic}/socket?group=ws&from=earliest"
    with opened(gateway, path) as found:
        had = [json.loads(found.recv(DEADLINE_S)) for _ in range(20)]
        assert [each["value"] for each in had] == list(range(20))
        assert had[4]["id"] == "0:5"
        found.send(json.dumps({"ack": {"partition": 0, "offset": 4}}))
        wait_until(lambda: committed(gateway, "ws") == 5)
        found.send(json.dumps({"ack": {"partition": 0, "offset": 7}}))
    wait_until(lambda: committed(gateway, "ws") == 8)
    with opened(gateway, path) as found:
        assert json.loads(found.recv(DEADLINE_S))["offset"] == 8
        found.send("{}")
        with pytest.raises(ConnectionClosed) as closed:
            read_to_the_end(found)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_a_socket_in_a_group_is_sent_no_more_than_it_acknowledges(broker: Broker):
    with running_gateway(broker.bootstrap, "--set", "reader.unacknowledged.max=5") as gateway:
        topic = gateway.create("window")
        for number in range(20):  # Single batches, each of which a fetch may give alone.
            fill(gateway, topic, range(number, number + 1))
        with opened(gateway, f"/topics/{topic}/socket?group=window&from=earliest") as found:
            had = [json.loads(found.recv(DEADLINE_S))["offset"]]
            while had[-1] < 19:
                found.send(json.dumps({"ack": {"partition": 0, "offset": had[-1]}}))
                had.append(json.loads(found.recv(DEADLINE_S))["offset"])
            assert had == list(range(20))


def test_a_socket_alone_and_what_is_refused(gateway: Gateway):
    topic = gateway.create("alone")
    fill(gateway, topic, range(3))
    with opened(gateway, f"/topics/{topic}/socket?from=earliest") as found:
        assert [json.loads(found.recv(DEADLINE_S))["value"] for _ in range(3)] == [0, 1, 2]
    for path, origin, status in (
        ("/topics/no-such-topic/socket", None, 404),
        (f"/topics/{topic}/socket?from=x", None, 400),
        (f"/topics/{topic}/socket", "https://evil.example", 403),
    ):
        with pytest.raises(InvalidStatus) as refused, opened(gateway, path, origin=origin):
            pass
        assert refused.value.response.status_code == status


def memory_mb(gateway: Gateway) -> float:
    for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.long)])
def test_slow_readers_hold_no_memory(broker: Broker, count: int):
    """Each could read 32 MB, takes a little and then nothing: what the gateway holds of it is a fetch or two."""
    with running_gateway(broker.bootstrap) as gateway:
        topic = gateway.create(f"slow-{count}")
        value = "x" * 10_000
        for _ in range(32):
            status, told = gateway.ask("POST", f"/topics/{topic}", [{"value": value}] * 100)
            assert status == 200, told
        readers = [Events(gateway, f"/topics/{topic}/events?from=earliest") for _ in range(2)]
        for each in readers:
            each.read(10)
        before = memory_mb(gateway)
        readers += [Events(gateway, f"/topics/{topic}/events?from=earliest") for _ in range(count)]
        for each in readers:
            each.read(10)
        time.sleep(2)
        held = (memory_mb(gateway) - before) / count
        assert held < 3, f"{held:.1f} MB a reader"
        # And they are all alive.
        for each in readers:
            each.read(10)
        # Who was slow has lost nothing.
        last = readers[-1]
        offsets = [each["offset"] for each in last.read(500)]
        assert offsets == list(range(20, 520))
        for each in readers:
            each.close()


@pytest.mark.long
@pytest.mark.parametrize("count", [50])
def test_slow_sockets_hold_no_memory(broker: Broker, count: int):
    """Each could read 32 MB and takes ten records: the rest waits at the broker, not in the gateway."""
    with running_gateway(broker.bootstrap) as gateway, ExitStack() as stack:
        topic = gateway.create(f"slow-sockets-{count}")
        for _ in range(32):
            status, told = gateway.ask("POST", f"/topics/{topic}", [{"value": "x" * 10_000}] * 100)
            assert status == 200, told
        path = f"/topics/{topic}/socket?from=earliest"
        first = stack.enter_context(opened(gateway, path, max_queue=1))
        offsets = [json.loads(first.recv(DEADLINE_S))["offset"] for _ in range(10)]
        before = memory_mb(gateway)
        others = [stack.enter_context(opened(gateway, path, max_queue=1)) for _ in range(count)]
        for each in others:
            for _ in range(10):
                each.recv(DEADLINE_S)
        time.sleep(2)
        held = (memory_mb(gateway) - before) / count
        assert held < 3, f"{held:.1f} MB a socket"
        offsets += [json.loads(first.recv(DEADLINE_S))["offset"] for _ in range(500)]
        assert offsets == list(range(510))


def test_readers_are_bounded_and_end_with_the_gateway(broker: Broker):
    with running_gateway(broker.bootstrap, "--set", "readers.max=2") as gateway:
        topic = gateway.create("bounded")
        readers = [Events(gateway, f"/topics/{topic}/events") for _ in range(3)]
        assert [each.status for each in readers] == [200, 200, 503]
        readers[0].close()
        wait_until(lambda: _is_let_in(gateway, topic))
    # The gateway has ended, with exit 0, while a reader was there.
    readers[1].close()
    readers[2].close()


def _is_let_in(gateway: Gateway, topic: str) -> bool:
    with events(gateway, f"/topics/{topic}/events") as reader:
        return reader.status == 200

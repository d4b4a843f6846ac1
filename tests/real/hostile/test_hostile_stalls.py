"""Clients that begin what they do not end: memory is bounded and given back, and small requests are served."""

import os
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tailrace.testing import Broker
from tests.real.hostile.conftest import healthy_client
from tests.real.raw import METADATA, RawClient, batch, request

MIB = 1 << 20
QUEUED_BYTES = 96 * MIB
OF_ONE_ADDRESS_BYTES = 64 * MIB
SETTINGS = {
    "queued.max.request.bytes": QUEUED_BYTES,
    "queued.max.request.bytes.per.ip": OF_ONE_ADDRESS_BYTES,
    "socket.request.rate.window.ms": 6000,
    "socket.request.max.ms": 20_000,
    # The healthy client's records are of 2023, and it reads them from the first one on.
    "log.retention.ms": -1,
}
# A Produce that claims 90 MB.
BEGUN = struct.pack(">ihhi", 90_000_000, 0, 8, 1)
PATIENCE_S = 120.0


@pytest.fixture
def impatient() -> Iterator[Broker]:
    """A broker with less memory for requests, and less time."""
    with Broker(SETTINGS) as broker:
        yield broker
        assert "Traceback" not in broker.log()


def _resident_bytes(broker: Broker) -> int:
    with open(f"/proc/{broker.process_id}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _begin(broker: Broker, crowd: ExitStack, count: int, size: int) -> list[socket.socket]:
    """Sends so much of a request on each of many connections, as far as it is taken in a second."""
    begun = [crowd.enter_context(RawClient(broker.bootstrap)).socket for _ in range(count)]
    left = {each: memoryview(BEGUN + bytes(size)) for each in begun}
    for each in begun:
        each.setblocking(False)
    ends = time.monotonic() + 1
    while left and time.monotonic() < ends:
        for each, data in list(left.items()):
            try:
                left[each] = data[each.send(data[:MIB]) :]
            except BlockingIOError:
                continue
            if not left[each]:
                del left[each]
        time.sleep(0.001)
    return begun


def _wait_until_closed(begun: list[socket.socket]) -> None:
    """Sends a byte a second meanwhile, as if it were going on."""
    ends = time.monotonic() + PATIENCE_S
    still_open = set(begun)
    while still_open:
        assert time.monotonic() < ends, f"{len(still_open)} of {len(begun)} are still open"
        for each in list(still_open):
            try:
                each.send(b"\0")
            except BlockingIOError:
                continue
            except OSError:
                still_open.discard(each)
        time.sleep(1)


@pytest.mark.parametrize(
    ("count", "size"),
    [pytest.param(5, 67_000_000, id="a few"), pytest.param(60, 3_000_000, id="many", marks=pytest.mark.long)],
)
def test_begun_requests_cost_no_more_than_they_may_and_leave_nothing(impatient: Broker, count: int, size: int):
    broker = impatient
    with healthy_client(broker), ExitStack() as crowd:
        before = _resident_bytes(broker)
        begun = _begin(broker, crowd, count, size)
        # Beside what is lent: the 64 KB of each connection, and what the process itself needs more of.
        assert _resident_bytes(broker) - before < OF_ONE_ADDRESS_BYTES + count * 64 * 1024 + 32 * MIB
        with RawClient(broker.bootstrap) as client:
            assert client.create_topic(f"beside-{count}") == 0
            for number in range(200):
                assert client.produce(f"beside-{count}", batch(b"x" * 20_000))[:2] == (0, number)
        _wait_until_closed(begun)
        with RawClient(broker.bootstrap) as client:
            assert client.produce(f"beside-{count}", batch(b"x" * 900_000))[:2] == (0, 200)
    ends = time.monotonic() + PATIENCE_S
    while (left := _resident_bytes(broker)) > before * 1.2 + 20 * MIB:
        assert time.monotonic() < ends, f"{left >> 20} MB, and it was {before >> 20} before"
        time.sleep(1)


def test_who_stops_in_the_size_of_a_request_is_closed(impatient: Broker):
    broker = impatient
    with healthy_client(broker), ExitStack() as crowd:
        begun = [crowd.enter_context(RawClient(broker.bootstrap)) for _ in range(300)]
        for number, client in enumerate(begun):
            client.send(bytes(1 + number % 3))
        for client in begun:
            assert client.is_closed_by_broker()


def test_pipelines_that_are_never_read_leave_room_for_others(broker: Broker):
    """Each is served until its socket is full; the others are served all the while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    describe = request(32, 1, struct.pack(">ib", 1, 4) + struct.pack(">h", 1) + b"1" + struct.pack(">i?", -1, True))
    metadata = request(METADATA, 1, struct.pack(">i", -1))
    before = _resident_bytes(broker)
    with healthy_client(broker), ExitStack() as crowd:
        left: dict[socket.socket, memoryview] = {}
        for asked in [metadata] * 50 + [describe] * 20:
            client = crowd.enter_context(RawClient(broker.bootstrap))
            client.socket.setblocking(False)
            left[client.socket] = memoryview(asked * 20_000)
        ends = time.monotonic() + 8
        with RawClient(broker.bootstrap) as client:
            while time.monotonic() < ends:
                for each, data in left.items():
                    try:
                        left[each] = data[each.send(data[: 64 * 1024]) :]
                    except BlockingIOError:
                        continue
                assert client.is_served()
        # A buffer, the bound on answers and one answer for each.
        assert _resident_bytes(broker) - before < 70 * 2 * MIB
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

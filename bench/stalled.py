"""`python -m bench.stalled`: what a neighbour notices of clients that stall, and what memory is left behind.

The neighbour, a process of its own, sends 200 requests a second with a record of 1 KB, one at a time. It is measured
alone, then beside each crowd, then the crowd leaves and a minute later the broker's memory is told beside what it was.
Goals: its p99 at most ten times what it is alone, no request failed, memory within 20 % and 20 MB.
"""

import argparse
import multiprocessing
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.canned import produce_request, produce_response_bytes
from bench.subject import Subject, running
from tailrace.wire.apis.admin import DescribeConfigsRequest
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.frame import encode_request
from tailrace.wire.schema import Message

_RATE = 200
_PIPELINED_REQUESTS = 100_000
_AFTER_S = 60.0
_OPEN_FILES = 4096
_MIB = 1 << 20
# A Produce that claims 90 MB.
_BEGUN = struct.pack(">ihhi", 90_000_000, 0, 8, 1)


class Waits(NamedTuple):
    """How long the neighbour waited for its answers, in ms."""

    p50: float
    p99: float
    longest: float
    failed: int


class Crowd:
    """Connections that send what they are told to as far as the broker takes it, and read nothing."""

    def __init__(self, port: int, kinds: dict[int, bytes], *, drips: bool = False) -> None:
        """`kinds` tells how many connections send what; with `drips` each then goes on with a byte every 2 s."""
        self._drips = drips
        self._sockets: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        for count, data in kinds.items():
            for _ in range(count):
                connected = socket.create_connection(("127.0.0.1", port))
                connected.setblocking(False)
                self._sockets.append(connected)
                self._selector.register(connected, selectors.EVENT_WRITE, memoryview(data))

    def push(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        next_drip = time.monotonic() + 2
        while (now := time.monotonic()) < ends:
            if self._drips and now >= next_drip:
                next_drip = now + 2
                for connected in self._sockets:
                    _try_send(connected, b"\0")
            if not self._selector.get_map():
                time.sleep(0.1)
            for key, _ in self._selector.select(0.1):
                assert isinstance(key.fileobj, socket.socket)
                rest = key.data[_try_send(key.fileobj, key.data[:_MIB]) :]
                self._selector.unregister(key.fileobj)
                if rest:
                    self._selector.register(key.fileobj, selectors.EVENT_WRITE, rest)
            time.sleep(0.002)

    def leave(self) -> None:
        for connected in self._sockets:
            connected.close()


def _try_send(connected: socket.socket, data: bytes | memoryview) -> int:
    """How much went; all of it if nobody wants it any more."""
    try:
        return connected.send(data)
    except BlockingIOError:
        return 0
    except OSError:
        return len(data)


def _pipelined(request: Message, version: int) -> bytes:
    frame = b"".join(map(bytes, encode_request(request.api_key, version, 1, "crowd", request)))
    return frame * _PIPELINED_REQUESTS


def _pipeliners(port: int) -> Crowd:
    broker = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
    describe = DescribeConfigsRequest(resources=[broker], include_synonyms=True)
    return Crowd(port, {50: _pipelined(MetadataRequest(topics=None), 9), 20: _pipelined(describe, 4)})


CROWDS: dict[str, Callable[[int], Crowd]] = {
    "5 that stop after 67 MB": lambda port: Crowd(port, {5: _BEGUN + bytes(67_000_000)}, drips=True),
    "200 that stop after 3 MB": lambda port: Crowd(port, {200: _BEGUN + bytes(3_000_000)}, drips=True),
    "2,000 that stop in the size": lambda port: Crowd(port, {2000: b"\0"}),
    "50 of Metadata and 20 of DescribeConfigs that never read": _pipeliners,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="beside each crowd")
    parser.add_argument("--only", choices=CROWDS, nargs="*", default=[*CROWDS])
    options = parser.parse_args()
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _OPEN_FILES), hard))
    table = Table("crowd", "p99 alone", "p99 beside", "times", "longest", "failed", "MB before", "beside", "after")
    for name in options.only:
        with running() as subject:
            table.add_row(name, *_measure(subject, CROWDS[name], options.seconds))
    Console(width=160).print(table)
    return 0


def _measure(subject: Subject, gather: Callable[[int], Crowd], seconds: float) -> list[str]:
    topic = subject.create_topic("neighbour", warm=True)
    neighbour(subject.port, topic, 2, lambda: None)
    alone = neighbour(subject.port, topic, 10, lambda: None)
    before = subject.resident_bytes()
    crowd = gather(subject.port)
    beside = neighbour(subject.port, topic, seconds, lambda: crowd.push(seconds))
    meanwhile = subject.resident_bytes()
    crowd.leave()
    time.sleep(_AFTER_S)
    after = subject.resident_bytes()
    return [
        f"{alone.p99:.2f} ms",
        f"{beside.p99:.2f} ms",
        f"{beside.p99 / alone.p99:.1f}",
        f"{beside.longest:.0f} ms",
        str(alone.failed + beside.failed),
        *(f"{size / _MIB:.0f}" for size in (before, meanwhile, after)),
    ]


def neighbour(port: int, topic: str, seconds: float, meanwhile: Callable[[], None]) -> Waits:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_ask, args=(port, topic, seconds, theirs))
    process.start()
    meanwhile()
    waits = ours.recv()
    process.join()
    assert isinstance(waits, Waits)
    return waits


def _ask(port: int, topic: str, seconds: float, result: Connection) -> None:
    request = produce_request(topic, records=1, value_bytes=1000)
    response_bytes = produce_response_bytes(topic)
    # Behind size, correlation id, topics, name, partitions and index.
    error_at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4
    waits: list[float] = []
    failed = 0
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connected:
        for number in range(int(seconds * _RATE)):
            time.sleep(max(0.0, began + number / _RATE - time.monotonic()))
            sent = time.monotonic()
            if sent > began + seconds:
                break
            try:
                connected.sendall(request)
                answer = b""
                while len(answer) < response_bytes:
                    answer += (more := connected.recv(response_bytes - len(answer)))
                    if not more:
                        raise ConnectionError("the broker closed the connection")
                if answer[error_at : error_at + 2] != b"\0\0":
                    raise ConnectionError(f"the broker answered {answer!r}")
            except OSError:
                failed += 1
                break
            waits.append((time.monotonic() - sent) * 1000)
    waits.sort()
    result.send(Waits(waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1], failed))


if __name__ == "__main__":
    raise SystemExit(main())

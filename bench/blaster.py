"""A client that costs next to nothing: it sends canned requests as fast as the socket takes them and counts answers.

It runs in a process of its own, on a core of its own, and the broker on another, so that a figure is that of one core
of broker. Answers are counted by their size, which is the same for all: the first one and the sum of all are checked.
"""

import multiprocessing
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from bench.canned import fetch_request, produce_request, produce_response_bytes, records_in

BLASTER_CORE = 1
BROKER_CORE = 0

# Requests on their way at most: enough that the broker never waits, little enough that buffers stay in the cache.
_IN_FLIGHT_BYTES = 4 << 20
_JOINED_BYTES = 256 << 10


def requests_per_second(port: int, topic: str, seconds: float) -> float:
    """Pipelined Produce requests of one record of 100 bytes."""
    request = produce_request(topic, records=1, value_bytes=100)
    return _in_own_process(_blast, port, request, produce_response_bytes(topic), seconds)


def answered_per_second(
    port: int, request: bytes, response_bytes: int, seconds: float, *, in_flight_max: int | None = None
) -> float:
    """Pipelined requests of any kind, all of which have answers of the same size."""
    return _in_own_process(_blast, port, request, response_bytes, seconds, in_flight_max)


def answered_in_turns_per_second(
    port: int, request: bytes, response_bytes: int, seconds: float, *, connections: int
) -> float:
    """Requests of any kind, one in flight on each connection."""
    return _in_own_process(_take_turns, [(port, request)], response_bytes, seconds, connections)


def answered_by_several_per_second(
    targets: list[tuple[int, bytes]], response_bytes: int, seconds: float, *, connections: int
) -> float:
    """As before, of several brokers: each connection is to one of them in turn, and sends what is meant for that."""
    return _in_own_process(_take_turns, targets, response_bytes, seconds, connections)


def produced_bytes_per_second(port: int, topic: str, batch_bytes: int, seconds: float) -> float:
    """Produce requests of one batch of 1 KB records; the bytes of requests count, as the network sees them."""
    request = produce_request(topic, records=records_in(batch_bytes, 1_000), value_bytes=1_000)
    rate = _in_own_process(_blast, port, request, produce_response_bytes(topic), seconds)
    return rate * len(request)


def fetched_bytes_per_second(port: int, topic: str, max_bytes: int, seconds: float) -> float:
    """Fetch requests of the same range again and again, which lies in the page cache: the way out of the broker."""
    return _in_own_process(_drain, port, fetch_request(topic, offset=0, max_bytes=max_bytes), seconds)


def _in_own_process(work: Callable[..., float], *arguments: Any) -> float:
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=_report, args=(results, work, arguments))
    process.start()
    process.join(120)
    if process.is_alive():
        process.kill()
        raise TimeoutError("the blaster did not end")
    if process.exitcode != 0:
        raise RuntimeError(f"the blaster ended with exit code {process.exitcode}")
    return results.get()


def _report(results: Any, work: Callable[..., float], arguments: tuple[Any, ...]) -> None:
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {BLASTER_CORE})
    results.put(work(*arguments))


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


def _blast(port: int, request: bytes, response_bytes: int, seconds: float, in_flight_max: int | None = None) -> float:
    """Answers per second, from the first request to the last answer."""
    connection = _connect(port)
    in_flight_max = in_flight_max or max(2, _IN_FLIGHT_BYTES // len(request))
    # What is joined is sent in one call: it must leave room for more than one call in flight.
    joined = request * max(1, min(_JOINED_BYTES // len(request), in_flight_max // 2))
    view = memoryview(joined)
    sink = bytearray(1 << 20)
    sent_bytes = received_bytes = position = 0
    poller = select.poll()
    poller.register(connection, select.POLLIN | select.POLLOUT)
    start = time.perf_counter()
    end = start + seconds
    while True:
        now = time.perf_counter()
        if now >= end and position == 0 and received_bytes == sent_bytes // len(request) * response_bytes:
            break
        assert now < end + 30, "answers are missing"
        for _, events in poller.poll(1_000):
            if events & select.POLLIN:
                received = connection.recv_into(sink)
                assert received, "the broker closed the connection"
                if not received_bytes:
                    assert struct.unpack_from(">i", sink)[0] == response_bytes - 4, "the broker answered with an error"
                received_bytes += received
            # A request that was begun must be ended, also after time.
            behind = sent_bytes // len(request) - received_bytes // response_bytes
            is_open = (now < end and behind < in_flight_max) or position
            if events & select.POLLOUT and is_open:
                sent = connection.send(view[position:])
                sent_bytes += sent
                position = (position + sent) % len(joined)
        wants_out = position or (
            time.perf_counter() < end and sent_bytes // len(request) - received_bytes // response_bytes < in_flight_max
        )
        poller.modify(connection, select.POLLIN | (select.POLLOUT if wants_out else 0))
    elapsed = time.perf_counter() - start
    connection.close()
    return received_bytes // response_bytes / elapsed


def _take_turns(targets: list[tuple[int, bytes]], response_bytes: int, seconds: float, count: int) -> float:
    """Answers per second; each is followed by the next request of its connection."""
    connections: dict[int, tuple[socket.socket, bytes]] = {}
    for _, (port, request) in zip(range(count), cycle(targets), strict=False):
        connection = _connect(port)
        connections[connection.fileno()] = connection, request
    poller = select.epoll()
    for descriptor in connections:
        poller.register(descriptor, select.EPOLLIN)
    answered = 0
    start = time.perf_counter()
    for connection, request in connections.values():
        connection.send(request)
    while time.perf_counter() < start + seconds:
        for descriptor, _ in poller.poll(1):
            connection, request = connections[descriptor]
            assert len(connection.recv(2 * response_bytes)) == response_bytes, "the broker answered with an error"
            connection.send(request)
            answered += 1
    elapsed = time.perf_counter() - start
    poller.close()
    for connection, _ in connections.values():
        connection.close()
    return answered / elapsed


def _drain(port: int, request: bytes, seconds: float) -> float:
    """Bytes per second of answers, two requests in flight."""
    connection = _connect(port)
    connection.setblocking(True)
    sink = memoryview(bytearray(4 << 20))
    received_bytes = 0
    connection.sendall(request)
    connection.sendall(request)
    start = time.perf_counter()
    end = start + seconds
    while time.perf_counter() < end:
        received = connection.recv_into(sink[:4], 4, socket.MSG_WAITALL)
        assert received == 4, "the broker closed the connection"
        left = struct.unpack_from(">i", sink)[0]
        received_bytes += 4 + left
        while left:
            received = connection.recv_into(sink, min(left, len(sink)))
            assert received, "the broker closed the connection"
            left -= received
        connection.sendall(request)
    elapsed = time.perf_counter() - start
    connection.close()
    return received_bytes / elapsed

"""What this machine can do without a broker: the figures that the broker's own are held against.

- copy: bytes through a loopback socket from one process to another, nothing done with them;
- echo: a bare Python loop that receives requests and sends as many answers of the right size, the least that a broker
  written in Python must do.
librdkafka's mock broker, the third baseline, needs no code here: it runs inside the client (`test.mock.num.brokers`).
"""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.blaster import BROKER_CORE

_CHUNK_BYTES = 1 << 20


def copied_bytes_per_second(seconds: float) -> float:
    """From one process to another, 1 MB at a time."""
    with _serving(_swallow) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        chunk = bytes(_CHUNK_BYTES)
        sent_bytes = 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            connection.sendall(chunk)
            sent_bytes += len(chunk)
        connection.shutdown(socket.SHUT_WR)
        # The other side closes when it has taken everything.
        connection.recv(1)
        return sent_bytes / (time.perf_counter() - start)


@contextmanager
def echo_server(request_bytes: int, response: bytes) -> Iterator[int]:
    """A loop that answers each request of a known size, and knows nothing else; gives its port."""
    with _serving(_echo, request_bytes, response) as port:
        yield port


@contextmanager
def _serving(work: Callable[..., None], *arguments: Any) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(listener, work, arguments))
    process.start()
    port = listener.getsockname()[1]
    listener.close()
    try:
        yield port
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()


def _serve(listener: socket.socket, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {BROKER_CORE})
    listener.settimeout(30)
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(30)
        work(connection, *arguments)


def _swallow(connection: socket.socket) -> None:
    sink = bytearray(_CHUNK_BYTES)
    while connection.recv_into(sink):
        pass


def _echo(connection: socket.socket, request_bytes: int, response: bytes) -> None:
    sink = bytearray(_CHUNK_BYTES)
    received_bytes = answered = 0
    while received := connection.recv_into(sink):
        received_bytes += received
        complete = received_bytes // request_bytes
        connection.sendall(response * (complete - answered))
        answered = complete

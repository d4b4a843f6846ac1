"""`python -m bench.tls`: what TLS costs, here and in Apache Kafka beside it.

Each rival has a listener without TLS and one with (1.3, a P-256 certificate). One raw client in a process of its own
sends the same canned requests to either: Produce of 256 KB batches of 1 KB records, five in flight, and Fetch of 1 MB
of the page cache. Rounds are taken in turn after a warm-up, and the least CPU per GB is told, with the most MB/s: other
load on the machine only adds. Then full handshakes, one after the other; the memory of idle connections; and how long a
neighbour without TLS waits for answers while 500 clients a second shake hands.

Bars: TLS at most twice (produce) and four times (fetch) the CPU per GB of no TLS, MB/s and handshakes per CPU second at
least Kafka's, 40 KB for an idle connection, a p99 of the neighbour below 5 ms.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import ssl
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench.canned import fetch_request, produce_request, produce_response_bytes, records_in
from bench.versus.processes import Rival, Running, free_ports
from bench.versus.rivals import KAFKA, TAILRACE, WARM_CHECKS
from tailrace.cli.secure.authority import make_authority, make_certificate

_BATCH_BYTES, _VALUE_BYTES, _FETCH_BYTES = 256 << 10, 1000, 1 << 20
_IN_FLIGHT = 5
_WARM_TOPIC = {"segment.bytes": str(64 << 20), "retention.bytes": str(128 << 20), "file.delete.delay.ms": "0"}
_IDLE = 1000
_STORM_RATE = 500
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Side(NamedTuple):
    """A rival at work, and the ports of its two listeners."""

    running: Running
    tls_port: int
    topic: str = "tls"

    def port(self, *, tls: bool) -> int:
        return self.tls_port if tls else self.running.port


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=400, help="of each round and kind")
    parser.add_argument("--handshakes", type=int, default=600)
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    options = parser.parse_args()
    with ExitStack() as stack:
        certificate = _certificate(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-bench-")))
        rivals = [TAILRACE] if options.alone else [TAILRACE, KAFKA]
        sides = [stack.enter_context(_running(each, certificate)) for each in rivals]
        _print_transfers(sides, options.rounds, options.megabytes)
        table = Table("", *(each.running.rival for each in sides))
        for name, measure in (
            ("full handshakes per CPU s", lambda side: f"{_handshakes(side, options.handshakes):.0f}"),
            ("KB of an idle TLS connection", lambda side: f"{_idle_kilobytes(side):.1f}"),
            ("neighbour alone, p50 and p99 ms", lambda side: _neighbour(side, storm_rate=0)),
            (f"beside {_STORM_RATE} handshakes/s", lambda side: _neighbour(side, storm_rate=_STORM_RATE)),
        ):
            table.add_row(name, *(measure(side) for side in sides))
        Console(width=120).print(table)
    print(f"load of the machine: {' '.join(f'{each:.1f}' for each in os.getloadavg())}, {os.cpu_count()} cores")
    return 0


@contextmanager
def _running(rival: Rival, certificate: str) -> Iterator[Side]:
    (port,) = free_ports(1)
    settings = {
        **WARM_CHECKS,
        "listeners": f"SECURED://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificate,
    }
    with rival.running(1, settings) as running:
        side = Side(running, port)
        new = NewTopic(side.topic, 1, 1, config=_WARM_TOPIC)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        (created,) = admin.create_topics([new]).values()
        created.result(60)
        yield side


def _certificate(folder: str) -> str:
    make_authority(folder)
    return make_certificate(folder, "broker", ["127.0.0.1"])


# ---- bytes


def _print_transfers(sides: list[Side], rounds: int, megabytes: int) -> None:
    table = Table("", "CPU s/GB without TLS", "with TLS", "times", "MB/s without TLS", "with TLS")
    kinds: dict[str, Callable[..., tuple[float, float]]] = {"produce 256 KB": _produce, "fetch 1 MB": _fetch}
    for name, transfer in kinds.items():
        for side in sides:  # Warm: a JVM compiles for long, and caches fill.
            for tls in (False, True):
                transfer(side, tls=tls, total=megabytes * 1_000_000)
        taken: dict[tuple[int, bool], list[tuple[float, float]]] = {}
        for _ in range(rounds):
            for number, side in enumerate(sides):
                for tls in (False, True):
                    one = transfer(side, tls=tls, total=megabytes * 1_000_000)
                    taken.setdefault((number, tls), []).append(one)
        for number, side in enumerate(sides):
            plain, secured = (min(each[0] for each in taken[number, tls]) for tls in (False, True))
            speeds = [max(each[1] for each in taken[number, tls]) for tls in (False, True)]
            row = [f"{plain:.2f}", f"{secured:.2f}", f"{secured / plain:.1f}", *(f"{each:.0f}" for each in speeds)]
            table.add_row(f"{side.running.rival}: {name}", *row)
    Console(width=120).print(table)


def _produce(side: Side, *, tls: bool, total: int) -> tuple[float, float]:
    request = produce_request(side.topic, records=records_in(_BATCH_BYTES, _VALUE_BYTES), value_bytes=_VALUE_BYTES)
    answer = produce_response_bytes(side.topic)
    return _transfer(side, _send_produces, (side.port(tls=tls), tls, request, answer, total // len(request)))


def _fetch(side: Side, *, tls: bool, total: int) -> tuple[float, float]:
    port = side.port(tls=tls)
    return _transfer(side, _send_fetches, (port, tls, side.topic, total // _FETCH_BYTES))


def _transfer(side: Side, work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[float, float]:
    """CPU s per GB, and MB/s."""
    watch = side.running.stopwatch()
    size, seconds = _in_own_process(work, *arguments)
    return watch() / size * 1e9, size / seconds / 1e6


def _send_produces(port: int, tls: bool, request: bytes, answer_bytes: int, count: int) -> tuple[int, float]:
    with _connect(port, tls=tls) as connection:
        start = time.perf_counter()
        for number in range(count + _IN_FLIGHT):
            if number < count:
                connection.sendall(request)
            if number >= _IN_FLIGHT:
                _receive(connection, answer_bytes)
        return count * len(request), time.perf_counter() - start


def _send_fetches(port: int, tls: bool, topic: str, count: int) -> tuple[int, float]:
    """From the oldest offset that is there: retention works meanwhile."""
    with _connect(port, tls=tls) as connection:
        request = fetch_request(topic, offset=_oldest(connection, topic), max_bytes=_FETCH_BYTES)
        received = 0
        start = time.perf_counter()
        for _ in range(count):
            connection.sendall(request)
            size = int.from_bytes(_receive(connection, 4), "big")
            _receive(connection, size)
            received += size
        if received < count * _FETCH_BYTES // 2:
            raise RuntimeError("the fetches came back empty")
        return received, time.perf_counter() - start


def _oldest(connection: socket.socket, topic: str) -> int:
    name = struct.pack(">h", len(topic)) + topic.encode()
    body = struct.pack(">hhihii", 2, 1, 1, -1, -1, 1) + name + struct.pack(">iiq", 1, 0, -2)
    connection.sendall(struct.pack(">i", len(body)) + body)
    answer = _receive(connection, int.from_bytes(_receive(connection, 4), "big"))
    (offset,) = struct.unpack(">q", answer[-8:])
    return int(offset)


# ---- handshakes and connections


def _handshakes(side: Side, count: int) -> float:
    _in_own_process(_shake, side.tls_port, count)  # Warm.
    watch = side.running.stopwatch()
    _in_own_process(_shake, side.tls_port, count)
    return count / watch()


def _shake(port: int, count: int, rate: float = 0.0) -> None:
    context = _context()
    start = time.perf_counter()
    for number in range(count):
        if rate:
            time.sleep(max(0.0, start + number / rate - time.perf_counter()))
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as connection:
            connection.sendall(_API_VERSIONS)
            connection.recv(4)


def _idle_kilobytes(side: Side) -> float:
    with ExitStack() as stack:
        context = _context()
        for _ in range(50):  # What the first ones cost is not theirs.
            stack.enter_context(_connect(side.tls_port, tls=True, context=context))
        time.sleep(0.5)
        before = side.running.usage().resident_bytes
        for _ in range(_IDLE):
            stack.enter_context(_connect(side.tls_port, tls=True, context=context))
        time.sleep(0.5)
        return (side.running.usage().resident_bytes - before) / _IDLE / 1000


def _neighbour(side: Side, *, storm_rate: int, seconds: float = 6.0) -> str:
    """How long one waits who asks 500 times a second: the loop answers nobody while it does something else."""
    storm = None
    if storm_rate:
        count = int(storm_rate * (seconds + 1))
        storm = multiprocessing.get_context("spawn").Process(target=_shake, args=(side.tls_port, count, storm_rate))
        storm.start()
        time.sleep(1.0)
    waits = []
    with _connect(side.running.port, tls=False) as connection:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            asked = time.perf_counter()
            connection.sendall(_API_VERSIONS)
            _receive(connection, int.from_bytes(_receive(connection, 4), "big"))
            waits.append((time.perf_counter() - asked) * 1000)
            time.sleep(0.002)
    is_late = False
    if storm is not None:
        storm.join(1.0)
        is_late = storm.is_alive()
        storm.terminate()
        storm.join()
    waits.sort()
    told = f"{waits[len(waits) // 2]:.2f}, {waits[len(waits) * 99 // 100]:.2f}"
    return told + " (the handshakes came slower)" if is_late else told


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _connect(port: int, *, tls: bool, context: ssl.SSLContext | None = None) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return (context or _context()).wrap_socket(connection) if tls else connection


def _receive(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the broker hung up")
        view = view[count:]
    return data


def _in_own_process(work: Callable[..., Any], *arguments: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())

"""`python -m bench.flooders`: what a neighbour notices of clients that take all they can get, with and without a quota.

The neighbour, a process of its own, sends 200 requests a second with a record of 1 KB, one at a time. It is measured
alone and beside each flood, a few times in turn, and the least of each is told: other load on the machine only adds.
Flooders would be on machines of their own: so the kernel prefers the broker and the neighbour to them, if it may.
Goals: its p99 at most ten times what it is alone; beside a flooder that a quota holds to 10 MB/s, at most twice.
"""

import argparse
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.canned import fetch_request, produce_request, produce_response_bytes
from bench.stalled import Waits, neighbour
from bench.subject import Subject, running
from tailrace.wire.apis.admin import AlterClientQuotasRequest
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.frame import encode_request
from tailrace.wire.schema import Message

_BATCH_BYTES = 900_000
_QUOTA = 10 * 1000 * 1000
_PREFERRED = -20  # The least nice.


class Flood(NamedTuple):
    flooders: int
    request: Callable[[str], bytes]
    quota: float | None = None
    connections: int = 1  # Of each.


def _large(topic: str) -> bytes:
    return produce_request(topic, records=9, value_bytes=_BATCH_BYTES // 9)


def _small(topic: str) -> bytes:
    return produce_request(topic, records=1, value_bytes=1000) * 50


def _fetch(topic: str) -> bytes:
    return fetch_request(topic, offset=0, max_bytes=1 << 20)


def _metadata(_topic: str) -> bytes:
    return _frame(MetadataRequest(topics=None), 9) * 20


FLOODS = {
    "2 of large batches": Flood(2, _large),
    "4 of small produces, pipelined": Flood(4, _small),
    "1 that fetches 1 MB again and again": Flood(1, _fetch),
    "4 that do": Flood(4, _fetch),
    "20 of Metadata, pipelined": Flood(20, _metadata),
    "1 with 100 connections of small produces, pipelined": Flood(1, _small, connections=100),
    "2 of large batches, held to 10 MB/s": Flood(2, _large, quota=_QUOTA),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=FLOODS, nargs="*", default=[*FLOODS])
    options = parser.parse_args()
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _PREFERRED)  # And of what is started from here.
    except PermissionError:
        print("flooders and whatever else runs take as much of the processors as the broker: only root may prefer it")
    table = Table("flood", "p50 alone", "p99 alone", "p50 beside", "p99 beside", "times", "failed")
    for name in options.only:
        with running() as subject:
            table.add_row(name, *_measure(subject, FLOODS[name], options.seconds, options.rounds))
    Console(width=140).print(table)
    print(f"load of the machine: {' '.join(f'{each:.1f}' for each in os.getloadavg())}, {os.cpu_count()} cores")
    return 0


def _measure(subject: Subject, flood: Flood, seconds: float, rounds: int) -> list[str]:
    topic, flooded = subject.create_topic("neighbour", warm=True), subject.create_topic("flooded", warm=True)
    _fill(subject.port, flooded)
    if flood.quota is not None:
        _set_quota(subject.port, flood.quota)
    _neighbour(subject.port, topic, 2)
    alone: list[Waits] = []
    beside: list[Waits] = []
    for _ in range(rounds):
        alone.append(_neighbour(subject.port, topic, seconds))
        processes = [_start(subject.port, flood.request(flooded), flood.connections) for _ in range(flood.flooders)]
        time.sleep(0.5)
        beside.append(_neighbour(subject.port, topic, seconds))
        for process in processes:
            process.terminate()
            process.join()
    quiet, loud = min(alone, key=lambda each: each.p99), min(beside, key=lambda each: each.p99)
    return [
        f"{quiet.p50:.2f} ms",
        f"{quiet.p99:.2f} ms",
        f"{loud.p50:.2f} ms",
        f"{loud.p99:.2f} ms",
        f"{loud.p99 / quiet.p99:.1f}",
        str(sum(each.failed for each in (*alone, *beside))),
    ]


def _neighbour(port: int, topic: str, seconds: float) -> Waits:
    """It never waits for a processor, if it may: it is the broker that is measured."""
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    waits = neighbour(port, topic, seconds, lambda: None)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return waits


def _start(port: int, request: bytes, connections: int) -> BaseProcess:
    process = get_context("fork").Process(target=_flood, args=(port, request, connections), daemon=True)
    process.start()
    return process


def _flood(port: int, request: bytes, count: int) -> None:
    """Keeps some requests under way on each connection, and reads what comes. It has another client id than the
    neighbour."""
    os.setpriority(os.PRIO_PROCESS, 0, max(0, os.getpriority(os.PRIO_PROCESS, 0)))
    request = request.replace(b"\x00\x05bench", b"\x00\x05flood")
    scratch = bytearray(1 << 20)
    rests: dict[socket.socket, memoryview] = {}
    for _ in range(count):
        connected = socket.create_connection(("127.0.0.1", port))
        connected.setblocking(False)
        rests[connected] = memoryview(request)
    while True:
        is_idle = True
        for connected, rest in rests.items():
            try:
                rests[connected] = rest[connected.send(rest[: 1 << 20]) :] or memoryview(request)
                is_idle = False
            except BlockingIOError:
                pass
            try:
                while connected.recv_into(scratch):
                    pass
            except BlockingIOError:
                pass
        if is_idle:
            time.sleep(0.0002)


def _fill(port: int, topic: str) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connected:
        for _ in range(3):
            connected.sendall(_large(topic))
            size = produce_response_bytes(topic)
            while size > 0:
                size -= len(connected.recv(size))


def _set_quota(port: int, bound: float) -> None:
    request = AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type="client-id", entity_name="flood")],
        ops=[request.OpData(key="producer_byte_rate", value=bound)],
    )
    with socket.create_connection(("127.0.0.1", port)) as connected:
        connected.sendall(_frame(request(entries=[entry]), 1))
        connected.recv(1000)


def _frame(request: Message, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(request.api_key, version, 1, "bench", request)))


if __name__ == "__main__":
    raise SystemExit(main())

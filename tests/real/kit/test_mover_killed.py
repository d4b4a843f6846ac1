"""Movers of delayed records are killed, and each record is delivered once, not before it is due and not long after."""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.kit import Admin, Consumer
from tailrace.kit.delays.sending import Delays
from tailrace.testing import Broker

from .trial import SETTINGS

TARGET = "target"
WAIT_S = 60.0


@contextmanager
def movers(bootstrap: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    running = [_start(bootstrap) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _start(bootstrap: str) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "tailrace", "delays", "--bootstrap", bootstrap, "--tick", "50"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)


async def _committed(bootstrap: str) -> list[tuple[int, int]]:
    """The number of each delivered record, and the time at which it was delivered."""
    options = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "fetch.max.wait.ms": 50}
    found: list[tuple[int, int]] = []
    async with Consumer(options) as consumer, Admin({"bootstrap.servers": bootstrap}) as admin:
        places = await admin.partitions_of(TARGET)
        await consumer.assign(dict.fromkeys(places, 0))
        ends = await admin.end_offsets(places, committed_only=True)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [(int(message.raw_value or b""), message.timestamp) for message in await consumer.poll(0.5)]
    return found


async def deliver_while_movers_die(
    bootstrap: str, running: "list[subprocess.Popen[str]]", *, count: int, kills: int, every_s: float
) -> None:
    async with Admin({"bootstrap.servers": bootstrap}) as admin:
        await admin.create_topic(TARGET, partitions=2)
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "delays: delays\n"
    due: dict[int, int] = {}
    async with Delays({"bootstrap.servers": bootstrap}) as delays:
        for number in range(count):
            ticket = await delays.send(TARGET, str(number), delay=f"{500 + number * 20}ms")
            due[number] = int(ticket.partition("-")[0])
    for kill in range(kills):
        await asyncio.sleep(every_s)
        index = kill % len(running)
        running[index].kill()
        running[index].communicate()
        running[index] = _start(bootstrap)
    deadline = time.monotonic() + WAIT_S
    while len(found := await _committed(bootstrap)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        await asyncio.sleep(0.2)
    await asyncio.sleep(0.5)
    found = await _committed(bootstrap)
    doubled = [number for number, times in Counter(number for number, _ in found).items() if times > 1]
    assert not doubled
    assert sorted(number for number, _ in found) == list(range(count))
    early = {number: due[number] - at for number, at in found if at < due[number]}
    assert not early


@pytest.mark.long
def test_two_movers_are_killed_in_turn():
    with Broker(SETTINGS) as broker, movers(broker.bootstrap, 2) as running:
        asyncio.run(deliver_while_movers_die(broker.bootstrap, running, count=100, kills=2, every_s=1))


@pytest.mark.long
def test_movers_are_killed_again_and_again():
    with Broker(SETTINGS) as broker, movers(broker.bootstrap, 2) as running:
        asyncio.run(deliver_while_movers_die(broker.bootstrap, running, count=2000, kills=12, every_s=3))

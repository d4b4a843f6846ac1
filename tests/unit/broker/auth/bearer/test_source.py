"""When keys are read again, and how often at most."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tailrace.broker.auth.bearer.checks import Expected
from tailrace.broker.auth.bearer.judge import Judge
from tailrace.broker.auth.bearer.source import KeySource, Pace
from tailrace.broker.auth.conversations import Bearer, Doubt
from tailrace.model.ports import Ports
from tailrace.real.background import RealBackground
from tailrace.real.clock import RealClock
from tailrace.real.network import RealNetwork
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tests.issuer import SigningKey, key_set

FIRST, SECOND = SigningKey("first", "ES256"), SigningKey("second", "ES256")
PACE = Pace(refresh_ms=60_000, backoff_ms=10, backoff_max_ms=40, unknown_key_ms=60_000)


class Published:
    def __init__(self) -> None:
        self.data: bytes | Exception = key_set(FIRST)
        self.read_count = 0

    def read(self) -> bytes:
        self.read_count += 1
        if isinstance(self.data, Exception):
            raise self.data
        return self.data


@pytest.fixture
def ports() -> Iterator[Ports]:
    clock, background = RealClock(), RealBackground()
    yield Ports(clock, SimRandom(1), SimDisk(clock), RealNetwork(), background)
    background.close()


def source_of(published: Published, ports: Ports, pace: Pace = PACE) -> KeySource:
    return KeySource("https://issuer.test/keys", published.read, ports, pace)


def judge_of(source: KeySource, ports: Ports) -> Judge:
    return Judge(source, Expected(("ES256",)), ports, under_way_max=4)


async def wait_until_read(published: Published, count: int) -> None:
    async with asyncio.timeout(10):
        while published.read_count < count:
            await asyncio.sleep(0.005)


async def test_a_new_key_is_found_by_the_first_token_that_it_signs(ports: Ports):
    published = Published()
    source = source_of(published, ports)
    judge = judge_of(source, ports)
    assert await source.read_now() is None
    assert isinstance(await judge.judge(FIRST.sign()), Bearer)
    published.data = key_set(FIRST, SECOND)
    assert isinstance(await judge.judge(SECOND.sign()), Bearer)
    assert published.read_count == 2


async def test_a_flood_of_unknown_keys_reads_them_once(ports: Ports):
    published = Published()
    source = source_of(published, ports)
    judge = judge_of(source, ports)
    assert await source.read_now() is None
    flood = [SigningKey(f"k{number}", "ES256", SECOND.private).sign() for number in range(300)]
    verdicts = await asyncio.gather(*(judge.judge(token) for token in flood))
    assert all(isinstance(verdict, Doubt) for verdict in verdicts)
    assert published.read_count == 2
    # Who has a known key does not notice.
    assert isinstance(await judge.judge(FIRST.sign()), Bearer)
    assert published.read_count == 2


async def test_keys_are_read_early_again_after_a_while(ports: Ports):
    published = Published()
    source = source_of(published, ports, PACE._replace(unknown_key_ms=50))
    assert await source.read_early()
    assert not await source.read_early()
    await asyncio.sleep(0.06)
    assert await source.read_early()


async def test_they_are_read_every_now_and_then(ports: Ports):
    published = Published()
    source = source_of(published, ports, PACE._replace(refresh_ms=20))
    source.open()
    await wait_until_read(published, 3)
    source.close()


async def test_what_cannot_be_read_is_tried_again_and_the_old_keys_go_on(
    ports: Ports, caplog: pytest.LogCaptureFixture
):
    published = Published()
    source = source_of(published, ports, PACE._replace(refresh_ms=20))
    source.open()
    await wait_until_read(published, 1)
    for broken in (OSError(111, "Connection refused"), b"<html>", b'{"keys": []}'):
        published.data = broken
        count = published.read_count
        await wait_until_read(published, count + 4)
        assert isinstance(await judge_of(source, ports).judge(FIRST.sign()), Bearer)
    published.data = key_set(SECOND)
    await wait_until_read(published, published.read_count + 2)
    assert isinstance(await judge_of(source, ports).judge(SECOND.sign()), Bearer)
    source.close()
    told = [record.getMessage() for record in caplog.records]
    # Each cause once, however often it was tried.
    assert sum("cannot be read" in line for line in told) == 3, told


async def test_waits_after_failures_grow_up_to_a_bound(ports: Ports):
    published = Published()
    published.data = OSError("nobody there")
    source = source_of(published, ports, PACE._replace(backoff_ms=50, backoff_max_ms=100))
    source.open()
    await asyncio.sleep(0.6)
    source.close()
    assert 2 <= published.read_count <= 8


async def test_whoever_waits_and_leaves_takes_nobody_along(ports: Ports):
    published = Published()
    source = source_of(published, ports)
    leaving = asyncio.ensure_future(source.read_now())
    staying = asyncio.ensure_future(source.read_now())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying is None
    assert published.read_count == 1

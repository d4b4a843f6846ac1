"""Delayed records on a real broker, by a clock that is put forward: in time, once, and not if they were cancelled."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.kit import Admin, Consumer, Message, Producer
from tailrace.kit.delays.headers import Room
from tailrace.kit.delays.mover import Mover, MoverOptions, create_topics
from tailrace.kit.delays.sending import Cancelled, DelayError, Delays
from tailrace.real.ports import real_ports
from tailrace.testing import Broker, MovableClock
from tests.unit.kit.app.conftest import until

_serial = itertools.count()
HOUR_MS = 3_600_000


class World:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.options = {"bootstrap.servers": bootstrap, "fetch.max.wait.ms": 50}
        self.clock = MovableClock()
        self.room = Room(f"delays-{next(_serial)}")
        self.topic = f"{self.room.name}-target"

    def delays(self) -> Delays:
        return Delays(self.options, name=self.room.name, clock=self.clock)

    def cluster(self) -> Cluster:
        return Cluster(replace(real_ports(), clock=self.clock), parse_bootstrap(self.bootstrap))

    @asynccontextmanager
    async def moving(self, **options: int) -> AsyncIterator[Mover]:
        cluster = self.cluster()
        mover = Mover(cluster, MoverOptions(self.room, tick_ms=50, **options))
        task = asyncio.create_task(mover.run())
        try:
            yield mover
        finally:
            mover.stop()
            await asyncio.wait_for(task, 20)
            cluster.close()

    async def delivered(self) -> list[Message]:
        """What readers of committed records find."""
        found: list[Message] = []
        async with (
            Consumer({**self.options, "isolation.level": "read_committed"}) as consumer,
            Admin(self.options) as admin,
        ):
            places = await admin.partitions_of(self.topic)
            await consumer.assign(dict.fromkeys(places, 0))
            ends = await admin.end_offsets(places, committed_only=True)
            while any(consumer.position(place) < end for place, end in ends.items()):
                found += await consumer.poll(0.5)
        return found

    async def values(self) -> list[bytes]:
        return [message.raw_value or b"" for message in await self.delivered()]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 200,
        "log.message.timestamp.after.max.ms": 2**62,  # Its own clock stays where it is.
    }
    with Broker(settings) as broker:
        yield broker


@pytest.fixture
async def world(broker: Broker) -> World:
    world = World(broker.bootstrap)
    cluster = world.cluster()
    await create_topics(cluster, world.room)
    cluster.close()
    async with Admin(world.options) as admin:
        await admin.create_topic(world.topic, partitions=2)
    return world


async def test_records_come_when_they_are_due_as_they_were_sent(world: World):
    async with world.delays() as delays, world.moving() as mover:
        await until(lambda: mover.is_leading)
        begun = world.clock.wall_ms()
        await delays.send(world.topic, "later", key="k", headers={"own": "1"}, delay="1500ms")
        await delays.send(world.topic, "sooner", partition=1, deliver_at=datetime.now(UTC) + timedelta(seconds=0.5))
        await until(lambda: _has(world, 2))
    first, second = sorted(await world.delivered(), key=lambda message: message.timestamp)
    assert (first.raw_value, first.partition, first.headers) == (b"sooner", 1, ())
    assert (second.raw_value, second.raw_key, second.headers) == (b"later", b"k", (("own", b"1"),))
    assert 0 <= first.timestamp - begun - 500 < 1000
    assert 0 <= second.timestamp - begun - 1500 < 1000


async def test_no_step_waits_behind_a_fetch_that_waits_for_records(world: World):
    """On one connection a broker answers in order. Behind the fetches of its group each step took half a second."""
    steps = 12
    async with world.delays() as delays, world.moving(records_max=20) as mover:
        await until(lambda: mover.is_leading)
        due = datetime.fromtimestamp(world.clock.wall_ms() / 1000 + 2, UTC)
        sent = (delays.send(world.topic, str(number), deliver_at=due) for number in range(steps * 20))
        await asyncio.gather(*sent)
        await until(lambda: mover.delivered > 0)
        began = time.monotonic()
        await until(lambda: mover.delivered == steps * 20)
        took = time.monotonic() - began
    assert took < steps * 0.25
    assert sorted(map(int, await world.values())) == list(range(steps * 20))


async def _has(world: World, count: int) -> bool:
    return len(await world.values()) >= count


@pytest.mark.long
async def test_from_a_day_through_an_hour_into_a_minute(world: World):
    """Nothing comes before its time, by whichever slots it goes, and nothing twice."""
    waits = {"3h": 3, "30h": 30, "89d": 2136}
    async with world.delays() as delays:
        for delay in waits:
            await delays.send(world.topic, delay, delay=delay)
        gone: list[str] = []
        for delay, hours in waits.items():
            for early_ms in (60_000, 0):
                world.clock.ahead_ms = hours * HOUR_MS - early_ms + (1000 if not early_ms else 0)
                async with world.moving() as mover:
                    await until(lambda mover=mover: mover.is_leading)
                    if early_ms:
                        await asyncio.sleep(0.4)
                    else:
                        gone.append(delay)
                        await until(lambda: _has(world, len(gone)))
                assert sorted(value.decode() for value in await world.values()) == sorted(gone)


async def test_what_was_due_while_nobody_moved_comes_at_once(world: World):
    async with world.delays() as delays:
        for number in range(50):
            await delays.send(world.topic, str(number), delay=f"{number + 1}m")
        world.clock.ahead_ms = 40 * 24 * HOUR_MS
        async with world.moving():
            await until(lambda: _has(world, 50))
    assert sorted(map(int, await world.values())) == list(range(50))


@pytest.mark.long
async def test_a_cancelled_record_never_comes(world: World):
    async with world.delays() as delays:
        tickets = {delay: await delays.send(world.topic, delay, delay=delay) for delay in ("2s", "3h", "40d")}
        kept = await delays.send(world.topic, "kept", delay="40d")
        for ticket in tickets.values():
            assert await delays.cancel(ticket) is Cancelled.CANCELLED
        assert await delays.cancel(await delays.send(world.topic, "soon", delay="500ms")) is Cancelled.TOO_LATE
        async with world.moving():
            await until(lambda: _has(world, 1))
        world.clock.ahead_ms = 41 * 24 * HOUR_MS
        async with world.moving():
            await until(lambda: _has(world, 2))
        assert await delays.cancel(kept) is Cancelled.TOO_LATE
    assert await world.values() == [b"soon", b"kept"]


@pytest.mark.long
async def test_one_mover_moves_and_the_next_one_takes_over(world: World):
    async with world.delays() as delays:
        for number in range(200):
            await delays.send(world.topic, str(number), delay=f"{1000 + number * 10}ms")
        async with world.moving() as second:
            async with world.moving() as first:
                await until(lambda: first.is_leading or second.is_leading)
                await until(lambda: _has(world, 30))
            await until(lambda: _has(world, 200))
            assert second.is_leading
    assert sorted(map(int, await world.values())) == list(range(200))


async def test_what_cannot_be_delivered_holds_up_nobody(world: World):
    async with world.delays() as delays, Producer(world.options) as producer, world.moving():
        await delays.send("no-such-topic", "lost", delay="100ms")
        await delays.send(world.topic, "good", delay="100ms")
        slot = int(world.clock.wall_ms() // 60_000 % 72)
        await producer.produce(f"{world.room.name}.minutes", b"somebody else's", partition=slot)
        await until(lambda: _has(world, 1))
        async with (
            Consumer({**world.options, "isolation.level": "read_committed"}) as reader,
            Admin(world.options) as admin,
        ):
            letters: list[Message] = []
            await reader.assign(dict.fromkeys(await admin.partitions_of(world.room.dead_letters), 0))
            async with asyncio.timeout(20):
                while len(letters) < 2:
                    letters += await reader.poll(0.5)
    reasons = {letter.raw_value: letter.header("tailrace.delay.error") or b"" for letter in letters}
    assert b"no-such-topic does not exist" in reasons[b"lost"]
    assert b"nobody can tell when it is due" in reasons[b"somebody else's"]


async def test_times_that_cannot_be_kept_are_refused(world: World):
    async with world.delays() as delays:
        for wrong, said in (
            ({}, "either delay or deliver_at"),
            ({"delay": "91d"}, "90 days at most"),
            ({"delay": "5 minutes"}, "is not a time"),
            ({"deliver_at": datetime(2026, 1, 1)}, "has no time zone"),
        ):
            with pytest.raises(ValueError, match=said):
                await delays.send(world.topic, "x", **wrong)
        with pytest.raises(DelayError, match="is no ticket"):
            await delays.cancel("tomorrow")

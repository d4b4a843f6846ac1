"""A clock that is put forward: hours of retries in a test of a moment, with a broker in the same process."""

import time
from datetime import timedelta

from tailrace.kit import Message, Text
from tailrace.kit.app import App, Retries
from tailrace.testing import Broker, MovableClock
from tests.unit.kit.app.conftest import World, until


async def test_retries_of_hours_take_no_time():
    settings = {"group.consumer.min.heartbeat.interval.ms": 100, "group.consumer.heartbeat.interval.ms": 200}
    async with Broker(settings, in_process=True) as broker:
        world, clock, attempts = World(broker.bootstrap), MovableClock(), []
        await world.create()
        await world.write("eve")
        app = App(world.group, world.options, clock=clock)

        @app.consume(world.topic, values=Text(), retries=Retries(on_the_spot=0, steps=("10m", "6h")))
        async def handle(message: Message) -> None:
            attempts.append(clock.wall_ms())
            raise ConnectionError("away")

        began = time.monotonic()
        async with world.running(app):
            for number, (step, wait) in enumerate((("10m", timedelta(minutes=10)), ("6h", timedelta(hours=6))), 1):
                await world.read(f"{world.topic}.retry.{step}", 1)
                assert len(attempts) == number
                clock.advance(wait)
                await until(lambda number=number: len(attempts) > number)
            await world.read(f"{world.topic}.dlq", 1)
        assert time.monotonic() - began < 60
    assert len(attempts) == 3
    assert attempts[1] - attempts[0] >= 600_000
    assert attempts[2] - attempts[1] >= 6 * 3_600_000

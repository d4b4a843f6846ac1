"""What a handler costs: CPU of the client process for a record, beside a consumer that does nothing with it, and how
many a second it gets.

    python -m bench.handlers [RECORDS [ROUNDS]]

100 bytes, three partitions, one broker as a process of its own. All kinds take turns in each round, and the median
is told. Other load matters less to CPU than to the rate.
"""

import asyncio
import logging
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

import confluent_kafka

from tailrace.kit import Admin, Consumer, Message, Producer
from tailrace.kit.app import App, Retries
from tailrace.testing import Broker

SOURCE, TARGET = "source", "target"
VALUE = b"x" * 100
AT_ONCE = 10_000
BATCH = 2000
FAILING_EVERY = 100


async def main(count: int, rounds: int) -> None:
    logging.getLogger("tailrace.app").setLevel(logging.ERROR)
    with Broker() as broker:
        options = {"bootstrap.servers": broker.bootstrap}
        async with Admin(options) as admin, Producer(options) as producer:
            for name in (SOURCE, TARGET):
                await admin.create_topic(name, partitions=3)
            for _ in range(0, count, AT_ONCE):
                await producer.produce_many(SOURCE, [VALUE] * AT_ONCE)
        works: dict[str, Callable[[], Awaitable[Stopwatch]]] = {
            "polls alone, committed records": lambda: consume(options, count),
            "an async handler": lambda: handle(options, count),
            "one record of 100 goes to a retry topic": lambda: handle(options, count, failing_every=FAILING_EVERY),
            "each record makes one, exactly once": lambda: process(options, count),
            f"lists of {BATCH}": lambda: handle_lists(options, count),
            f"confluent-kafka alone: consume of {BATCH}": lambda: consume_raw(options, count),
        }
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for _ in range(rounds):
            for name, work in works.items():
                begun = _cpu_seconds()
                watch = await work()
                costs[name].append((_cpu_seconds() - begun, watch.seconds))
        for name, seconds in costs.items():
            cpu, took = (median(column) for column in zip(*seconds, strict=True))
            print(f"{name:45s} {cpu / count * 1e6:5.1f} us of CPU a record {count / took:9.0f}/s")


class Stopwatch:
    """From the first records on: joining a group takes a second or more, and is not what is asked for."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._began = 0.0
        self.seconds = 0.0

    def note(self, count: int) -> bool:
        """Whether all have come."""
        self._began = self._began or time.monotonic()
        self._left -= count
        self.seconds = time.monotonic() - self._began
        return self._left <= 0


def group() -> str:
    """A new one each time: it begins at the first record."""
    return f"bench-{time.monotonic_ns()}"


async def consume_raw(options: dict[str, str], count: int) -> Stopwatch:
    return await asyncio.to_thread(_consume_raw, options, count)


def _consume_raw(options: dict[str, str], count: int) -> Stopwatch:
    settings = {"group.protocol": "consumer", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**options, **settings, "group.id": group(), "enable.auto.commit": True})
    consumer.subscribe([SOURCE])
    watch, size, is_done = Stopwatch(count), 0, False
    while not is_done:
        found = consumer.consume(BATCH, 0.2)
        for message in found:
            assert message.error() is None
            size += len(message.value())
        is_done = bool(found) and watch.note(len(found))
    consumer.close()
    return watch


async def consume(options: dict[str, str], count: int) -> Stopwatch:
    settings = {"group.id": group(), "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    watch = Stopwatch(count)
    async with Consumer({**options, **settings}, topics=[SOURCE]) as consumer:
        found: list[Message] = []
        while not found or not watch.note(len(found)):
            found = await consumer.poll(1.0)
    return watch


async def handle_lists(options: dict[str, str], count: int) -> Stopwatch:
    app, watch, size = App(group(), options), Stopwatch(count), 0

    @app.consume(SOURCE, batch=BATCH, window_records=8 * BATCH)
    async def handler(messages: list[Message]) -> None:
        nonlocal size
        for message in messages:
            size += len(message.raw_value or b"")
        if watch.note(len(messages)):
            app.stop()

    await app.serve()
    return watch


async def handle(options: dict[str, str], count: int, *, failing_every: int = 0) -> Stopwatch:
    app, watch, seen = App(group(), options), Stopwatch(count), 0

    @app.consume(SOURCE, retries=Retries(on_the_spot=0, steps=("1d",)))
    async def handler(_message: Message) -> None:
        nonlocal seen
        seen += 1
        if watch.note(1):
            app.stop()
        if failing_every and seen % failing_every == 0:
            raise ValueError

    await app.serve()
    return watch


async def process(options: dict[str, str], count: int) -> Stopwatch:
    app, watch = App(group(), options), Stopwatch(count)

    @app.process(SOURCE, TARGET, retries=Retries(on_the_spot=0, steps=()))
    async def handler(message: Message) -> bytes | None:
        if watch.note(1):
            app.stop()
        return message.raw_value

    await app.serve()
    return watch


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    asyncio.run(main(*(given + [100_000, 1][len(given) :])))

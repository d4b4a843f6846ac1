"""What a handler costs: CPU of the client process for a record, beside a consumer that does nothing with it.

    python -m bench.handlers [RECORDS]

100 bytes, three partitions, one broker as a process of its own. CPU and not the rate, so that other load matters less.
"""

import asyncio
import logging
import resource
import sys
from collections.abc import Awaitable, Callable

from tailrace.kit import Admin, Consumer, Message, Producer
from tailrace.kit.app import App, Retries
from tailrace.testing import Broker

SOURCE, TARGET = "source", "target"
VALUE = b"x" * 100
AT_ONCE = 10_000
FAILING_EVERY = 100


async def main(count: int) -> None:
    logging.getLogger("tailrace.app").setLevel(logging.ERROR)
    with Broker() as broker:
        options = {"bootstrap.servers": broker.bootstrap}
        async with Admin(options) as admin, Producer(options) as producer:
            for name in (SOURCE, TARGET):
                await admin.create_topic(name, partitions=3)
            for _ in range(0, count, AT_ONCE):
                await producer.produce_many(SOURCE, [VALUE] * AT_ONCE)
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "polls alone, committed records": lambda: consume(options, count),
            "an async handler": lambda: handle(options, count, "plain", failing_every=0),
            "one record of 100 goes to a retry topic": lambda: handle(
                options, count, "retries", failing_every=FAILING_EVERY
            ),
            "each record makes one, exactly once": lambda: handle(options, count, "process", failing_every=0),
        }
        for name, work in works.items():
            begun = _cpu_seconds()
            await work()
            print(f"{name:45s} {(_cpu_seconds() - begun) / count * 1e6:5.1f} us of CPU a record")


async def consume(options: dict[str, str], count: int) -> None:
    settings = {"group.id": "polls", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    async with Consumer({**options, **settings}, topics=[SOURCE]) as consumer:
        while count > 0:
            count -= len(await consumer.poll(1.0))


async def handle(options: dict[str, str], count: int, kind: str, *, failing_every: int) -> None:
    app = App(kind, options)
    seen = 0

    async def handler(message: Message) -> bytes | None:
        nonlocal seen
        seen += 1
        if seen >= count:
            app.stop()
        if failing_every and seen % failing_every == 0:
            raise ValueError
        return message.raw_value

    if kind == "process":
        app.process(SOURCE, TARGET, retries=Retries(on_the_spot=0, steps=()))(handler)
    else:
        app.consume(SOURCE, retries=Retries(on_the_spot=0, steps=("1d",)))(handler)
    await app.serve()


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))

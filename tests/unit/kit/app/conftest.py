"""Topics of a test's own on a broker, records in them, and an application that runs meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from tailrace.client.admin import RESOURCE_GROUP
from tailrace.client.admin import Admin as ClientAdmin
from tailrace.kit import Admin, Consumer, Message, Outgoing, Producer
from tailrace.kit.app import App
from tailrace.kit.options import ParsedOptions
from tailrace.real.cluster import open_cluster
from tailrace.testing import Broker

DEADLINE_S = 20.0
_serial = itertools.count()


class World:
    """`topic` has no records yet, and `group` no members."""

    def __init__(self, bootstrap: str) -> None:
        self.options = {"bootstrap.servers": bootstrap, "retry.backoff.max.ms": 100}
        number = next(_serial)
        self.topic = f"orders-{number}"
        self.group = f"billing-{number}"

    def app(self, **options: object) -> App:
        return App(self.group, self.options, **options)

    async def create(self, *, partitions: int = 1, topic: str | None = None) -> None:
        async with Admin(self.options) as admin:
            await admin.create_topic(topic or self.topic, partitions=partitions)

    async def set_group(self, **settings: str) -> None:
        cluster = open_cluster(ParsedOptions(self.options, {}).bootstrap)
        await ClientAdmin(cluster).alter_configs(RESOURCE_GROUP, self.group, changes=settings)
        cluster.close()

    async def write(self, *values: object, key: str | None = None, topic: str | None = None) -> None:
        async with Producer(self.options, linger_ms=0) as producer:
            await producer.produce_many(topic or self.topic, [Outgoing(value, key=key) for value in values])

    async def read(self, topic: str, count: int) -> list[Message]:
        """That many committed records, and no more of them in the next moment."""
        found: list[Message] = []
        options = {"auto.offset.reset": "earliest", "isolation.level": "read_committed", "fetch.max.wait.ms": 50}
        async with Consumer({**self.options, **options}) as consumer, Admin(self.options) as admin:
            async with asyncio.timeout(DEADLINE_S):
                while topic not in await admin.topics():
                    await asyncio.sleep(0.02)
                await consumer.assign(await admin.partitions_of(topic))
                while len(found) < count:
                    found += await consumer.poll(0.2)
            found += await consumer.poll(0.1)
        assert len(found) == count, [message.raw_value for message in found]
        return found

    async def committed(self) -> dict[str, int]:
        async with Admin(self.options) as admin:
            return {str(partition): offset for partition, offset in (await admin.group_offsets(self.group)).items()}

    @asynccontextmanager
    async def running(self, app: App) -> AsyncIterator[None]:
        """It is stopped at the end, and what it raises is raised."""
        task = asyncio.create_task(app.serve())
        try:
            yield
        finally:
            app.stop()
            async with asyncio.timeout(DEADLINE_S):
                await task


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """One whose groups hear of each other often."""
    settings = {
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 200,
        "group.share.min.record.lock.duration.ms": 1000,
    }
    with Broker(settings) as broker:
        yield broker


@pytest.fixture
def world(broker: Broker) -> World:
    return World(broker.bootstrap)

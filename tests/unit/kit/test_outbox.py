"""Rows of a database on their way to a topic: each once, if its transaction was committed, whatever dies between."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, MetaData, Table, create_engine, insert, select

from tailrace.kit import Admin, FencedError
from tailrace.kit.outbox import Relay, RelayOptions, enqueue, outbox_table, relay
from tailrace.testing import Broker
from tests.unit.kit.app.conftest import World, until

_serial = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class Shop(World):
    """A database with an outbox, and its topic."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__(bootstrap)
        self.engine: Engine = create_engine(f"sqlite:///{folder}/shop.db")
        metadata = MetaData()
        self.table: Table = outbox_table(metadata)
        metadata.create_all(self.engine)
        self.name = f"outbox-{next(_serial)}"

    def put(self, *values: str, topic: str | None = None) -> None:
        with self.engine.begin() as connection:
            for value in values:
                enqueue(
                    connection, self.table, topic or self.topic, value.encode(), key=b"k", headers={"event-id": value}
                )

    def relay(self) -> Relay:
        return Relay(self.engine, self.table, self.options, RelayOptions(self.name, rows_max=7, poll_ms=20))

    def unsent(self) -> list[bytes]:
        with self.engine.connect() as connection:
            columns = self.table.c
            return [row[0] for row in connection.execute(select(columns.value).where(columns.sent_at.is_(None)))]

    @asynccontextmanager
    async def relaying(self) -> AsyncIterator[Relay]:
        running = self.relay()
        task = asyncio.create_task(running.run())
        try:
            yield running
        finally:
            running.stop()
            await asyncio.wait_for(task, 20)


@pytest.fixture
async def shop(broker: Broker, tmp_path: Path) -> AsyncIterator[Shop]:
    shop = Shop(broker.bootstrap, tmp_path)
    await shop.create()
    yield shop
    shop.engine.dispose()


async def test_rows_become_records_once_and_in_order(shop: Shop):
    shop.put(*(str(number) for number in range(20)))
    with shop.engine.connect() as connection:
        enqueue(connection, shop.table, shop.topic, b"rolled back")
        connection.rollback()
    async with shop.relaying():
        await until(lambda: not shop.unsent())
        shop.put("20")
        records = await shop.read(shop.topic, 21)
    assert [record.raw_value for record in records] == [b"%d" % number for number in range(21)]
    assert (records[3].raw_key, records[3].headers) == (b"k", (("event-id", b"3"),))


async def test_what_was_sent_and_not_marked_is_not_sent_again(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    """The relay dies between the two transactions."""
    shop.put("a", "b")

    def die(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(relay, "mark_sent", lambda connection, table, ids: die() if ids else None)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(shop.relay().run(), 20)
    assert shop.unsent() == [b"a", b"b"]
    async with shop.relaying():
        await until(lambda: not shop.unsent())
        await shop.read(shop.topic, 2)


async def test_a_row_with_a_lower_id_may_come_later(shop: Shop):
    with shop.engine.begin() as connection:
        connection.execute(insert(shop.table).values({"id": 10, "topic": shop.topic, "value": b"ten"}))
    async with shop.relaying():
        await until(lambda: not shop.unsent())
        with shop.engine.begin() as connection:
            connection.execute(insert(shop.table).values({"id": 3, "topic": shop.topic, "value": b"three"}))
        records = await shop.read(shop.topic, 2)
    assert [record.raw_value for record in records] == [b"ten", b"three"]


async def test_a_second_relay_fences_the_first(shop: Shop):
    shop.put("first")
    old = shop.relay()
    task = asyncio.create_task(old.run())
    await until(lambda: old.sent == 1)
    async with shop.relaying() as new:
        await until(lambda: not task.done())
        await asyncio.sleep(0.3)
        shop.put("second")
        await until(lambda: not shop.unsent())
        shop.put("third")
        with pytest.raises(FencedError):
            await asyncio.wait_for(task, 10)
        await until(lambda: not shop.unsent())
        await shop.read(shop.topic, 3)
    assert new.sent >= 1


async def test_a_row_that_cannot_be_sent_holds_up_nobody(shop: Shop):
    shop.put("good")
    shop.put("lost", topic="no-such-topic")
    shop.put("better")
    async with shop.relaying():
        await shop.read(shop.topic, 2)
        await until(lambda: shop.unsent() == [b"lost"])
    with shop.engine.connect() as connection:
        (reason,) = connection.execute(select(shop.table.c.failed).where(shop.table.c.failed.is_not(None))).scalars()
    assert "no-such-topic does not exist" in reason
    async with Admin(shop.options) as admin:
        assert "no-such-topic" not in await admin.topics()

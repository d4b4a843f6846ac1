"""Whatever is away, a client of the kit comes to an end: `flush`, `close` and `commit` have their time, and keep it."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from tailrace.kit import Admin, Consumer, Producer
from tailrace.kit.app import App
from tailrace.model.errors import KafkaError
from tailrace.testing import Broker

# Of each client, about; a call may take one of each.
QUICK = {
    "delivery.timeout.ms": 1500,
    "request.timeout.ms": 1000,
    "max.block.ms": 1500,
    "default.api.timeout.ms": 1500,
    "retry.backoff.max.ms": 100,
}
BOUND_S = 15.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Of the test's own: it is killed, or frozen, which takes requests and answers none."""
    with Broker({"group.consumer.min.heartbeat.interval.ms": 100, "group.consumer.heartbeat.interval.ms": 300}) as own:
        yield own


each_way = pytest.mark.parametrize("how", ["killed", pytest.param("frozen", marks=pytest.mark.long)])


def hurt(broker: Broker, how: str) -> None:
    if how == "killed":
        broker.kill()
    else:
        broker.pause()


@pytest.fixture(params=["tailrace", pytest.param("librdkafka", marks=pytest.mark.long)])
def options(request: pytest.FixtureRequest, broker: Broker) -> dict[str, object]:
    return {"bootstrap.servers": broker.bootstrap, "engine": request.param, **QUICK}


@each_way
async def test_a_producer_ends(broker: Broker, options: dict[str, object], how: str):
    async with Admin(options) as admin:
        await admin.create_topic("t", partitions=2)
    producer = Producer(options)
    await producer.produce("t", "before")
    hurt(broker, how)
    began = time.monotonic()
    async with asyncio.timeout(BOUND_S):
        sent = [await producer.send("t", str(number)) for number in range(500)]
        many = await producer.send_many("t", map(str, range(5000)))
        assert await producer.flush(0.2) > 0
        await producer.close()
    assert time.monotonic() - began < BOUND_S
    assert all(isinstance(each.exception(), KafkaError) for each in sent)
    assert isinstance(many.exception(), KafkaError)


@each_way
async def test_a_transaction_ends(broker: Broker, options: dict[str, object], how: str):
    async with Admin(options) as admin:
        await admin.create_topic("t", partitions=2)
    producer = Producer(options, transactional_id="t", transaction_timeout_ms=5000)
    await producer.begin()
    await producer.produce("t", "before")
    hurt(broker, how)
    async with asyncio.timeout(2 * BOUND_S):
        await producer.send("t", "after")
        with pytest.raises(KafkaError):
            await producer.commit()
        try:
            await producer.abort()
        except KafkaError:
            pass
        await producer.close()


@each_way
async def test_a_consumer_ends(broker: Broker, options: dict[str, object], how: str):
    async with Admin(options) as admin:
        await admin.create_topic("t", partitions=2)
    async with Producer(options) as producer:
        await producer.produce_many("t", map(str, range(10)))
    consumer = Consumer(options, group_id="g", auto_offset_reset="earliest", topics=["t"])
    async with asyncio.timeout(30):
        while not await consumer.poll(0.5):
            pass
    hurt(broker, how)
    async with asyncio.timeout(2 * BOUND_S):
        await consumer.poll(0.5)
        with pytest.raises(KafkaError):
            await consumer.commit()
        await consumer.close()


@each_way
async def test_an_application_ends(broker: Broker, how: str):
    """With a handler at work, records that are to move, and nobody there to take them."""
    options = {"bootstrap.servers": broker.bootstrap, **QUICK}
    async with Admin(options) as admin:
        await admin.create_topic("t", partitions=2)
    async with Producer(options) as producer:
        await producer.produce_many("t", map(str, range(100)))
    app, seen = App("a", options), []

    @app.consume("t", finish_ms=1000)
    async def handle(message: object) -> None:
        seen.append(message)
        if len(seen) == 20:
            hurt(broker, how)
        await asyncio.sleep(0.01)
        raise ValueError

    task = asyncio.create_task(app.serve())
    async with asyncio.timeout(30):
        while len(seen) < 20:
            await asyncio.sleep(0.02)
    app.stop()
    done, _ = await asyncio.wait([task], timeout=2 * BOUND_S)
    assert done
    task.exception()

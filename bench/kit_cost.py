"""What a record costs the process of a client, in microseconds of CPU, and how many a second it moves: the kit on both
engines, our client below it, and clients that others wrote, one after the other on one broker.

    python -m bench.kit_cost [SIZE ...]

One partition, idempotent, acks=all, linger 5 ms, batches of 256 KB. The broker has a process of its own. Rates mean
something only on a quiet machine.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import confluent_kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition

from tailrace.client.consumer import Consumer as ClientConsumer
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.producer import Producer as ClientProducer
from tailrace.kit import Consumer, Producer, TopicPartition
from tailrace.real.cluster import open_cluster
from tailrace.testing import Broker

RECORDS = 100_000
CHUNK = 1000
BATCH_BYTES = 256 * 1024


class Stopwatch:
    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.monotonic()

    def tell(self, name: str, size: int, count: int = RECORDS) -> None:
        cpu, wall = time.process_time() - self._cpu, time.monotonic() - self._wall
        print(f"{name:46} {size:5} B {cpu / count * 1e6:7.2f} us {count / wall:9.0f}/s", flush=True)


async def timed(name: str, size: int, work: Callable[[], Awaitable[None]]) -> None:
    watch = Stopwatch()
    await work()
    watch.tell(name, size)


async def kit_produces(bootstrap: str, engine: str, size: int) -> None:
    value = bytes(size)
    topic = f"kit-{engine}-{size}"
    async with Producer(bootstrap_servers=bootstrap, engine=engine) as producer:
        await producer.produce(topic, value)

        async def many() -> None:
            for _ in range(RECORDS // CHUNK):
                await producer.send_many(topic, [value] * CHUNK)
            await producer.flush()

        async def one_by_one() -> None:
            for _ in range(RECORDS):
                await producer.send(f"{topic}-send", value)
            await producer.flush()

        await timed(f"kit, {engine}: send_many of {CHUNK}", size, many)
        await producer.produce(f"{topic}-send", value)
        await timed(f"kit, {engine}: send", size, one_by_one)


async def kit_awaits(bootstrap: str, engine: str, size: int) -> None:
    value, count = bytes(size), RECORDS // 50
    async with Producer(bootstrap_servers=bootstrap, engine=engine, linger_ms=0) as producer:
        await producer.produce(f"kit-{engine}-{size}-await", value)
        watch = Stopwatch()
        for _ in range(count):
            await producer.produce(f"kit-{engine}-{size}-await", value)
        watch.tell(f"kit, {engine}: await produce, linger 0", size, count)


async def kit_consumes(bootstrap: str, engine: str, size: int, most: int) -> None:
    async with Consumer(bootstrap_servers=bootstrap, engine=engine) as consumer:
        await consumer.assign({TopicPartition(f"kit-{engine}-{size}", 0): 0})
        count = 0
        watch = Stopwatch()
        while count < RECORDS:
            count += len(await consumer.poll(1.0, most))
        watch.tell(f"kit, {engine}: poll of {most}", size, count)


async def client(bootstrap: str, size: int) -> None:
    cluster = open_cluster(parse_bootstrap(bootstrap))
    value = bytes(size)
    topic = f"kit-tailrace-{size}"
    async with ClientProducer(cluster) as producer:
        records = ((value, None, (), None, None) for _ in range(RECORDS))

        async def many() -> None:
            await (await producer.send_many(topic, records))

        await timed("tailrace.client: send_many", size, many)
    consumer = ClientConsumer(cluster)
    await consumer.assign({TopicPartition(topic, 0): 0})
    count = 0
    watch = Stopwatch()
    while count < RECORDS:
        count += sum(map(len, (await consumer.poll(1000)).values()))
    watch.tell("tailrace.client: poll", size, count)
    await consumer.close()
    cluster.close()


async def aiokafka(bootstrap: str, size: int) -> None:
    value = bytes(size)
    topic = f"aiokafka-{size}"
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5, max_batch_size=BATCH_BYTES
    )
    await producer.start()
    await producer.send_and_wait(topic, value)

    async def send() -> None:
        for _ in range(RECORDS):
            await producer.send(topic, value)
        await producer.flush()

    await timed("aiokafka: send", size, send)
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    where = AiokafkaPartition(topic, 0)
    consumer.assign([where])
    await consumer.seek_to_beginning(where)
    count = 0
    watch = Stopwatch()
    while count < RECORDS:
        count += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))
    watch.tell("aiokafka: getmany", size, count)
    await consumer.stop()


def librdkafka(bootstrap: str, size: int) -> None:
    value = bytes(size)
    topic = f"librdkafka-{size}"
    options = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "batch.size": BATCH_BYTES}
    producer = confluent_kafka.Producer(options | {"queue.buffering.max.messages": 0})
    producer.produce(topic, value)
    producer.flush()
    watch = Stopwatch()
    for number in range(RECORDS):
        producer.produce(topic, value, on_delivery=lambda _error, _message: None)
        if number % CHUNK == 0:
            producer.poll(0)
    producer.flush()
    watch.tell("confluent-kafka: produce, told of each", size)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    count = 0
    watch = Stopwatch()
    while count < RECORDS:
        for message in consumer.consume(2000, 1.0):
            count += message.value() is not None
    watch.tell("confluent-kafka: consume of 2000, values read", size, count)
    consumer.close()


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [100, 1000]
    with Broker({"auto.create.topics.enable": True, "num.partitions": 1}) as broker:
        for size in sizes:
            for engine in ("tailrace", "librdkafka"):
                asyncio.run(kit_produces(broker.bootstrap, engine, size))
                asyncio.run(kit_consumes(broker.bootstrap, engine, size, 500))
                asyncio.run(kit_awaits(broker.bootstrap, engine, size))
            asyncio.run(client(broker.bootstrap, size))
            asyncio.run(aiokafka(broker.bootstrap, size))
            librdkafka(broker.bootstrap, size)


if __name__ == "__main__":
    main()

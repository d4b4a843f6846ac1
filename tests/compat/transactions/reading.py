"""Consumers that read what is committed, to the end of a topic."""

import asyncio
import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from tests.compat.clients import DEADLINE_S

Read = Callable[[str, str, int], list[bytes]]


def read_confluent(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 2,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: list[bytes] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, f"{len(values)} records, and the end of {sorted(at_end)}"
        for message in consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            else:
                assert error.name() == "_PARTITION_EOF", error
                at_end.add(message.partition() or 0)
    consumer.close()
    return values


def read_kafka_python(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    import kafka

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50, enable_auto_commit=False
    )
    places = [kafka.TopicPartition(topic, partition) for partition in range(partitions)]
    consumer.assign(places)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(places)
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while any(consumer.position(place) < ends[place] for place in places):
        assert time.monotonic() < deadline, f"{len(values)} records"
        for records in consumer.poll(timeout_ms=100).values():
            values += [record.value for record in records]
    consumer.close()
    return values


def read_aiokafka(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    return asyncio.run(_read_aiokafka(bootstrap, topic, partitions))


async def _read_aiokafka(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    import aiokafka

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", fetch_max_wait_ms=50, enable_auto_commit=False
    )
    await consumer.start()
    places = [aiokafka.TopicPartition(topic, partition) for partition in range(partitions)]
    consumer.assign(places)
    await consumer.seek_to_beginning()
    ends = await consumer.end_offsets(places)
    values: list[bytes] = []
    async with asyncio.timeout(DEADLINE_S):
        while any([await consumer.position(place) < ends[place] for place in places]):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                values += [record.value for record in records]
    await consumer.stop()
    return values


READERS: dict[str, Read] = {
    "confluent": read_confluent,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
}

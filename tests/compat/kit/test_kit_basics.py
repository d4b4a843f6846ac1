"""The client kit's producer, consumer and admin, beside clients that others wrote."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
import pytest

from tailrace.kit import (
    BEGINNING,
    Admin,
    Consumer,
    DeliveryReport,
    ErrorCode,
    Json,
    KafkaError,
    Message,
    Producer,
    SerializationError,
    TopicPartition,
)

DEADLINE_S = 30.0


async def read(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            found += await consumer.poll(1.0)
    return found


async def test_what_is_produced_is_read_by_others(bootstrap: str, server: dict[str, str], topic: str) -> None:
    async with Producer(server) as producer:
        delivered = await producer.produce(topic, {"mill": "wheel"}, key="ann", headers={"n": "1"}, timestamp=1234)
    assert (delivered.partition, delivered.offset, delivered.timestamp) == ((topic, 0), 0, 1234)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    (found,) = consumer.consume(1, DEADLINE_S)
    consumer.close()
    assert (found.key(), found.value(), found.headers()) == (b"ann", b'{"mill":"wheel"}', [("n", b"1")])
    assert found.timestamp()[1] == 1234


async def test_what_others_produced_is_read(bootstrap: str, server: dict[str, str], topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b'{"mill":1}', b"ann", headers=[("n", b"1"), ("n", None)])
    producer.flush(DEADLINE_S)
    options = server | {"group.id": topic, "auto.offset.reset": "earliest"}
    async with Consumer(options, topics=[topic], values=Json()) as consumer:
        (found,) = await read(consumer, 1)
    assert (found.key, found.value, found.header("n")) == (b"ann", {"mill": 1}, None)
    assert (found.topic, found.partition, found.offset, found.headers) == (topic, 0, 0, (("n", b"1"), ("n", None)))


async def test_a_poll_gives_no_more_than_is_wanted_and_what_is_done_is_committed(
    server: dict[str, str], topic: str
) -> None:
    options = server | {"group.id": topic, "auto.offset.reset": "earliest"}
    async with Producer(server) as producer:
        assert await producer.produce_many(topic, (str(number) for number in range(100))) == 100
    where = TopicPartition(topic, 0)
    async with Consumer(options, topics=[topic], max_poll_records=30) as consumer:
        found = await read(consumer, 1)
        assert [message.value for message in found] == [b"%d" % number for number in range(len(found))]
        assert len(found) <= 30
        assert consumer.position(where) == len(found)
        assert await consumer.lag() == {where: 100 - len(found)}
    # Leaving has committed what the poll gave, and not what was fetched beyond.
    async with Consumer(options, topics=[topic]) as consumer:
        rest = await read(consumer, 100 - len(found))
        assert [message.offset for message in rest] == list(range(len(found), 100))
        assert await consumer.committed() == {where: len(found)}


async def test_paused_partitions_give_nothing_and_lose_nothing(
    server: dict[str, str], create_topic: Callable[..., str]
) -> None:
    topic = create_topic(2)
    options = server | {"group.id": topic, "auto.offset.reset": "earliest"}
    left, right = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with Producer(server) as producer, Consumer(options, topics=[topic]) as consumer:
        for where in (left, right):
            await producer.produce(topic, "first", partition=where.partition)
        await read(consumer, 2)
        consumer.pause([left])
        for where in (left, right):
            await producer.produce(topic, "second", partition=where.partition)
        assert [message.topic_partition for message in await read(consumer, 1)] == [right]
        assert await consumer.poll(0.3) == []
        assert consumer.paused == {left}
        consumer.resume([left])
        assert [(message.topic_partition, message.value) for message in await read(consumer, 1)] == [(left, b"second")]
        await consumer.seek(left, BEGINNING)
        assert [message.value for message in await read(consumer, 2)] == [b"first", b"second"]


async def test_hooks_tell_who_has_which_partitions(server: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic(2)
    options = server | {"group.id": topic, "auto.offset.reset": "earliest"}
    told: list[tuple[str, str, list[int]]] = []

    def hook(who: str, what: str) -> Any:
        async def tell(partitions: Sequence[TopicPartition]) -> None:
            await asyncio.sleep(0)
            told.append((who, what, sorted(each.partition for each in partitions)))

        return tell

    first = Consumer(options, topics=[topic], on_assigned=hook("a", "has"), on_revoked=hook("a", "gives"))
    second = Consumer(options, topics=[topic], on_assigned=hook("b", "has"))
    async with asyncio.timeout(DEADLINE_S), first:
        while not first.assignment:
            await first.poll(0.1)
        async with second:
            while len(first.assignment) != 1 or len(second.assignment) != 1:
                await asyncio.gather(first.poll(0.1), second.poll(0.1))
            assert first.assignment | second.assignment == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
            (given,) = (each.partition for each in second.assignment)
        assert told[:3] == [("a", "has", [0, 1]), ("a", "gives", [given]), ("b", "has", [given])]


async def test_a_transaction_is_seen_as_a_whole_or_not_at_all(
    server: dict[str, str], topic: str, create_topic: Callable[..., str]
) -> None:
    options = server | {"group.id": topic, "auto.offset.reset": "earliest"}
    output = create_topic()
    async with Producer(server) as producer:
        await producer.produce_many(topic, ["a", "b"])
    source = Consumer(options, topics=[topic], enable_auto_commit=False)
    async with source, Producer(server, transactional_id=topic) as producer:
        messages = await read(source, 2)
        with pytest.raises(SerializationError):
            async with producer.transaction():
                await producer.produce_many(output, ["never seen", 5])
        async with producer.transaction():
            for message in messages:
                await producer.send(output, message.value)
            where = TopicPartition(topic, 0)
            await producer.send_offsets_to_transaction({where: 2}, source.group_metadata())
        assert await source.committed() == {where: 2}
    async with Consumer(options | {"group.id": output}, topics=[output], isolation_level="read_committed") as consumer:
        assert [message.value for message in await read(consumer, 2)] == [b"a", b"b"]


async def test_what_cannot_be_written_is_refused_with_the_reason(server: dict[str, str], topic: str) -> None:
    reports: list[DeliveryReport] = []
    async with Producer(server, on_delivery=reports.append) as producer:
        with pytest.raises(SerializationError, match="a value of type int cannot be written"):
            await producer.produce(topic, 5)
        with pytest.raises(SerializationError, match=r"max\.request\.size is 1048576"):
            await producer.produce(topic, bytes(1 << 21))
        with pytest.raises(KafkaError, match="has no partition 7"):
            await producer.produce(topic, "a", partition=7)
        await producer.produce(topic, "good", key="k")
    assert [(each.key, each.value, each.error) for each in reports] == [(b"k", b"good", None)]


async def test_a_broker_that_is_away_is_told_in_time(server: dict[str, str]) -> None:
    away = server | {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": 300, "default.api.timeout.ms": 300}
    async with asyncio.timeout(DEADLINE_S):
        producer = Producer(away)
        with pytest.raises(KafkaError, match="cannot reach") as told:
            await producer.produce("topic", "value")
        assert told.value.code is ErrorCode.NETWORK_EXCEPTION
        assert await producer.flush() == 0
        await producer.close()
        async with Admin(away) as admin:
            with pytest.raises(KafkaError, match="cannot reach"):
                await admin.topics()


async def test_an_admin_makes_and_describes_topics_and_groups(
    server: dict[str, str], fresh_name: Callable[[], str]
) -> None:
    name = fresh_name()
    async with Admin(server) as admin:
        assert await admin.create_topic(name, partitions=2, config={"retention.ms": "1000"}) is not None
        assert await admin.create_topic(name, exist_ok=True) is None
        with pytest.raises(KafkaError, match="exists"):
            await admin.create_topic(name)
        assert name in await admin.topics()
        assert (await admin.topic_config(name))["retention.ms"] == "1000"
        await admin.alter_topic_config(name, {"retention.ms": "2000"})
        async with asyncio.timeout(DEADLINE_S):  # Apache Kafka tells of it a moment later.
            while (await admin.topic_config(name))["retention.ms"] != "2000":
                await asyncio.sleep(0.1)
        partitions = await admin.partitions_of(name)
        assert await admin.end_offsets(partitions) == dict.fromkeys(partitions, 0)
        await admin.alter_group_offsets(name, {partitions[0]: 0})
        assert await admin.group_lag(name) == {partitions[0]: 0}
        await admin.delete_group(name)
        await admin.delete_topic(name)
        await admin.delete_topic(name, missing_ok=True)


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(KafkaError, match=r"Unknown client config name: lingr\.ms\. Did you mean linger\.ms\?"):
        Producer(bootstrap_servers="127.0.0.1:1", lingr_ms=5)
    with pytest.raises(KafkaError, match=r"bootstrap\.servers"):
        Producer()
    with pytest.raises(KafkaError, match="Not a number"):
        Consumer(bootstrap_servers="127.0.0.1:1", max_poll_records="many")

"""The kit without asyncio: one thread runs its loop, and whoever calls may block."""

import asyncio
import itertools
import threading
from collections.abc import Callable

import pytest

from tailrace.kit import KafkaError, SerializationError, TopicPartition
from tailrace.kit.sync import Admin, Consumer, Producer

DEADLINE_S = 30.0


def test_what_is_sent_is_read_in_order(server: dict[str, str], topic: str) -> None:
    with Producer(server) as producer:
        first = producer.produce(topic, "0", key="k")
        futures = [producer.send(topic, str(number)) for number in range(1, 1000)]
        assert producer.produce_many(topic, map(str, range(1000, 2000))) == 1000
        assert producer.flush() == 0
        assert [future.result(0).offset for future in futures] == list(range(1, 1000))
        with pytest.raises(SerializationError):
            producer.send(topic, 5).result(DEADLINE_S)
    assert first.offset == 0
    options = server | {"group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer(options, topics=[topic]) as consumer:
        found = list(itertools.islice(consumer, 2000))
    assert [message.value for message in found] == [b"%d" % number for number in range(2000)]


def test_a_hook_may_call_its_consumer(server: dict[str, str], topic: str) -> None:
    options = server | {"group.id": topic, "auto.offset.reset": "earliest"}
    where = TopicPartition(topic, 0)
    with Producer(server) as producer:
        producer.produce_many(topic, ["a", "b"])

    def commit_one(partitions: object) -> None:
        assert partitions == [where]
        consumer.commit({where: 1})

    with Consumer(options, topics=[topic], enable_auto_commit=False, on_revoked=commit_one) as consumer:
        while not consumer.poll():
            pass
    with Consumer(options, topics=[topic]) as consumer:
        assert consumer.committed([where]) == {where: 1}


def test_threads_share_a_producer(server: dict[str, str], topic: str) -> None:
    with Producer(server) as producer, Admin(server) as admin:

        def send(name: str) -> None:
            for number in range(200):
                producer.send(topic, f"{name}{number}")

        threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert producer.flush() == 0
        assert admin.end_offsets([TopicPartition(topic, 0)]) == {(topic, 0): 800}


def test_transactions(server: dict[str, str], create_topic: Callable[..., str]) -> None:
    topic = create_topic()
    with Producer(server, transactional_id=topic) as producer:
        with pytest.raises(SerializationError), producer.transaction():
            producer.produce_many(topic, ["never seen", 5])
        with producer.transaction():
            producer.send(topic, "seen")
        with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
            producer.commit()
    with Consumer(server, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = []
        while not found:
            found = consumer.poll()
    assert [message.value for message in found] == [b"seen"]


def test_the_loop_of_the_kit_cannot_wait_for_itself(server: dict[str, str]) -> None:
    with Producer(server) as producer:

        async def call() -> None:
            producer.flush()

        with pytest.raises(RuntimeError, match="use the async classes"):
            asyncio.run_coroutine_threadsafe(call(), producer._thread.loop).result(DEADLINE_S)

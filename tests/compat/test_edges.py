"""The ends of the log and the limits of the broker, as clients meet them."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from .clients import DEADLINE_S, Client, Sent
from .clients.confluent import Confluent
from .clients.corpus import START_MS, small


def _first_event(consumer: Consumer) -> tuple[int | None, KafkaError | None]:
    message = consumer.poll(DEADLINE_S)
    assert message is not None, "neither a record nor an error came in time"
    return message.offset(), message.error()


def test_an_offset_that_is_gone_is_reset(bootstrap: str, topic: str, admin: AdminClient):
    Confluent().produce(bootstrap, topic, small(200))
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 100)]).values()
    assert deleted.result(DEADLINE_S).low_watermark == 100
    consumer = Confluent.consumer(bootstrap, auto_offset_reset="earliest")
    try:
        consumer.assign([TopicPartition(topic, 0, 5)])
        offset, error = _first_event(consumer)
        assert (offset, error) == (100, None)
    finally:
        consumer.close()


def test_an_offset_beyond_the_end_is_an_error_for_who_asks_for_one(bootstrap: str, topic: str):
    Confluent().produce(bootstrap, topic, small(3))
    consumer = Confluent.consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, 1_000)])
        _, error = _first_event(consumer)
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()


def test_the_end_of_the_partition_is_told(bootstrap: str, topic: str):
    Confluent().produce(bootstrap, topic, small(3))
    consumer = Confluent.consumer(bootstrap, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(topic, 0, 3)])
        offset, error = _first_event(consumer)
        assert error is not None
        assert (offset, error.code()) == (3, KafkaError._PARTITION_EOF)
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, 3)
    finally:
        consumer.close()


def test_a_waiting_reader_gets_a_new_record_at_once(bootstrap: str, topic: str):
    # The broker may hold the request for ten seconds; it must not, once there is something to answer.
    consumer = Confluent.consumer(bootstrap, fetch_wait_max_ms=10_000)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(1.0) is None
        Confluent().produce(bootstrap, topic, small(1))
        written = time.monotonic()
        offset, error = _first_event(consumer)
        assert (offset, error) == (0, None)
        assert time.monotonic() - written < 5.0
    finally:
        consumer.close()


def test_order_holds_in_each_partition(bootstrap: str, create_topic: Callable[..., str]):
    topic = create_topic(partitions=6)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(6_000):
        producer.produce(topic, value=b"%d" % number, partition=number % 6)
        if number % 500 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Confluent.consumer(bootstrap)
    seen: dict[int, list[int]] = {partition: [] for partition in range(6)}
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(6)])
        deadline = time.monotonic() + DEADLINE_S
        while sum(map(len, seen.values())) < 6_000 and time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=1.0):
                assert message.error() is None
                seen[message.partition()].append(int(message.value()))
    finally:
        consumer.close()
    assert seen == {partition: list(range(partition, 6_000, 6)) for partition in range(6)}


def test_a_record_over_the_topics_limit_is_refused(bootstrap: str, create_topic: Callable[..., str], client: Client):
    topic = create_topic(**{"max.message.bytes": "10000"})
    with pytest.raises(Exception, match=r"(?i)msg_size_too_large|MessageSizeTooLarge|MessageTooLarge|too.?large"):
        client.produce(bootstrap, topic, [Sent(b"key", b"x" * 20_000, (), START_MS)])
    client.produce(bootstrap, topic, [Sent(b"key", b"fits", (), START_MS)])
    assert client.read(bootstrap, topic, 1)[0].value == b"fits"


def test_a_compacted_topic_wants_keys(bootstrap: str, create_topic: Callable[..., str], client: Client):
    topic = create_topic(**{"cleanup.policy": "compact"})
    # aiokafka has no name for INVALID_RECORD (87), and says that it does not know the error.
    with pytest.raises(Exception, match=r"(?i)invalid.?record|UnknownError"):
        client.produce(bootstrap, topic, [Sent(None, b"no key", (), START_MS)])
    client.produce(bootstrap, topic, [Sent(b"key", b"value", (), START_MS)])
    assert client.read(bootstrap, topic, 1)[0].key == b"key"


def test_a_producer_makes_its_topic(bootstrap: str, fresh_name: Callable[[], str], client: Client):
    topic = fresh_name()
    sent = small(3)
    client.produce(bootstrap, topic, sent)
    assert [record.as_sent for record in client.read(bootstrap, topic, 3)] == sent

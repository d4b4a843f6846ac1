"""Ranges of Apache Kafka's partitions, decoded: every codec, both kinds of time, transactions, compaction, deletion."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.client.fetching import ConsumerOptions, Isolation
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.ranges import OffsetsLostError, RangeReader
from tailrace.model import ids
from tailrace.real.cluster import open_cluster
from tailrace.spark.arrow.decode import Columns, Decoder
from tests.apache_kafka import ApacheKafka

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_790_000_000_000

Row = dict[str, object]


@pytest.fixture(scope="module")
def kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {"log.cleaner.backoff.ms": "100"}
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka"), settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def create_topic(kafka: ApacheKafka) -> Callable[..., str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def create(name: str, **settings: str) -> str:
        (created,) = admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values()
        created.result(DEADLINE_S)
        return name

    return create


def read(kafka: ApacheKafka, topic: str, start: int, end: int, options: ConsumerOptions | None = None) -> list[Row]:
    return asyncio.run(_read(kafka, topic, start, end, options or ConsumerOptions()))


async def _read(kafka: ApacheKafka, topic: str, start: int, end: int, options: ConsumerOptions) -> list[Row]:
    cluster = open_cluster(parse_bootstrap(kafka.bootstrap))
    partition = ids.TopicPartition(topic, ids.PartitionIndex(0))
    reader = RangeReader(cluster, partition, start, end, options)
    decoder = Decoder(partition, start, end, Columns())
    rows: list[Row] = []
    try:
        while (fetched := await reader.next()) is not None:
            for batch in decoder.decode(fetched):
                rows += batch.to_pylist()
    finally:
        await reader.close()
        cluster.close()
    return rows


@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
def test_what_was_produced_is_decoded(kafka: ApacheKafka, create_topic: Callable[..., str], time_type: str):
    topic = create_topic(f"codecs-{time_type}", **{"message.timestamp.type": time_type})
    sent = []
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(2000):
            key = b"k%d" % number if number % 3 else None
            value = b"some text " * (number % 50) if number % 7 else None
            headers = [("a", b"1"), ("b", None), ("a", b"")][: number % 4]
            producer.produce(topic, value, key, timestamp=NOW_MS + number, headers=headers)
            sent.append((key, value, [{"key": name, "value": text} for name, text in headers] or None, NOW_MS + number))
        assert producer.flush(DEADLINE_S) == 0
    rows = read(kafka, topic, 5, len(sent) - 5, ConsumerOptions(partition_max_bytes=20_000))
    assert [row["offset"] for row in rows] == list(range(5, len(sent) - 5))
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [each[:3] for each in sent[5:-5]]
    times = [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in rows]
    if time_type == "CreateTime":
        assert times == [each[3] for each in sent[5:-5]]
    else:
        assert all(abs(found / 1000 - time.time()) < DEADLINE_S for found in times)
    assert {row["timestampType"] for row in rows} == {int(time_type == "LogAppendTime")}


def test_aborted_transactions_are_left_out(kafka: ApacheKafka, create_topic: Callable[..., str]):
    topic = create_topic("transactions")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "ranges"})
    producer.init_transactions(DEADLINE_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        assert producer.flush(DEADLINE_S) == 0  # What has not been sent yet would be dropped.
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(DEADLINE_S)
    committed = read(kafka, topic, 0, 12, ConsumerOptions(isolation=Isolation.READ_COMMITTED))
    assert [(row["offset"], row["value"]) for row in committed] == [(2, b"1"), (4, b"2"), (8, b"4"), (10, b"5")]


def test_offsets_that_were_deleted_are_named(kafka: ApacheKafka, create_topic: Callable[..., str]):
    topic = create_topic("deleted")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 40)]).values()
    deleted.result(DEADLINE_S)
    with pytest.raises(
        OffsetsLostError, match="offsets 10 to 39 of deleted-0 are lost: its log has 40 to 99"
    ) as raised:
        read(kafka, topic, 10, 90)
    rows = read(kafka, topic, raised.value.end, 90)
    assert [row["offset"] for row in rows] == list(range(40, 90))
    with pytest.raises(OffsetsLostError, match="offsets 500 to 599 of deleted-0 are lost"):
        read(kafka, topic, 500, 600)


def test_gaps_that_compaction_leaves_are_no_loss(kafka: ApacheKafka, create_topic: Callable[..., str]):
    settings = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    topic = create_topic("compacted", **settings)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 20})
    for number in range(1000):
        producer.produce(topic, b"%d" % number, b"k%d" % (number % 10))
    assert producer.flush(DEADLINE_S) == 0
    deadline = time.monotonic() + DEADLINE_S
    found = list(range(1000))
    end = 1000
    while len(found) > 10:
        assert time.monotonic() < deadline, f"{len(found)} records are left uncompacted"
        time.sleep(0.3)
        # What is written last opens a new segment, and is never compacted.
        producer.produce(topic, b"", b"other")
        assert producer.flush(DEADLINE_S) == 0
        end += 1
        found = [row["offset"] for row in read(kafka, topic, 0, 1000)]
    assert found == list(range(990, 1000))
    assert read(kafka, topic, 0, 900) == []
    assert read(kafka, topic, 0, end)[-1]["offset"] == end - 1

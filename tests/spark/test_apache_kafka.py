"""format("tailrace") against Apache Kafka 4.3: source, sink, exactly once, groups and system tables."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from tests.apache_kafka import ApacheKafka
from tests.spark.mortal import DRIVER_POINTS, NAME, POINTS, Copy, mortal_source
from tests.spark.test_exactly_once import committed

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
ROW_COUNT = 400
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(kafka_class_path, tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def create(kafka: ApacheKafka) -> Callable[..., str]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def create(name: str, partitions: int = 2) -> str:
        (created,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
        created.result(DEADLINE_S)
        return name

    return create


@pytest.fixture
def load(spark: SparkSession, kafka: ApacheKafka) -> Callable[..., DataFrame]:
    def load(**options: str) -> DataFrame:
        return (
            spark.read.format("tailrace").option("kafka.bootstrap.servers", kafka.bootstrap).options(**options).load()
        )

    return load


def fill(kafka: ApacheKafka, topic: str, count: int = ROW_COUNT, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, **settings})
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, b"k%d" % number, number % 2, headers=[("n", b"%d" % number), ("0", None)]
        )
    assert producer.flush(DEADLINE_S) == 0


def test_source_and_sink(spark: SparkSession, kafka: ApacheKafka, create, load):
    topic, copied = create("source"), create("sink")
    for codec in CODECS:
        fill(kafka, topic, **{"compression.type": codec})
    rows = load(subscribe=topic, includeHeaders="true")
    assert rows.count() == ROW_COUNT * len(CODECS)
    half = ROW_COUNT * len(CODECS) // 2
    assert (
        load(subscribe=topic, columns="partition,offset").where("partition = 1 and offset >= 10").count() == half - 10
    )
    assert load(subscribe=topic, minPartitions="6").select(F.spark_partition_id()).distinct().count() == 6
    sink = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": copied, "kafka.compression.type": "zstd"}
    kept = rows.select("key", "value", "headers", "partition")
    kept.write.format("tailrace").mode("append").options(**sink).save()
    found = load(subscribe=copied, includeHeaders="true").select("key", "value", "headers", "partition")
    assertDataFrameEqual(found, kept)


def test_committed_records_only(kafka: ApacheKafka, create, load):
    topic = create("transactions", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        assert producer.flush(DEADLINE_S) == 0
        (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(DEADLINE_S)
    found = load(subscribe=topic, columns="offset,value", **{"kafka.isolation.level": "read_committed"})
    assert [(row.offset, bytes(row.value)) for row in found.collect()] == [(2, b"1"), (4, b"2"), (8, b"4"), (10, b"5")]


def test_a_stream_shows_its_lag(spark: SparkSession, kafka: ApacheKafka, create, load, checkpoint: str):
    topic, group = create("followed"), "followers"
    fill(kafka, topic)
    sizes: list[int] = []
    for _ in range(2):
        reader = spark.readStream.format("tailrace").option("kafka.bootstrap.servers", kafka.bootstrap)
        reader = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="300", groupId=group)
        writer = reader.load().writeStream.foreachBatch(lambda rows, _: sizes.append(rows.count()))
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        fill(kafka, topic, 100)
    assert sizes == [300, 100, 100]
    watcher = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    offsets = watcher.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=DEADLINE_S)
    watcher.close()
    assert [each.offset for each in offsets] == [250, 250]

    lags = load(table="consumer_offsets").where(f"group_id = '{group}'").orderBy("partition")
    assert [(row.topic, row.committed_offset, row.lag) for row in lags.collect()] == [(topic, 250, 50)] * 2
    partitions = load(table="partitions").where(f"topic = '{topic}'").orderBy("partition")
    assert [(row.leader, row.log_start_offset, row.high_watermark) for row in partitions.collect()] == [(1, 0, 300)] * 2
    (described,) = load(table="topics").where(f"topic = '{topic}'").collect()
    assert (described.partition_count, described.replication_factor, described.is_internal) == (2, 1, False)
    assert group in [row.group_id for row in load(table="groups").collect()]


def test_exactly_once_though_tasks_and_commits_are_killed(
    spark: SparkSession, kafka: ApacheKafka, create, checkpoint: str, tmp_path: Path
):
    copy = Copy(kafka.bootstrap, create("eo-source"), create("eo-sink"), checkpoint)
    fill(kafka, copy.source)
    markers = tmp_path / "markers"
    markers.mkdir()
    points = dict(enumerate(POINTS))
    spark.dataSource.register(mortal_source(points, markers))
    rows = copy.rows(spark, maxOffsetsPerTrigger=str(ROW_COUNT // len(points)))
    for _ in DRIVER_POINTS:
        with pytest.raises(StreamingQueryException):
            copy.run(rows, sink_format=NAME)
    copy.run(rows, sink_format=NAME)
    assert {path.name for path in markers.iterdir()} == {str(batch) for batch in points}
    assert committed(copy) == Counter(range(ROW_COUNT))
    # A second query to the same topic is another writer.
    again = copy._replace(checkpoint=f"{checkpoint}-2")
    start = time.monotonic()
    again.run(again.rows(spark))
    assert time.monotonic() - start < DEADLINE_S
    assert committed(copy) == Counter(dict.fromkeys(range(ROW_COUNT), 2))

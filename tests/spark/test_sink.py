"""DataFrames written to topics, in batch and as streams, read back by librdkafka."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message
from confluent_kafka import TopicPartition as ReadPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tailrace.client.partitioner import partition_for_key
from tailrace.model.errors import KafkaError
from tailrace.spark.options.write import WriteOptions
from tailrace.spark.sink.task import write_idempotently
from tailrace.spark.sink.written import Written
from tailrace.testing import Broker, Cluster

DEADLINE_S = 60.0

Read = Callable[[str], list[Message]]


@pytest.fixture
def read(tailrace_broker: Broker) -> Read:
    return lambda topic: read_topic(tailrace_broker.bootstrap, topic)


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """All records, partition by partition in the order of their offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": False})
    partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    count = sum(consumer.get_watermark_offsets(ReadPartition(topic, each))[1] for each in partitions)
    consumer.assign([ReadPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records of {topic}"
        found += consumer.consume(count, timeout=1)
    consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def write(rows: DataFrame, bootstrap: str, **options: str) -> None:
    writer = rows.write.format("tailrace").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**options).save()


def test_all_columns_arrive(spark: SparkSession, tailrace_broker: Broker, create_topic, read: Read) -> None:
    keyed, placed = create_topic(3), create_topic(2)
    header = "array(named_struct('key', 'h', 'value', cast('1' as binary)), named_struct('key', 'n', 'value', null))"
    rows = spark.range(1000).selectExpr(
        f"if(id % 2 = 0, '{keyed}', '{placed}') AS topic",
        "if(id % 10 = 3, null, concat('k', id)) AS key",
        "if(id % 10 = 5, null, cast(concat('v', id) as binary)) AS value",
        f"if(id % 10 < 5, {header}, null) AS headers",
        "if(id % 2 = 0, null, 1) AS partition",
        "id AS offset",  # left out
    )

    write(rows, tailrace_broker.bootstrap, **{"kafka.compression.type": "lz4"})

    found = {record.value(): record for record in read(keyed)}
    assert len(read(keyed)) == 500
    for number in range(0, 1000, 2):
        record = found[b"v%d" % number]
        assert record.key() == b"k%d" % number
        assert record.partition() == partition_for_key(record.key(), 3)
        assert record.headers() == ([("h", b"1"), ("n", None)] if number % 10 < 5 else None)
    others = read(placed)
    assert {record.partition() for record in others} == {1}
    assert Counter(record.value() is None for record in others) == {True: 100, False: 400}
    assert Counter(record.key() is None for record in others) == {True: 100, False: 400}


def test_streams_add_to_the_topic(
    spark: SparkSession, tailrace_broker: Broker, create_topic, produce, checkpoint: str
) -> None:
    source, copied, counted = create_topic(2), create_topic(2), create_topic(2)
    bootstrap = {"kafka.bootstrap.servers": tailrace_broker.bootstrap}

    def run(mode: str, target: str) -> Counter[tuple[bytes, bytes]]:
        stream = spark.readStream.format("tailrace").options(**bootstrap, subscribe=source, startingOffsets="earliest")
        rows = stream.load().select("key", "value")
        if mode == "complete":
            rows = rows.groupBy("key").agg(F.count("*").cast("string").alias("value"))
        sink = rows.writeStream.format("tailrace").options(**bootstrap, topic=target).outputMode(mode)
        query = sink.option("checkpointLocation", f"{checkpoint}-{mode}").trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S)
        return Counter((each.key(), each.value()) for each in read_topic(tailrace_broker.bootstrap, target))

    produce(source, [{"key": f"k{number % 2}", "value": b"v"} for number in range(40)])
    assert run("append", copied) == {(b"k0", b"v"): 20, (b"k1", b"v"): 20}
    assert run("complete", counted) == {(b"k0", b"20"): 1, (b"k1", b"20"): 1}
    produce(source, [{"key": "k0", "value": b"v"}])
    assert run("append", copied) == {(b"k0", b"v"): 21, (b"k1", b"v"): 20}
    assert run("complete", counted) == {(b"k0", b"20"): 1, (b"k0", b"21"): 1, (b"k1", b"20"): 2}


def test_what_cannot_be_written_is_told_clearly(spark: SparkSession, tailrace_broker: Broker, create_topic) -> None:
    topic = create_topic(2)
    rows = spark.range(1).selectExpr("'k' AS key", "'v' AS value")

    for wrong, options, problem in (
        (rows.drop("value"), {"topic": topic}, "required column value not found"),
        (rows, {}, "no topic to write to"),
        (rows, {"topic": topic, "topics": "x"}, "topics"),
        (rows.withColumn("topic", F.lit(None).cast("string")), {}, "column topic is null in some rows"),
    ):
        with pytest.raises(PySparkException, match=problem):
            write(wrong, tailrace_broker.bootstrap, **options)
    writer = rows.write.format("tailrace").mode("overwrite").option("topic", topic)
    with pytest.raises(PySparkException, match="save mode overwrite is not possible"):
        writer.option("kafka.bootstrap.servers", tailrace_broker.bootstrap).save()


# --- what a task does, without Spark


def write_task(bootstrap: str, *batches: pa.RecordBatch, **options: str) -> Written:
    return write_batches(bootstrap, batches, **options)


def write_batches(bootstrap: str, batches: Iterable[pa.RecordBatch], **options: str) -> Written:
    return write_idempotently(batches, WriteOptions.parse({"kafka.bootstrap.servers": bootstrap, **options}))


def values(*some: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(some, pa.binary())})


def test_small_pieces_are_gathered_and_large_ones_cut(tailrace_broker: Broker, create_topic, read: Read) -> None:
    topic = create_topic()
    sent = [b"%06d" % number + b"x" * 994 for number in range(3000)]
    pieces = [values(*sent[:1000]), *(values(each) for each in sent[1000:2000]), values(), values(*sent[2000:])]

    # A quarter of this is encoded at a time: 300 records, in batches of 16.
    settings = {"kafka.buffer.memory": "1200000", "kafka.batch.size": "16384"}
    written = write_task(tailrace_broker.bootstrap, *pieces, topic=topic, **settings)

    assert (written.records, len(written.partitions)) == (3000, 1)
    assert [record.value() for record in read(topic)] == sent


def test_a_task_without_rows_asks_nobody() -> None:
    assert write_task("127.0.0.1:1", values(), topic="t").records == 0


def test_a_record_that_is_too_large(tailrace_broker: Broker, create_topic, read: Read) -> None:
    topic = create_topic(1, **{"max.message.bytes": "3000"})

    with pytest.raises(KafkaError, match=r"larger than\s+kafka.max.request.size, which is 1000"):
        write_task(tailrace_broker.bootstrap, values(b"x" * 1001), topic=topic, **{"kafka.max.request.size": "1000"})
    with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
        write_task(tailrace_broker.bootstrap, values(b"x" * 5000), topic=topic)
    assert read(topic) == []


def test_batches_that_are_too_large_for_the_topic_are_split(tailrace_broker: Broker, create_topic, read: Read) -> None:
    topic = create_topic(1, **{"max.message.bytes": "3000"})
    sent = [b"%04d" % number + b"x" * (number % 2000) for number in range(500)]

    # More batches than are under way at once: some of them fit, most do not.
    write_task(tailrace_broker.bootstrap, values(*sent), topic=topic, **{"kafka.batch.size": "9000"})

    assert [record.value() for record in read(topic)] == sent


def test_a_missing_topic_is_created_if_the_broker_does_so(tailrace_broker: Broker, read: Read) -> None:
    write_task(tailrace_broker.bootstrap, values(b"v"), topic="created-on-demand")
    assert [record.value() for record in read("created-on-demand")] == [b"v"]

    with (
        Broker({"auto.create.topics.enable": False}) as broker,
        pytest.raises(KafkaError, match="topic nowhere does not exist"),
    ):
        write_task(broker.bootstrap, values(b"v"), topic="nowhere")


@pytest.mark.long
def test_the_leader_dies_in_mid_write() -> None:
    with Cluster(brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        (created,) = admin.create_topics([NewTopic("t", 2, 3)]).values()
        created.result(DEADLINE_S)
        sent = [b"%06d" % number + b"x" * 994 for number in range(20_000)]

        def pieces() -> Iterator[pa.RecordBatch]:
            for start in range(0, len(sent), 1000):
                if start == 5000:
                    cluster.kill(admin.list_topics("t").topics["t"].partitions[0].leader)
                part = sent[start : start + 1000]
                places = pa.array([number % 2 for number in range(1000)], pa.int32())
                yield pa.record_batch({"value": pa.array(part, pa.binary()), "partition": places})

        settings = {"kafka.buffer.memory": "8000000", "kafka.batch.size": "65536"}
        write_batches(cluster.bootstrap, pieces(), topic="t", **settings)

        found = read_topic(cluster.bootstrap, "t")
    for partition in (0, 1):
        assert [each.value() for each in found if each.partition() == partition] == sent[partition::2]

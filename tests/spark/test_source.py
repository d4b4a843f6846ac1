"""Topics as DataFrames and streams, in a real Spark session."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.testing import assertDataFrameEqual

from tailrace.testing import Broker

DEADLINE_S = 60.0
NOON_MS = 1_700_000_000_000
# Those times are long ago.
KEEP = {"retention.ms": "-1"}
NEEDED_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
)

Load = Callable[..., DataFrame]


@pytest.fixture
def load(spark: SparkSession, tailrace_broker: Broker) -> Load:
    def load(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("tailrace").option("kafka.bootstrap.servers", tailrace_broker.bootstrap)
        return reader.options(**({"subscribe": topic} | options)).load()

    return load


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC).replace(tzinfo=None)


def test_every_column_of_a_batch(load: Load, create_topic, produce):
    topic = create_topic(**KEEP)
    produce(
        topic,
        [
            {"key": b"k", "value": b"v", "timestamp": NOON_MS, "headers": [("a", b"1"), ("b", None), ("a", b"")]},
            {"key": None, "value": None, "timestamp": NOON_MS + 1},
            {"key": b"", "value": b"\x00\xff", "timestamp": NOON_MS - 5},
        ],
    )
    found = load(topic, includeHeaders="true")
    assert found.schema.simpleString() == f"{NEEDED_SCHEMA},headers:array<struct<key:string,value:binary>>>"
    headers = [Row(key="a", value=bytearray(b"1")), Row(key="b", value=None), Row(key="a", value=bytearray(b""))]
    assertDataFrameEqual(
        found,
        [
            (bytearray(b"k"), bytearray(b"v"), topic, 0, 0, at(NOON_MS), 0, headers),
            (None, None, topic, 0, 1, at(NOON_MS + 1), 0, None),
            (bytearray(b""), bytearray(b"\x00\xff"), topic, 0, 2, at(NOON_MS - 5), 0, None),
        ],
    )
    assertDataFrameEqual(load(topic, columns="offset,value").limit(1), [(0, bytearray(b"v"))])
    assert load(topic).schema.simpleString() == f"{NEEDED_SCHEMA}>"


def test_filters_decide_what_is_read(load: Load, spark: SparkSession, create_topic, produce):
    topic = create_topic(3, **KEEP)
    rows = [
        {"value": b"v", "partition": partition, "timestamp": NOON_MS + offset * 1000}
        for partition in range(3)
        for offset in range(100)
    ]
    produce(topic, rows)
    # In New York it was 17:13:20 when the first record was made.
    ten_seconds = "timestamp >= timestamp'2023-11-14 17:14:00' and timestamp < timestamp'2023-11-14 17:14:10.000001'"
    conditions: dict[str, Callable[[int, int], bool]] = {
        "partition in (0, 2) and offset >= 10 and offset < 20": lambda partition, offset: (
            partition != 1 and 10 <= offset < 20
        ),
        f"topic = '{topic}' and partition <> 1 and offset = 99": lambda partition, offset: (
            partition != 1 and offset == 99
        ),
        "topic = 'another'": lambda partition, offset: False,
        "offset > 5 or partition = 0": lambda partition, offset: offset > 5 or partition == 0,
        ten_seconds: lambda partition, offset: 40 <= offset <= 50,
    }

    def find(condition: str) -> list[tuple[int, int]]:
        found = load(topic, columns="topic,partition,offset,timestamp", pushFilters="true").where(condition)
        return sorted((row["partition"], row["offset"]) for row in found.collect())

    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for condition, holds in conditions.items():
            expected = [
                (partition, offset) for partition in range(3) for offset in range(100) if holds(partition, offset)
            ]
            assert find(condition) == expected, condition
        # Spark has nothing left to filter.
        plan = load(topic, pushFilters="true").where(ten_seconds)._jdf.queryExecution().executedPlan().toString()
        assert "Filter" not in plan.replace("RuntimeFilters", "")
        # So it is in sessions that are not ours: Spark does it all.
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        assert find(ten_seconds) == expected
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_filters_of_one_dataframe_do_not_meet(load: Load, create_topic, produce):
    """Spark keeps the first plan of a source in Python, or the last that had a filter."""
    topic = create_topic(2)
    produce(topic, [{"value": b"v", "partition": partition} for partition in (0, 0, 0, 1, 1)])
    rows = load(topic)
    assert (rows.where("partition = 0").count(), rows.count()) == (3, 5)
    both = rows.where("partition = 0").union(rows.where("partition = 1"))
    assert sorted((row.partition, row.offset) for row in both.collect()) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_bounds_and_splits(load: Load, create_topic, produce):
    topic = create_topic(2, **KEEP)
    produce(topic, [{"value": b"v", "partition": 0, "timestamp": NOON_MS + offset} for offset in range(90)])
    produce(topic, [{"value": b"v", "partition": 1, "timestamp": NOON_MS + offset} for offset in range(10)])

    def positions(**options: str) -> dict[int, range]:
        rows = load(topic, columns="partition,offset", **options).collect()
        by_partition: dict[int, list[int]] = {}
        for partition, offset in rows:
            by_partition.setdefault(partition, []).append(offset)
        found = {partition: range(min(offsets), max(offsets) + 1) for partition, offsets in by_partition.items()}
        assert all(sorted(offsets) == list(found[partition]) for partition, offsets in by_partition.items())
        return found

    start, end = json.dumps({topic: {"0": 30, "1": -2}}), json.dumps({topic: {"0": 40, "1": -1}})
    assert positions(startingOffsets=start, endingOffsets=end) == {0: range(30, 40), 1: range(10)}
    assert positions(startingTimestamp=str(NOON_MS + 5), endingTimestamp=str(NOON_MS + 20)) == {
        0: range(5, 20),
        1: range(5, 10),
    }
    tasks = load(topic, minPartitions="4").groupBy(spark_partition_id().alias("task")).count()
    assert sorted(row["count"] for row in tasks.collect()) == [10, 22, 22, 23, 23]


def test_what_is_wrong_is_said_where_the_query_is_made(load: Load, create_topic, produce, spark, tailrace_broker):
    topic = create_topic()
    produce(topic, [{"value": b"v"}])
    with pytest.raises(PySparkException, match="there is no option startingofsets: did you mean startingOffsets"):
        load(topic, startingOfsets="earliest")
    with pytest.raises(PySparkException, match=r"kafka\.bootstrap\.servers is missing"):
        spark.read.format("tailrace").option("subscribe", topic).load()
    with pytest.raises(PySparkException, match="startingOffsets is not JSON"):
        load(topic, startingOffsets="{").count()
    soon = {"fetchOffset.retryIntervalMs": "1"}
    with pytest.raises(PySparkException, match="topic nowhere does not exist"):
        load("nowhere", **soon).count()
    beyond = json.dumps({topic: {"0": 5}})
    with pytest.raises(PySparkException, match=f"{topic}-0 is to be read from offset 5, and ends at 1"):
        load(topic, startingOffsets=beyond).count()
    with pytest.raises(PySparkException, match=f"offsets 1 to 4 of {topic}-0 are not there: its log ends at 1"):
        load(topic, endingOffsets=beyond, **soon).count()
    assert load(topic, endingOffsets=beyond, failOnDataLoss="false", **soon).count() == 1
    options = {"kafka.bootstrap.servers": tailrace_broker.bootstrap, "subscribe": topic}
    stream = spark.readStream.format("tailrace").options(**options, startingOffsets="{").load()
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="startingOffsets is not JSON") as caught:
        query.awaitTermination(DEADLINE_S)
    assert "another exception occurred" not in str(caught.value)
    strings = spark.read.format("tailrace").schema("value string").options(**options).load()
    with pytest.raises(PySparkException, match="the schema cannot be chosen"):
        strings.count()


class Run:
    """Runs of one query with one checkpoint, each up to what there is."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._checkpoint = checkpoint

    def __call__(self, topic: str, *, fails_in: int | None = None, **options: str) -> list[list[int]]:
        """The offsets of each micro-batch. Fails in one of them, after its rows were read, if told so."""
        batches: list[list[int]] = []

        def collect(rows: DataFrame, batch_id: int) -> None:
            batches.append(sorted(row["offset"] for row in rows.select("offset").collect()))
            if batch_id == fails_in:
                raise RuntimeError("as told")

        options = {"subscribe": topic, "startingOffsets": "earliest"} | options
        reader = self._spark.readStream.format("tailrace").option("kafka.bootstrap.servers", self._bootstrap)
        writer = reader.options(**options).load().writeStream.foreachBatch(collect)
        query = writer.option("checkpointLocation", self._checkpoint).trigger(availableNow=True).start()
        expected: Any = contextlib.nullcontext() if fails_in is None else pytest.raises(PySparkException)
        with expected:
            assert query.awaitTermination(DEADLINE_S)
        return batches


@pytest.fixture
def run(spark: SparkSession, tailrace_broker: Broker, checkpoint: str) -> Run:
    return Run(spark, tailrace_broker.bootstrap, checkpoint)


def test_a_stream_goes_on_from_its_checkpoint(run: Run, create_topic, produce, tailrace_broker: Broker):
    topic = create_topic()
    produce(topic, [{"value": b"v"}] * 10)
    group = f"{topic}-lag"
    options = {"maxOffsetsPerTrigger": "4", "groupId": group}
    assert run(topic, fails_in=1, **options) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    produce(topic, [{"value": b"v"}])
    # The batch that failed is the same one again, whatever has come since.
    assert run(topic, **options) == [[4, 5, 6, 7], [8, 9, 10]]
    assert run(topic, **options) == []
    watcher = Consumer({"bootstrap.servers": tailrace_broker.bootstrap, "group.id": group})
    (committed,) = watcher.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
    watcher.close()
    assert committed.offset == 11
    other = create_topic()
    with pytest.raises(PySparkException, match=f"a query that read {topic}, and this one reads {other}"):
        run(other)


def test_a_first_batch_that_fails_loses_nothing(run: Run, create_topic, produce):
    topic = create_topic()
    produce(topic, [{"value": b"v"}] * 3)
    assert run(topic, startingOffsets="latest", fails_in=0) == [[]]
    produce(topic, [{"value": b"v"}] * 2)
    assert run(topic, startingOffsets="latest") == [[], [3, 4]]


def test_only_what_was_committed(load: Load, create_topic, tailrace_broker: Broker):
    topic = create_topic()
    producer = Producer({"bootstrap.servers": tailrace_broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    for value, end in [(b"a", "commit"), (b"b", "abort"), (b"c", "commit"), (b"d", None)]:
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(DEADLINE_S)
        if end is not None:
            getattr(producer, f"{end}_transaction")(DEADLINE_S)
    committed = load(topic, columns="offset,value", **{"kafka.isolation.level": "read_committed"})
    assertDataFrameEqual(committed, [(0, bytearray(b"a")), (4, bytearray(b"c"))])
    assert load(topic).count() == 4
    producer.abort_transaction(DEADLINE_S)


@pytest.mark.skipif("TAILRACE_TEST_MASTER" in os.environ, reason="other workers than those of this machine's session")
def test_workers_import_no_archives_of_spark(spark: SparkSession):
    """`worker_python` says why."""
    (path,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.path).collect()
    assert not [each for each in path if each.endswith((".zip", ".jar")) and "pyspark" in each]

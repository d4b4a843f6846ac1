"""Spark's own Kafka connector and ours, on our broker: what one reads, writes and remembers, so does the other."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from tailrace.testing import Broker

pytestmark = pytest.mark.long

DEADLINE_S = 60.0
NOON_MS = 1_700_000_000_000
KEEP = {"retention.ms": "-1"}  # Those times are long ago.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
PER_CODEC = 300
END_OF_CREATED = NOON_MS + PER_CODEC * len(CODECS)


class Topics(NamedTuple):
    bootstrap: str
    plain: str  # nulls, headers, every codec, times of the producer
    stamped: str  # times of the broker
    transactions: str  # committed, aborted, and a last one that is open
    compacted: str  # gaps between the offsets
    trimmed: str  # begins after 0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


@pytest.fixture(scope="module")
def create(broker: Broker) -> Callable[..., str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def create(name: str, partitions: int = PARTITIONS, **settings: str) -> str:
        (created,) = admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values()
        created.result(DEADLINE_S)
        return name

    return create


@pytest.fixture(scope="module")
def topics(broker: Broker, create: Callable[..., str]) -> Iterator[Topics]:
    found = Topics(
        broker.bootstrap,
        create("plain", **KEEP),
        create("stamped", **{"message.timestamp.type": "LogAppendTime"}),
        create("transactions", 2),
        create(
            "compacted", 1, **{"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
        ),
        create("trimmed", 1),
    )
    for topic in (found.plain, found.stamped):
        fill(broker.bootstrap, topic)
    compact(broker.bootstrap, found.compacted)
    trim(broker.bootstrap, found.trimmed)
    producer = fill_transactions(broker.bootstrap, found.transactions)
    yield found
    producer.abort_transaction(DEADLINE_S)


def fill(bootstrap: str, topic: str) -> None:
    for index, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(index * PER_CODEC, (index + 1) * PER_CODEC):
            producer.produce(
                topic,
                None if number % 7 == 0 else b"" if number % 7 == 1 else b"some text \xff" * (number % 50),
                None if number % 3 == 0 else b"k%d" % number,
                partition=number % PARTITIONS,
                timestamp=NOON_MS + number,
                headers=[("a", b"1"), ("b", None), ("a", b"")][: number % 4],
            )
        assert producer.flush(DEADLINE_S) == 0


def fill_transactions(bootstrap: str, topic: str) -> Producer:
    """The producer has a transaction open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": 600_000})
    producer.init_transactions(DEADLINE_S)
    for number in range(8):
        producer.begin_transaction()
        for part in range(20):
            producer.produce(topic, b"%d-%d" % (number, part), partition=part % 2)
        assert producer.flush(DEADLINE_S) == 0
        if number < 7:
            (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)(DEADLINE_S)
    return producer


def compact(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(2000):
        producer.produce(topic, b"%d" % number, b"k%d" % (number % 10 if number % 100 else number))
    assert producer.flush(DEADLINE_S) == 0
    time.sleep(0.3)
    producer.produce(topic, b"", b"opens a new segment")
    assert producer.flush(DEADLINE_S) == 0


def trim(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 40)]).values()
    deleted.result(DEADLINE_S)


class Pair(NamedTuple):
    """Reads the same with both."""

    spark: SparkSession
    bootstrap: str
    formats: tuple[str, str]

    def load(self, form: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(form).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(includeHeaders="true", **options).load()

    def check(self, condition: str = "true", **options: str) -> int:
        """How many rows both have, equal in every column."""
        theirs, ours = (self.load(form, **options).where(condition) for form in self.formats)
        assert theirs.schema == ours.schema
        assertDataFrameEqual(ours, theirs)
        return ours.count()


@pytest.fixture(scope="module")
def pair(spark: SparkSession, topics: Topics, kafka_format: str) -> Pair:
    return Pair(spark, topics.bootstrap, (kafka_format, "tailrace"))


def test_every_kind_of_record(pair: Pair, topics: Topics):
    count = PER_CODEC * len(CODECS)
    assert pair.check(subscribe=topics.plain) == count
    assert pair.check(subscribe=topics.stamped) == count
    assert pair.check(subscribe=f"{topics.plain},{topics.stamped}") == 2 * count
    assert pair.check(subscribePattern="^(plain|trim).*") == count + 60
    assert pair.check(assign=json.dumps({topics.plain: [0, 2]})) == count * 2 // 3
    assert pair.check(subscribe=topics.trimmed) == 60


def test_transactions(pair: Pair, topics: Topics):
    assert pair.check(subscribe=topics.transactions) == 160
    committed = {"subscribe": topics.transactions, "kafka.isolation.level": "read_committed"}
    assert pair.check(**committed) == 80
    assert pair.check(**committed, minPartitions="9") == 80


def test_gaps_of_compaction(pair: Pair, topics: Topics):
    deadline = time.monotonic() + DEADLINE_S
    while pair.load("tailrace", subscribe=topics.compacted).count() >= 1000:
        assert time.monotonic() < deadline, "the topic is not compacted"
        time.sleep(0.5)
    assert 20 < pair.check(subscribe=topics.compacted) < 1000
    # Inside of a gap, and up to an offset that is gone.
    start, end = json.dumps({topics.compacted: {"0": 5}}), json.dumps({topics.compacted: {"0": 1801}})
    assert pair.check(subscribe=topics.compacted, startingOffsets=start, endingOffsets=end) > 0
    assert pair.check(subscribe=topics.compacted, minPartitions="4") > 0


def test_bounds_and_splits(pair: Pair, topics: Topics):
    plain = topics.plain
    offsets = {"0": 30, "1": -2, "2": 499}
    ends = {"0": 31, "1": 200, "2": -1}
    some = {"startingOffsets": json.dumps({plain: offsets}), "endingOffsets": json.dumps({plain: ends})}
    assert pair.check(subscribe=plain, **some) == 1 + 200 + 1
    assert pair.check(subscribe=plain, minPartitions="7") == PER_CODEC * len(CODECS)
    assert pair.check(subscribe=plain, maxRecordsPerPartition="37") == PER_CODEC * len(CODECS)
    middle = {"startingTimestamp": str(NOON_MS + 301), "endingTimestamp": str(NOON_MS + 900)}
    assert pair.check(subscribe=plain, **middle) == 599
    by_partition = {
        "startingOffsetsByTimestamp": json.dumps({plain: {"0": NOON_MS, "1": NOON_MS + 700, "2": NOON_MS + 1}}),
        "endingOffsetsByTimestamp": json.dumps({plain: {"0": NOON_MS + 3, "1": END_OF_CREATED, "2": NOON_MS + 3}}),
    }
    assert pair.check(subscribe=plain, **by_partition) > 250
    late = {"startingTimestamp": str(END_OF_CREATED), "startingOffsetsByTimestampStrategy": "latest"}
    assert pair.check(subscribe=plain, **late) == 0


@pytest.mark.parametrize(
    "condition",
    [
        "partition = 1 and offset between 10 and 20",
        "topic <> 'plain' or offset >= 490",
        "timestamp >= timestamp'2023-11-14 22:13:20.300' and timestamp <= timestamp'2023-11-14 22:13:20.500'",
        "key is null and value is not null",
        "partition in (0, 5) and timestampType = 0 and offset < 3",
        "exists(headers, header -> header.value is null)",
    ],
)
def test_filters(pair: Pair, topics: Topics, condition: str):
    assert pair.check(condition, subscribe=topics.plain) > 0


ROW_COUNT = 1000


def rows_to_write(spark: SparkSession) -> DataFrame:
    number = F.col("id").cast("string")
    header = F.struct(F.lit("n").alias("key"), number.cast("binary").alias("value"))
    return spark.range(ROW_COUNT, numPartitions=3).select(
        F.when(F.col("id") % 5 > 0, F.concat(F.lit("key-"), number)).alias("key"),
        F.when(F.col("id") % 11 > 0, number).alias("value"),
        F.when(F.col("id") % 2 > 0, F.array(header)).alias("headers"),
        F.when(F.col("id") % 5 == 0, (F.col("id") % PARTITIONS).cast("int")).alias("partition"),
    )


def test_what_one_writes_the_other_reads(pair: Pair, create: Callable[..., str], tmp_path):
    written = []
    for form in pair.formats:
        topic = create(f"batch-of-{form}")
        sink: Mapping[str, str] = {
            "kafka.bootstrap.servers": pair.bootstrap,
            "topic": topic,
            "includeHeaders": "true",
            "kafka.compression.type": "lz4",
        }
        rows_to_write(pair.spark).write.format(form).options(**sink).mode("append").save()
        assert pair.check(subscribe=topic) == ROW_COUNT
        written.append(pair.load("tailrace", subscribe=topic).drop("offset", "timestamp", "topic"))
        # On to another topic by a stream, read by one and written by the other.
        source, other = (form, "tailrace") if form != "tailrace" else (form, pair.formats[0])
        copied = create(f"copied-from-{form}")
        rows = pair.spark.readStream.format(source).options(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="300", **sink
        )
        kept = rows.load().select("key", "value", "headers", "partition")
        writer = kept.writeStream.format(other).options(**{**sink, "topic": copied})
        writer = writer.option("checkpointLocation", str(tmp_path / form))
        assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
        assert pair.check(subscribe=copied) == ROW_COUNT
        written.append(pair.load("tailrace", subscribe=copied).drop("offset", "timestamp", "topic"))
    # Keys went to the same partitions, whoever wrote them.
    for other in written[1:]:
        assertDataFrameEqual(other, written[0])


def test_a_checkpoint_goes_from_hand_to_hand(pair: Pair, create: Callable[..., str], checkpoint: str):
    topic = create("handed", 2)
    producer = Producer({"bootstrap.servers": pair.bootstrap})
    seen: list[tuple[int, int]] = []
    expected: list[tuple[int, int]] = []

    def more(count: int) -> None:
        known = len(expected) // 2
        for offset in range(known, known + count // 2):
            for partition in range(2):
                producer.produce(topic, b"v", partition=partition)
                expected.append((partition, offset))
        assert producer.flush(DEADLINE_S) == 0

    def run(form: str, fails_after: int | None = None) -> Sequence[int]:
        """The sizes of the micro-batches that were finished; those without a row are none. Fails in the next one after
        so many, when its rows were read."""
        sizes: list[int] = []

        def collect(rows: DataFrame, batch_id: int) -> None:
            found = [(row["partition"], row["offset"]) for row in rows.collect()]
            if len(sizes) == fails_after:
                raise RuntimeError(f"batch {batch_id} fails as told")
            if found:
                seen.extend(found)
                sizes.append(len(found))

        reader = pair.spark.readStream.format(form).option("kafka.bootstrap.servers", pair.bootstrap)
        reader = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
        writer = reader.load().writeStream.foreachBatch(collect).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if fails_after is None:
            assert query.awaitTermination(DEADLINE_S)
        else:
            with pytest.raises(StreamingQueryException, match="fails as told"):
                query.awaitTermination(DEADLINE_S)
        return sizes

    official, ours = pair.formats
    more(100)
    assert run(official) == [40, 40, 20]
    more(80)
    assert run(ours) == [40, 40]
    more(60)
    assert run(official, fails_after=1) == [40]
    # The batch that failed with one is finished by the other.
    assert run(ours) == [20]
    more(40)
    assert run(ours, fails_after=0) == []
    assert run(official) == [40]
    assert run(ours) == []
    assert sorted(seen) == sorted(expected)

"""Brokers that die while they are read from."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tailrace.spark.source.schema import topic_schema
from tailrace.spark.source.stream import TopicStreamReader
from tailrace.testing import Cluster

DEADLINE_S = 120.0
PARTITIONS = 6
RECORDS = 6000

pytestmark = pytest.mark.long


@pytest.fixture
def options(fresh_tailrace_cluster: Cluster) -> dict[str, str]:
    """Options to read a topic with RECORDS records of 1 KB, equally many in each partition."""
    settings = {"bootstrap.servers": fresh_tailrace_cluster.bootstrap}
    admin = AdminClient(settings)
    (created,) = admin.create_topics([NewTopic("t", PARTITIONS, 3)]).values()
    created.result(DEADLINE_S)
    producer = Producer(settings)
    for number in range(RECORDS):
        producer.produce("t", b"%d" % number + bytes(1000), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    return {
        "kafka.bootstrap.servers": fresh_tailrace_cluster.bootstrap,
        "subscribe": "t",
        "startingoffsets": "earliest",
        # Several fetches for each partition.
        "kafka.max.partition.fetch.bytes": "100000",
    }


def leader_of(cluster: Cluster, partition: int) -> int:
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("t", timeout=DEADLINE_S).topics
    return int(topics["t"].partitions[partition].leader)


def test_a_leader_dies_while_a_task_reads(fresh_tailrace_cluster: Cluster, options: dict[str, str]):
    options |= {"targetrecordspertask": "0"}
    reader = TopicStreamReader(options, topic_schema(options))
    start = reader.initialOffset()
    (split,) = [
        found
        for found in reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        if found.value.splits[0].partition.partition == 0
    ]
    batches = reader.read(split)
    offsets = next(batches).column("offset").to_pylist()
    assert len(offsets) < RECORDS // PARTITIONS
    fresh_tailrace_cluster.kill(leader_of(fresh_tailrace_cluster, 0))
    for batch in batches:
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(RECORDS // PARTITIONS))
    # The planner has lost a connection too.
    assert reader.latestOffset(start, ReadAllAvailable())["t"]["0"] == RECORDS // PARTITIONS
    reader.stop()


def test_brokers_die_one_after_the_other_under_a_stream(
    spark: SparkSession, fresh_tailrace_cluster: Cluster, options: dict[str, str], tmp_path: Path
):
    found: list[tuple[int, int]] = []

    def collect(rows: DataFrame, batch_id: int) -> None:
        found.extend((row["partition"], row["offset"]) for row in rows.select("partition", "offset").collect())
        victim = batch_id % 3
        if victim:
            fresh_tailrace_cluster.kill(fresh_tailrace_cluster.broker_ids[victim])
        elif batch_id:
            for broker in fresh_tailrace_cluster.broker_ids[1:]:
                fresh_tailrace_cluster.start(broker)

    reader = spark.readStream.format("tailrace").options(**options, maxOffsetsPerTrigger="1000")
    writer = reader.load().writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S)
    assert len(found) == RECORDS
    assert set(found) == {(number % PARTITIONS, number // PARTITIONS) for number in range(RECORDS)}

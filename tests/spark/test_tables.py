"""System tables over a real broker, read as a data engineer does: in SQL."""

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.testing import assertDataFrameEqual

from tailrace.testing import Broker

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def views(spark: SparkSession, tailrace_broker: Broker) -> None:
    for table in ("topics", "partitions", "groups", "consumer_offsets"):
        spark.sql(
            f"CREATE OR REPLACE TEMPORARY VIEW kafka_{table} USING tailrace "
            f"OPTIONS (table '{table}', `kafka.bootstrap.servers` '{tailrace_broker.bootstrap}')"
        )


@pytest.mark.usefixtures("views")
def test_topics_and_partitions(spark: SparkSession, create_topic, produce) -> None:
    topic = create_topic(partitions=2, **{"retention.ms": "3600000"})
    produce(topic, [{"value": b"x", "partition": 1}] * 3)
    topics = spark.sql(
        "SELECT length(topic_id) AS id, is_internal, partition_count, replication_factor, configs['retention.ms'] AS "
        f"retention FROM kafka_topics WHERE topic = '{topic}'"
    )
    assertDataFrameEqual(
        topics, [Row(id=22, is_internal=False, partition_count=2, replication_factor=1, retention="3600000")]
    )
    partitions = spark.sql(f"SELECT * FROM kafka_partitions WHERE topic = '{topic}' ORDER BY partition").collect()
    node = partitions[0].leader
    assert [row.asDict() for row in partitions] == [
        {
            "topic": topic,
            "partition": index,
            "leader": node,
            "leader_epoch": 0,
            "replicas": [node],
            "isr": [node],
            "offline_replicas": [],
            "log_start_offset": 0,
            "high_watermark": end,
            "last_stable_offset": end,
        }
        for index, end in ((0, 0), (1, 3))
    ]


@pytest.mark.usefixtures("views")
def test_groups_and_their_offsets(spark: SparkSession, tailrace_broker: Broker, create_topic, produce, admin) -> None:
    topic, deleted = create_topic(partitions=2), create_topic()
    produce(topic, [{"value": b"x", "partition": 0}] * 5)
    group_id = f"{topic}-readers"
    settings = {"bootstrap.servers": tailrace_broker.bootstrap, "group.id": group_id, "client.id": "till"}
    member = Consumer(settings)
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.1)
    positions = [TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 0), TopicPartition(deleted, 0, 0)]
    member.commit(offsets=positions, asynchronous=False)
    assert admin.delete_topics([deleted])[deleted].result(DEADLINE_S) is None

    lag = (
        "SELECT topic, partition, committed_offset, high_watermark, lag FROM kafka_consumer_offsets "
        f"WHERE group_id = '{group_id}'"
    )
    found = spark.sql(lag).collect()
    assert Row(topic, 0, 2, 5, 3) in found
    assert Row(topic, 1, 0, 0, 0) in found
    # Its offsets go with a topic, sooner or later; till then the end is not known.
    assert all(row == Row(deleted, 0, 0, None, None) for row in found if row.topic != topic)

    groups = f"SELECT type, protocol_type, state, assignor, members FROM kafka_groups WHERE group_id = '{group_id}'"
    (group,) = spark.sql(groups).collect()
    assert (group.type, group.protocol_type, group.state, group.assignor) == (
        "classic", "consumer", "Stable", "range"
    )  # fmt: skip
    (found_member,) = group.members
    assert (found_member.client_id, found_member.host) == ("till", "127.0.0.1")
    assert sorted(found_member.assignment) == [Row(topic=topic, partition=0), Row(topic=topic, partition=1)]
    member.close()
    (left,) = spark.sql(groups).collect()
    assert (left.state, left.members) == ("Empty", [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "topic"}, "did you mean topics"),
        ({"table": "topics", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"table": "topics", "subscribbe": "x"}, "did you mean subscribe"),
    ],
)
def test_wrong_options_are_explained(spark: SparkSession, tailrace_broker: Broker, options, message) -> None:
    asked = {"kafka.bootstrap.servers": tailrace_broker.bootstrap} | options
    with pytest.raises(PySparkException, match=message):
        spark.read.format("tailrace").options(**asked).load().collect()

"""What Spark shows of a cluster's state and where it puts bad records, with Apache Kafka 4.3 as the cluster."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.datasource import InputPartition

from tailrace.spark.arrow.decode import Columns, arrow_schema
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.tables import TableReader, table_schema
from tailrace.spark.values import RecordFormat
from tests.apache_kafka import ApacheKafka

from .clients import DEADLINE_S

pytestmark = pytest.mark.long


def read_table(bootstrap: str, table: str) -> list[dict[str, Any]]:
    options = {"table": table, "kafka.bootstrap.servers": bootstrap}
    names = table_schema(options).names
    return [dict(zip(names, row, strict=True)) for row in TableReader(options).read(InputPartition(None))]


def test_tables_and_dead_letters(kafka_class_path: str, tmp_path: Path) -> None:
    with ApacheKafka(kafka_class_path, tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        wanted = [NewTopic("orders", 2, 1, config={"retention.ms": "3600000"}), NewTopic("dead", 1, 1)]
        for created in admin.create_topics(wanted).values():
            created.result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for _ in range(5):
            producer.produce("orders", b"x", partition=1)
        assert producer.flush(DEADLINE_S) == 0
        for protocol in ("classic", "consumer"):
            settings = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
            member = Consumer({"bootstrap.servers": kafka.bootstrap, "client.id": "till"} | settings)
            member.subscribe(["orders"])
            assert len(member.consume(5, DEADLINE_S)) == 5
            member.commit(offsets=[TopicPartition("orders", 1, 3)], asynchronous=False)
            check_tables(kafka.bootstrap, protocol)
            member.close()
        check_dead_letters(kafka.bootstrap)


def check_tables(bootstrap: str, protocol: str) -> None:
    topics = {row["topic"]: row for row in read_table(bootstrap, "topics")}
    assert topics["orders"]["configs"] == {"retention.ms": "3600000"}
    assert topics["orders"]["partition_count"] == 2
    assert topics["__consumer_offsets"]["is_internal"]
    (partition,) = (
        row for row in read_table(bootstrap, "partitions") if (row["topic"], row["partition"]) == ("orders", 1)
    )
    assert (partition["leader"], partition["isr"]) == (1, [1])
    assert (partition["log_start_offset"], partition["high_watermark"], partition["last_stable_offset"]) == (0, 5, 5)
    (group,) = (row for row in read_table(bootstrap, "groups") if row["group_id"] == protocol)
    assert (group["type"], group["state"], group["coordinator"]) == (protocol, "Stable", 1)
    ((_, _, client_id, _, assignment),) = group["members"]
    assert (client_id, sorted(assignment)) == ("till", [("orders", 0), ("orders", 1)])
    (offset,) = (
        row for row in read_table(bootstrap, "consumer_offsets") if (row["group_id"], row["partition"]) == (protocol, 1)
    )
    assert (offset["committed_offset"], offset["high_watermark"], offset["lag"]) == (3, 5, 2)


def check_dead_letters(bootstrap: str) -> None:
    options = {
        "value.format": "json",
        "value.schema": "id INT",
        "ondecodeerror": "deadletter",
        "deadlettertopic": "dead",
    }
    record_format = RecordFormat.parse(options)
    settings = parse_kafka_settings({"kafka.bootstrap.servers": bootstrap})
    schema = arrow_schema(Columns(record_format.raw_columns(["value"])))
    record = {
        "value": b"!",
        "key": b"k",
        "topic": "orders",
        "partition": 1,
        "offset": 4,
        "timestamp": 0,
        "headers": None,
    }
    batch = pa.RecordBatch.from_arrays(
        [pa.array([record[name]], schema.field(name).type) for name in schema.names], schema=schema
    )
    with BlockingCluster(settings) as blocking:
        record_format.check_dead_letter_topic(blocking, settings)
        assert [each.num_rows for each in record_format.decode([batch], ["value"], blocking, settings)] == [0]
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    reader.assign([TopicPartition("dead", 0, 0)])
    (letter,) = reader.consume(1, DEADLINE_S)
    reader.close()
    assert (letter.key(), letter.value()) == (b"k", b"!")
    assert dict(letter.headers())["tailrace.deadletter.offset"] == b"4"

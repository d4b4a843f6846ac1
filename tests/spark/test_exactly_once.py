"""exactlyOnce through Spark: tasks and drivers are killed at every step, and each row is in the topic once."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tailrace.testing import Broker
from tests.spark.mortal import DRIVER_POINTS, NAME, POINTS, TASK_POINTS, copying_query, mortal_source, run_copy

PARTITIONS = 2
ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(create_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    topic = create_topic(PARTITIONS)
    produce(topic, ({"value": b"%d" % number, "partition": number % PARTITIONS} for number in range(400)))
    return topic


@pytest.fixture
def sink(create_topic: Callable[..., str]) -> str:
    return create_topic(PARTITIONS)


def read_committed(broker: Broker, topic: str) -> Counter[int]:
    """Everything that is committed, once no transaction is open there any more."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    deadline = time.monotonic() + 30
    found: Counter[int] = Counter()
    try:
        for partition in partitions:
            _, end = consumer.get_watermark_offsets(partition, timeout=10)
            consumer.assign([partition])
            while consumer.position([partition])[0].offset < end and time.monotonic() < deadline:
                message = consumer.poll(1)
                if message is not None and not message.error():
                    found[int(message.value())] += 1
                elif message is not None and consumer.get_watermark_offsets(partition)[1] >= end:
                    break  # Only markers are left.
    finally:
        consumer.close()
    return found


def test_tasks_and_commits_that_are_killed(
    spark: SparkSession, tailrace_broker: Broker, source: str, sink: str, checkpoint: str, tmp_path: Path
):
    bootstrap = tailrace_broker.bootstrap
    points = dict(enumerate(POINTS))
    spark.dataSource.register(mortal_source(points, tmp_path))
    rows = copying_query(spark, bootstrap, source, maxOffsetsPerTrigger=str(400 // len(points)))
    failures = 0
    while True:
        try:
            run_copy(rows, bootstrap, sink, checkpoint)
            break
        except StreamingQueryException:
            failures += 1
            assert failures <= len(DRIVER_POINTS)
    # A task is run again by Spark; a commit that fails ends the run.
    assert failures == len(DRIVER_POINTS)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {str(batch) for batch in points}
    assert read_committed(tailrace_broker, sink) == Counter(range(400))

"""`tailrace balance` against a cluster of Apache Kafka 4.3: by sizes, under its throttles, and after a kill -9."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.client.admin import Admin
from tailrace.client.metadata import parse_bootstrap
from tailrace.real.cluster import open_cluster
from tests.apache_kafka import ApacheKafka

pytestmark = pytest.mark.long

TOPIC = "skewed"
PARTITIONS = 9
RECORDS = 9_000
SIZE_BYTES = 2_000


@pytest.fixture(scope="module")
def kafka(kafka_class_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Three brokers; all the data lies on the first."""
    folders = [tmp_path_factory.mktemp(f"kafka-{node}") for node in (1, 2, 3)]
    with ApacheKafka(kafka_class_path, folders[0]) as first:
        others = [
            ApacheKafka(kafka_class_path, folder, node_id=node, controller=first.controller)
            for node, folder in zip((2, 3), folders[1:], strict=True)
        ]
        try:
            for other in others:
                other.__enter__()
            _fill(first.bootstrap)
            yield first
        finally:
            for other in others:
                other.kill()


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=[[1]] * PARTITIONS)
    admin.create_topics([topic])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"x" * SIZE_BYTES, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def command(kafka: ApacheKafka, *words: str) -> list[str]:
    return [sys.executable, "-m", "tailrace", "balance", *words, "--json", "--bootstrap", kafka.bootstrap]


def balance(kafka: ApacheKafka, *words: str) -> Any:
    done = subprocess.run(command(kafka, *words), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def throttles(kafka: ApacheKafka) -> dict[str, str]:
    """What is set of them, for the topic and for all brokers."""

    async def ask() -> dict[str, str]:
        cluster = open_cluster(parse_bootstrap(kafka.bootstrap))
        entries = [each for where in ((2, TOPIC), (4, "")) for each in await Admin(cluster).configs_of(*where)]
        cluster.close()
        return {each.name: each.value for each in entries if "throttled" in each.name and each.value}

    return asyncio.run(ask())


def test_a_killed_run_is_taken_up_and_leaves_no_throttle(kafka: ApacheKafka):
    plan = balance(kafka, "plan")
    assert plan["problems"] == []
    assert plan["before"]["disk"] > 1
    assert plan["after"]["disk"] <= 0.1
    assert plan["bytes"] >= 0.6 * RECORDS * SIZE_BYTES
    assert throttles(kafka) == {}

    running = subprocess.Popen(command(kafka, "run", "--throttle", "300kB/s"), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(throttles(kafka)) < 4:
        assert time.monotonic() < deadline, throttles(kafka)
        time.sleep(0.2)
    running.kill()
    running.wait()
    assert "2147483647:" in throttles(kafka)["leader.replication.throttled.replicas"]

    outcome = balance(kafka, "run", "--throttle", "20MB/s")
    assert outcome["given_up"] == []
    assert outcome["spread"]["disk"] <= 0.1
    assert throttles(kafka) == {}
    assert balance(kafka, "plan")["moves"] == []
    _read_all(kafka)


def test_a_drained_broker_is_empty_and_gets_its_share_back(kafka: ApacheKafka):
    balance(kafka, "run", "--throttle", "20MB/s")
    balance(kafka, "run", "--drain", "2", "--throttle", "20MB/s")
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics[TOPIC]
    assert not any(2 in each.replicas for each in metadata.partitions.values())
    balance(kafka, "run", "--throttle", "20MB/s")
    metadata = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics[TOPIC]
    assert sum(2 in each.replicas for each in metadata.partitions.values()) == PARTITIONS / 3
    assert throttles(kafka) == {}
    _read_all(kafka)


def _read_all(kafka: ApacheKafka) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "all", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    deadline, count = time.monotonic() + 60, 0
    while count < RECORDS and time.monotonic() < deadline:
        count += sum(1 for message in consumer.consume(1000, 1.0) if not message.error())
    consumer.close()
    assert count == RECORDS

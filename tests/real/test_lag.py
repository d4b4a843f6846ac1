"""Lag of groups as a cluster tells it: in records, in seconds and as a verdict; most leaders are on other brokers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.testing import Cluster

INTERVAL_MS = 300
PARTITIONS = 6


def command(*words: str) -> str:
    run = [sys.executable, "-m", "tailrace", *words]
    return subprocess.run(run, check=True, capture_output=True, text=True, timeout=60).stdout


def send(producer: Producer, count: int) -> None:
    for number in range(count * PARTITIONS):
        producer.produce("orders", b"x", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def sums(cluster: Cluster, name: str, **labels: str) -> float:
    return sum(cluster.metrics(node).sum(name, **labels) for node in (1, 2, 3))


def wait_until(holds: Callable[[], bool], what: str) -> None:
    for _ in range(200):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(what)


def test_lag_in_records_in_seconds_and_a_verdict():
    with Cluster({"metrics.lag.interval.ms": INTERVAL_MS}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS, 3)])["orders"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        send(producer, 10)
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "billing", "enable.auto.commit": False}
        )
        places = [TopicPartition("orders", index, 10) for index in range(PARTITIONS)]
        consumer.commit(offsets=places, asynchronous=False)
        verdict = "tailrace_group_verdict"
        wait_until(lambda: sums(cluster, verdict, group="billing", verdict="OK") == 1, "nothing is behind")
        assert sums(cluster, "kafka_consumergroup_lag", consumergroup="billing") == 0
        send(producer, 5)
        wait_until(lambda: sums(cluster, "kafka_consumergroup_lag", consumergroup="billing") == 30, "30 behind")
        assert sums(cluster, "kafka_consumergroup_lag_sum", consumergroup="billing", topic="orders") == 30
        assert sums(cluster, "kafka_consumergroup_current_offset", consumergroup="billing") == 60
        wait_until(lambda: sums(cluster, verdict, group="billing", verdict="STOP") == 1, "it has stopped")
        time.sleep(2)
        ages = [
            sums(cluster, "tailrace_group_lag_seconds", group="billing", partition=str(index))
            for index in range(PARTITIONS)
        ]
        assert all(1.5 < age < 60 for age in ages), ages
        at = ("--json", "--bootstrap", cluster.bootstrap)
        (listed,) = [json.loads(line) for line in command("group", "list", *at).splitlines()]
        assert (listed["group_id"], listed["lag"], listed["verdict"]) == ("billing", 30, "STOP")
        described = json.loads(command("group", "describe", "billing", *at))
        assert {each["verdict"] for each in described["partitions"]} == {"STOP"}
        consumer.commit(
            offsets=[TopicPartition("orders", index, 15) for index in range(PARTITIONS)], asynchronous=False
        )
        wait_until(lambda: sums(cluster, verdict, group="billing", verdict="OK") == 1, "it has caught up")
        consumer.close()

"""A balancer and a broker are killed in mid-run: nothing is lost, no throttle stays, and the cluster is even."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tailrace.cli import main
from tailrace.client.admin import Admin
from tailrace.client.metadata import parse_bootstrap
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.testing import LOW_LATENCY, Cluster

from .observe import assert_replicas_equal, create_topic, partitions_of, wait_in_sync
from .traffic import Traffic

pytestmark = pytest.mark.long

TOPIC = "moved"
PARTITIONS = 8
DEADLINE_S = 90.0


def command(cluster: Cluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "tailrace", *words, "--json", "--bootstrap", cluster.bootstrap]


def tailrace(cluster: Cluster, *words: str) -> Any:
    done = subprocess.run(command(cluster, *words), capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def throttle_of(cluster: Cluster) -> str:
    settings = tailrace(cluster, "topic", "describe", TOPIC)["settings"]
    return str(settings.get("leader.replication.throttled.replicas", {}).get("value") or "")


def wait(cluster: Cluster, *, throttled: bool) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while bool(throttle_of(cluster)) is not throttled:
        assert time.monotonic() < deadline, throttle_of(cluster)
        time.sleep(0.1)


def test_kill_of_the_balancer_and_of_a_broker():
    settings = {**LOW_LATENCY, "leader.imbalance.check.interval.seconds": "5"}
    with Cluster(settings, brokers=3) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        wait_in_sync(cluster.bootstrap, TOPIC)
        traffic = Traffic(cluster.bootstrap, TOPIC, PARTITIONS)
        traffic.wait_acked(3000)
        added = subprocess.Popen(
            command(cluster, "cluster", "add", "--throttle", "20kB/s", "--at-once", "2"), stdout=subprocess.DEVNULL
        )
        wait(cluster, throttled=True)
        added.kill()
        added.wait()
        # A broker dies while the moves of the dead balancer go on.
        cluster.kill(2)
        tailrace(cluster, "balance", "stop")
        assert throttle_of(cluster) == ""
        cluster.start(2)
        outcome = tailrace(cluster, "balance", "run", "--throttle", "20MB/s")
        assert outcome["given_up"] == []
        assert throttle_of(cluster) == ""
        traffic.wait_acked(500)
        traffic.finish()
        wait_in_sync(cluster.bootstrap, TOPIC)
        held = [node for each in partitions_of(cluster.bootstrap, TOPIC).values() for node in each.replicas]
        assert min(held.count(node) for node in (1, 2, 3, 4)) >= 3, held
        traffic.check()
        assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)


def test_the_cluster_itself_takes_away_what_a_dead_balancer_has_left():
    settings = {**LOW_LATENCY, "leader.imbalance.check.interval.seconds": "2"}
    with Cluster(settings, brokers=3) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        wait_in_sync(cluster.bootstrap, TOPIC)
        traffic = Traffic(cluster.bootstrap, TOPIC, PARTITIONS)
        traffic.wait_acked(3000)
        traffic.finish()
        added = subprocess.Popen(command(cluster, "cluster", "add", "--throttle", "50kB/s"), stdout=subprocess.DEVNULL)
        wait(cluster, throttled=True)
        added.kill()
        added.wait()
        wait(cluster, throttled=False)
        traffic.check()


def test_a_cluster_that_balances_itself():
    """By the process beside the first broker, and once that is dead by the one beside the second."""
    settings = {**LOW_LATENCY, "tailrace.balancer.enable": "true", "tailrace.balancer.interval.ms": "1000"}
    with Cluster(settings, brokers=3) as cluster:
        _create_on(cluster, "first", 2)
        _wait_spread(cluster, "first", {1, 2, 3})
        cluster.kill(1)
        _create_on(cluster, "second", 2)
        _wait_spread(cluster, "second", {2, 3})


def _create_on(cluster: Cluster, topic: str, node: int) -> None:
    async def create() -> None:
        client = open_cluster(parse_bootstrap(cluster.bootstrap))
        try:
            await Admin(client).create_topic(topic, assignments={index: [node] for index in range(6)})
        finally:
            client.close()

    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return asyncio.run(create())
        except KafkaError as error:  # On a busy machine a broker may just be fenced.
            if error.code is not ErrorCode.INVALID_REPLICA_ASSIGNMENT or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def _wait_spread(cluster: Cluster, topic: str, nodes: set[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := {each.leader_id for each in partitions_of(cluster.bootstrap, topic).values()}) != nodes:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def test_a_secure_cluster_gets_other_factors_and_a_new_disk():
    topic, count = ["topic", "describe", TOPIC], 3000

    def holders(found: Any) -> list[list[int]]:
        assert all(sorted(each["isr"]) == sorted(each["replicas"]) for each in found["partitions"])
        return [each["replicas"] for each in found["partitions"]]

    with Cluster(LOW_LATENCY, brokers=3, secure=True) as cluster:
        login = ["--command-config", f"{cluster.data}/client.properties"]
        tailrace(cluster, "topic", "create", TOPIC, "--partitions", "6", "--replication-factor", "1", *login)
        producer = Producer(cluster.client_settings.confluent())
        for number in range(count):
            producer.produce(TOPIC, b"%d" % number, partition=number % 6)
        assert producer.flush(DEADLINE_S) == 0
        for factor in (3, 2):
            words = ["topic", "alter", TOPIC, "--replication-factor", str(factor), *login]
            assert main([*words, "--bootstrap", cluster.bootstrap]) == 0
            assert {len(each) for each in holders(tailrace(cluster, *topic, *login))} == {factor}
        tailrace(cluster, "balance", "run", "--drain", "3", *login)
        assert not any(3 in each for each in holders(tailrace(cluster, *topic, *login)))
        cluster.stop(3)
        shutil.rmtree(f"{cluster.data}/broker-3")
        cluster.start(3)
        tailrace(cluster, "balance", "run", "--metrics", cluster.data, "--sample", "1", *login)
        assert sum(3 in each for each in holders(tailrace(cluster, *topic, *login))) == 4
        consumer = Consumer({**cluster.client_settings.confluent(), "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        read: list[int] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(read) < count and time.monotonic() < deadline:
            read += [int(message.value()) for message in consumer.consume(500, 1.0) if message.error() is None]
        consumer.close()
        assert sorted(read) == list(range(count))


def test_a_disk_that_died_without_being_drained_is_filled_again():
    with Cluster(LOW_LATENCY, brokers=3) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        wait_in_sync(cluster.bootstrap, TOPIC)
        traffic = Traffic(cluster.bootstrap, TOPIC, PARTITIONS)
        traffic.wait_acked(3000)
        cluster.kill(3)
        shutil.rmtree(f"{cluster.data}/broker-3")
        cluster.start(3)
        wait_in_sync(cluster.bootstrap, TOPIC)
        deadline = time.monotonic() + DEADLINE_S
        leaders: set[int] = set()
        while leaders != {1, 2, 3}:  # On a busy machine one of them may lose its lead just then.
            assert time.monotonic() < deadline, leaders
            assert tailrace(cluster, "balance", "run")["given_up"] == []
            leaders = {each.leader_id for each in partitions_of(cluster.bootstrap, TOPIC).values()}
        assert throttle_of(cluster) == ""
        traffic.wait_acked(500)
        traffic.finish()
        wait_in_sync(cluster.bootstrap, TOPIC)
        traffic.check()
        assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)

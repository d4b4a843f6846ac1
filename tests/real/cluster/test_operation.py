"""A cluster as people operate it: described, grown and shrunk by commands, while producers and consumers run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.testing import LOW_LATENCY, Cluster

from .observe import assert_replicas_equal, create_topic, partitions_of, wait_in_sync
from .traffic import Traffic

TOPIC = "moved"
PARTITIONS = 6


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(LOW_LATENCY, brokers=3) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS)
        wait_in_sync(cluster.bootstrap, TOPIC)
        yield cluster


def tailrace(cluster: Cluster, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words, "--json", "--bootstrap", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_describe(cluster: Cluster):
    facts = tailrace(cluster, "cluster", "describe")
    assert [broker["node_id"] for broker in facts["brokers"]] == [1, 2, 3]
    assert [broker["replicas"] for broker in facts["brokers"]] == [PARTITIONS] * 3
    assert sum(broker["leads"] for broker in facts["brokers"]) == PARTITIONS
    assert [voter["node_id"] for voter in facts["quorum"]["voters"]] == [1001, 1002, 1003]
    assert facts["quorum"]["leader_id"] in (1001, 1002, 1003)
    assert {observer["node_id"] for observer in facts["quorum"]["observers"]} == {1, 2, 3}
    assert (facts["under_replicated"], facts["offline"]) == ([], [])


def test_describe_a_wounded_cluster(cluster: Cluster):
    cluster.stop(2)
    facts = tailrace(cluster, "cluster", "describe")
    assert {broker["node_id"]: broker["is_fenced"] for broker in facts["brokers"]} == {1: False, 2: True, 3: False}
    assert facts["under_replicated"] == [f"{TOPIC}-{index}" for index in range(PARTITIONS)]
    assert facts["offline"] == []


def test_add_and_decommission_under_load(cluster: Cluster):
    traffic = Traffic(cluster.bootstrap, TOPIC, PARTITIONS)
    traffic.wait_acked(500)
    added = tailrace(cluster, "cluster", "add")
    assert (added["broker"], added["action"]) == (4, "added")
    assert added["partitions_moved"] >= 4  # Internal topics are balanced too.
    held = [each.replicas for each in partitions_of(cluster.bootstrap, TOPIC).values()]
    assert sum(4 in replicas for replicas in held) in (3, 4, 5)
    traffic.wait_acked(500)
    gone = tailrace(cluster, "cluster", "decommission", "1")
    assert gone["action"] == "decommissioned"
    assert not any(1 in each.replicas for each in partitions_of(cluster.bootstrap, TOPIC).values())
    assert "broker-1" not in cluster.nodes
    facts = tailrace(cluster, "cluster", "describe")
    assert [broker["node_id"] for broker in facts["brokers"]] == [2, 3, 4]
    traffic.wait_acked(500)
    traffic.finish()
    wait_in_sync(cluster.bootstrap, TOPIC)
    traffic.check()
    assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)


def test_a_broker_that_cannot_go_stays(cluster: Cluster):
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "cluster", "decommission", "1", "--bootstrap", cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "broker 1 cannot go" in done.stderr
    assert cluster.nodes["broker-1"]["state"] == "ready"

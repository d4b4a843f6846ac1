"""How soon processes that die or stand still are noticed: kill -9 under a supervisor and without one, a process that is
as silent as a host without power, and one that is stopped for a while.

What shows how a death was noticed has longer times than a cluster has if nobody sets them, so that a busy machine does
not look like another way. The long tests demand what is promised of those times.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.testing import Cluster
from tests.nodes import Nodes

from .observe import create_topic, leader_of, partitions_of, wait_in_sync

TOPIC = "deaths"
PARTITIONS = 3


def prepare(bootstrap: str) -> None:
    create_topic(bootstrap, TOPIC, PARTITIONS)
    wait_in_sync(bootstrap, TOPIC)


def seconds_until_noticed(bootstrap: str, node: int, hurt: Callable[[], None]) -> float:
    """Until the other brokers say that the node leads nothing and is in no in-sync set."""
    others = ",".join(each for index, each in enumerate(bootstrap.split(","), 1) if index != node)
    hurt()
    begun = time.monotonic()
    while any(node in (each.leader_id, *each.isr) for each in partitions_of(others, TOPIC).values()):
        assert time.monotonic() < begun + 30, f"nobody notices that broker {node} is dead"
        time.sleep(0.01)
    return time.monotonic() - begun


def epochs_of(bootstrap: str) -> dict[int, int]:
    return {index: each.leader_epoch for index, each in partitions_of(bootstrap, TOPIC).items()}


@pytest.mark.parametrize(
    ("settings", "within_s"),
    [
        pytest.param({"broker.lease.ms": 25_000, "broker.session.timeout.ms": 50_000}, 15, id="long lease"),
        pytest.param({}, 1, id="defaults", marks=pytest.mark.long),
    ],
)
def test_a_supervisor_tells_of_a_death(settings: dict[str, int], within_s: float):
    with Cluster(settings, brokers=3) as cluster:
        prepare(cluster.bootstrap)
        for node in (leader_of(cluster.bootstrap, TOPIC), leader_of(cluster.bootstrap, TOPIC, 1)):
            process_id = cluster.process_id(node)
            took_s = seconds_until_noticed(cluster.bootstrap, node, lambda: os.kill(process_id, signal.SIGKILL))  # noqa: B023
            print(f"kill -9 of broker {node} under a supervisor: noticed after {took_s:.2f} s")
            assert took_s < within_s
            wait_in_sync(cluster.bootstrap, TOPIC)


@pytest.mark.parametrize(
    ("settings", "within_s"),
    [
        pytest.param({"broker.session.timeout.ms": "60000"}, 25, id="long session"),
        # If it was the active controller, the next one has to wait for what it may have granted.
        pytest.param({}, 4.5, id="defaults", marks=pytest.mark.long),
    ],
)
def test_a_dead_process_refuses_connections(tmp_path: Path, settings: dict[str, str], within_s: float):
    with Nodes(tmp_path, lambda _: settings) as nodes:
        prepare(nodes.bootstrap)
        node = leader_of(nodes.bootstrap, TOPIC)
        took_s = seconds_until_noticed(nodes.bootstrap, node, lambda: nodes.kill(node))
        print(f"kill -9 of node {node} without a supervisor: noticed after {took_s:.2f} s")
        assert took_s < within_s


@pytest.mark.long
def test_a_silent_broker_is_fenced_when_its_session_is_over():
    with Cluster(brokers=3) as cluster:
        prepare(cluster.bootstrap)
        node = leader_of(cluster.bootstrap, TOPIC)
        took_s = seconds_until_noticed(cluster.bootstrap, node, lambda: cluster.pause(node))
        print(f"broker {node} is silent: noticed after {took_s:.2f} s")
        assert 7 < took_s < 10
        cluster.resume(node)
        wait_in_sync(cluster.bootstrap, TOPIC)


@pytest.mark.long
def test_a_broker_that_is_stopped_for_five_seconds_keeps_what_it_leads():
    with Cluster(brokers=3) as cluster:
        prepare(cluster.bootstrap)
        before = epochs_of(cluster.bootstrap)
        for round_ in range(20):
            node = cluster.broker_ids[round_ % 3]
            cluster.pause(node)
            time.sleep(5)
            cluster.resume(node)
            time.sleep(1)
        assert epochs_of(cluster.bootstrap) == before
        wait_in_sync(cluster.bootstrap, TOPIC)

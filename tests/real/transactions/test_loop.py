"""Each record of the input has its effect exactly once, whoever is killed meanwhile."""

from collections.abc import Callable, Iterator

import pytest

from tailrace.coordinator.placement import coordinator_partition
from tailrace.testing import Cluster
from tests.real.cluster.observe import create_topic, leader_of

from .loop import PARTITIONS, SETTINGS, Loop

STATE_PARTITIONS = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS, brokers=3) as cluster:
        yield cluster


def _loop(cluster: Cluster, name: str) -> Loop:
    for topic in (f"{name}-input", f"{name}-output"):
        create_topic(cluster.bootstrap, topic, PARTITIONS)
    return Loop(cluster.bootstrap, source=f"{name}-input", target=f"{name}-output")


def _coordinator(cluster: Cluster) -> int:
    """The coordinator of the first worker's transactional id."""
    return leader_of(cluster.bootstrap, "__transaction_state", coordinator_partition("worker-0", STATE_PARTITIONS))


def test_workers_and_a_coordinator_are_killed(cluster: Cluster):
    with _loop(cluster, "short") as loop:
        loop.wait_for_more(200)
        loop.kill_worker(0)
        loop.wait_for_more(200)
        broker = _coordinator(cluster)
        cluster.kill(broker)
        loop.wait_for_more(200)
        cluster.start(broker)
        loop.kill_worker(1)
        loop.wait_for_more(200)
        loop.finish()


def _kill_coordinator(cluster: Cluster) -> None:
    broker = _coordinator(cluster)
    cluster.kill(broker)
    cluster.start(broker)


def _kill_leader(cluster: Cluster) -> None:
    broker = leader_of(cluster.bootstrap, "long-output", 0)
    cluster.kill(broker)
    cluster.start(broker)


def _kill_group_coordinator(cluster: Cluster) -> None:
    broker = leader_of(cluster.bootstrap, "__consumer_offsets", coordinator_partition("loop", STATE_PARTITIONS))
    cluster.kill(broker)
    cluster.start(broker)


def _restart_all_in_turn(cluster: Cluster) -> None:
    for broker in cluster.broker_ids:
        cluster.restart(broker)


def _kill_everything(cluster: Cluster) -> None:
    cluster.kill()
    cluster.start()


@pytest.mark.long
def test_everything_is_killed_in_turn(cluster: Cluster):
    faults: list[Callable[[Cluster], None]] = [
        _kill_coordinator,
        _kill_leader,
        _kill_group_coordinator,
        _restart_all_in_turn,
        _kill_everything,
    ]
    with _loop(cluster, "long") as loop:
        for round_number, fault in enumerate(faults * 2):
            loop.wait_for_more(500)
            fault(cluster)
            if round_number % 3 == 2:
                loop.kill_worker(round_number % 2)
        loop.wait_for_more(500)
        loop.finish()

"""What real clients saw of transactions while brokers were killed, judged by the history checker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.coordinator.placement import coordinator_partition
from tailrace.testing import Cluster
from tests.real.cluster.observe import create_topic, leader_of

from .history import History
from .loop import PARTITIONS, SETTINGS

STATE_PARTITIONS = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS, brokers=3) as cluster:
        yield cluster


def test_a_leader_and_a_coordinator_are_killed(cluster: Cluster):
    create_topic(cluster.bootstrap, "history", PARTITIONS)
    with History(cluster.bootstrap, "history") as history:
        history.wait_for_more(60)
        for topic, index in (
            ("history", 0),
            ("__transaction_state", coordinator_partition("history-1", STATE_PARTITIONS)),
        ):
            broker = leader_of(cluster.bootstrap, topic, index)
            cluster.kill(broker)
            history.wait_for_more(60)
            cluster.start(broker)
        report = history.finish()
    assert report.anomalies == [], report.anomalies
    assert report.figures.committed >= 90
    assert report.figures.aborted >= 20

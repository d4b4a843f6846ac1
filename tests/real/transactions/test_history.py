"""What real clients saw of transactions while brokers were killed, judged by the history checker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.coordinator.placement import coordinator_partition
from tailrace.testing import Cluster
from tailrace.verify import Report
from tests.real.cluster.observe import create_topic, leader_of

from .history import History
from .loop import PARTITIONS, SETTINGS

STATE_PARTITIONS = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(SETTINGS, brokers=3) as cluster:
        yield cluster


def test_nobody_is_killed(cluster: Cluster):
    create_topic(cluster.bootstrap, "calm", PARTITIONS)
    with History(cluster.bootstrap, "calm") as history:
        history.wait_for_more(150)
        report = history.finish()
    _check(report, committed=100, aborted=25)


@pytest.mark.long
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
    _check(report, committed=90, aborted=20)


def _check(report: Report, *, committed: int, aborted: int) -> None:
    assert report.anomalies == []
    assert report.figures.committed >= committed
    assert report.figures.aborted >= aborted

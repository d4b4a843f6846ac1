"""An application of Kafka Streams goes on while the coordinator of its group is killed, and while all brokers are
restarted one after the other: each word is counted once."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.testing import LOW_LATENCY, Cluster
from tests.compat.streams.application import QUICK, Application, Topics

pytestmark = pytest.mark.long

BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({**QUICK, **LOW_LATENCY}, brokers=len(BROKERS)) as running:
        yield running


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_brokers_die_one_after_the_other(
    cluster: Cluster, fresh_name: Callable[[], str], word_count: list[str], tmp_path: Path, protocol: str
) -> None:
    topics = Topics(cluster.bootstrap, fresh_name(), replicas=3)
    topics.write(300)
    with (
        Application(word_count, topics, protocol, tmp_path / "one") as one,
        Application(word_count, topics, protocol, tmp_path / "two") as two,
    ):
        one.wait_tasks(2)
        two.wait_tasks(2)
        for broker in BROKERS:  # One of them coordinates the group.
            faults = threading.Thread(target=_kill_and_restart, args=(cluster, broker))
            faults.start()
            for _ in range(10):
                topics.write(30)
            faults.join()
            topics.write(30)
        counts = topics.wait_counted()
        assert counts == topics.expected()
        one.kill()
        topics.write(100)
        two.wait_tasks(4)
        assert topics.wait_counted() == topics.expected()


def _kill_and_restart(cluster: Cluster, broker: int) -> None:
    cluster.kill(broker)
    cluster.restart(broker)

"""One of three controllers loses what it had synced: the cluster goes on, and the damaged one comes back by itself."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.testing import LOW_LATENCY, Cluster

from .observe import WAIT_S, create_topic, partitions_of, quorum_of

LOG = "__cluster_metadata-0/00000000000000000000.log"


def _flip(folder: Path) -> None:
    content = bytearray((folder / LOG).read_bytes())
    content[len(content) // 2] ^= 4
    (folder / LOG).write_bytes(content)


def _lose_log(folder: Path) -> None:
    (folder / LOG).unlink()


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def _controllers(cluster: Cluster) -> list[str]:
    return [name for name in cluster.nodes if name.startswith("controller-")]


@pytest.mark.parametrize("damage", [_flip, _lose_log])
@pytest.mark.parametrize("is_leader", [False, True], ids=["follower", "leader"])
def test_a_damaged_controller_comes_back_without_a_voice(damage: Callable[[Path], None], is_leader: bool):
    with Cluster(LOW_LATENCY, brokers=3) as cluster:
        create_topic(cluster.bootstrap, "before", 3)
        leader = cluster.name_of(quorum_of(cluster.bootstrap).leader_id)
        others = [name for name in _controllers(cluster) if name != leader]
        damaged = leader if is_leader else others[0]
        cluster.kill(damaged)
        damage(Path(cluster.data) / damaged)
        create_topic(cluster.bootstrap, "meanwhile", 3)
        cluster.start(damaged)
        _wait(lambda: "votes again" in cluster.log(damaged), "it did not catch up")
        told = cluster.log(damaged)
        assert "the metadata log is damaged" in told
        assert told.index("has no vote until it has caught up") < told.index("votes again")
        # Its vote is needed now.
        cluster.kill(next(name for name in _controllers(cluster) if name != damaged))
        create_topic(cluster.bootstrap, "after", 3)
        for topic in ("before", "meanwhile", "after"):
            assert len(partitions_of(cluster.bootstrap, topic)) == 3
        strays = [path for path in (Path(cluster.data) / damaged).iterdir() if path.name.endswith("-stray")]
        assert len(strays) == 1


@pytest.mark.long  # `cluster describe` waits for its whole timeout.
def test_what_only_the_dead_one_has_is_waited_for():
    """A controller was away, one is damaged, and the third dies, which alone has the topic: nobody is elected, and with
    the third the topic is back."""
    with Cluster(LOW_LATENCY, brokers=3) as cluster:
        create_topic(cluster.bootstrap, "before", 1)
        first, second, third = _controllers(cluster)
        cluster.kill(first)
        create_topic(cluster.bootstrap, "committed", 1)
        cluster.kill(second)
        cluster.kill(third)
        _lose_log(Path(cluster.data) / second)
        cluster.start(first)
        cluster.start(second)
        described = subprocess.run(
            [sys.executable, "-m", "tailrace", "cluster", "describe", "--bootstrap", cluster.bootstrap],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert described.returncode == 1
        assert "metadata quorum: no leader" in described.stdout
        assert "does not vote until it has caught up" in described.stdout
        assert "votes again" not in cluster.log(second)
        cluster.start(third)
        _wait(lambda: "votes again" in cluster.log(second), "it did not catch up")
        assert set(partitions_of(cluster.bootstrap, "committed")) == {0}
        create_topic(cluster.bootstrap, "after", 1)

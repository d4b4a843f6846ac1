"""Controllers that are killed, two of three and then all, while brokers live: what clients do goes on.

Every kind of work prints its longest pause, and so does a thread that only looks at the clock: what the machine does
not give to anybody is not the cluster's. A second is the goal; one that runs other things too may need longer.
"""

import time

import pytest

from tailrace.testing import Cluster

from .observe import assert_replicas_equal, create_topic, wait_in_sync
from .traffic import Traffic
from .work import MACHINE, Work, working

PARTITIONS = 3
TOPIC = "headless"
OTHER = "headless-one"
PAUSE_MAX_S = 5.0


def go_on_without(
    cluster: Cluster, controllers: list[str], traffic: Traffic, works: list[Work], seconds: float
) -> None:
    for name in controllers:
        cluster.kill(name)
    traffic.begin_gap()
    for work in works:
        work.begin()
    time.sleep(seconds)
    traffic.wait_acked(10)
    pauses = {work.name: work.pause_s for work in works} | {"acks=all": traffic.longest_gap_s()}
    told = ", ".join([*map(str, works), f"acks=all {traffic.longest_gap_s():.2f} s"])
    print(f"{seconds:.0f} s without {', '.join(controllers)}, longest pauses: {told}")
    assert [work.failure for work in works] == [None] * len(works)
    assert max(pauses.values()) < PAUSE_MAX_S + pauses[MACHINE], told


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ((2, 1), 15.0),
        # No test may take two minutes.
        pytest.param((2,), 60.0, marks=pytest.mark.long),
        pytest.param((3,), 60.0, marks=pytest.mark.long),
    ],
)
def test_brokers_go_on_without_controllers(steps: tuple[int, ...], seconds: float):
    """`steps`: how many of three are killed each time."""
    with Cluster(brokers=3) as cluster:
        for topic in (TOPIC, OTHER):
            create_topic(cluster.bootstrap, topic, PARTITIONS)
            wait_in_sync(cluster.bootstrap, topic)
        traffic = Traffic(cluster.bootstrap, TOPIC, PARTITIONS, records_per_second=200)
        traffic.wait_acked(100)
        alive = [name for name in cluster.nodes if name.startswith("controller-")]
        dead: list[str] = []
        with working(cluster.bootstrap, OTHER) as works:
            for count in steps:
                killed, alive = alive[:count], alive[count:]
                dead += killed
                go_on_without(cluster, killed, traffic, works, seconds)
            for name in dead:
                cluster.start(name)
        traffic.finish()
        wait_in_sync(cluster.bootstrap, TOPIC)
        traffic.check()
        assert_replicas_equal(cluster.data, cluster.bootstrap, TOPIC)

"""Links that lose packets in one direction: connections stay open, one side hears and is not heard.

Whoever is not heard is not asked to notice it: the others go by their time-outs. Nothing that was acknowledged is lost,
the others go on, and once the link is whole everybody is in sync and every connection has two ends again.
"""

import time
from collections.abc import Iterator

import pytest

from tailrace.testing import LOW_LATENCY

from .hosts import CLIENTS, Hosts, among_clients, need_namespaces
from .observe import assert_replicas_equal, create_topic, leader_of, quorum_of, wait_in_sync
from .traffic import Traffic

PARTITIONS = 6
RECORDS = 500
LOST_S = 12.0
# The others take over as after a cut; librdkafka waits four seconds for an answer that does not come.
GAP_MAX_S = 8.0
# What one end takes for open is given up when nothing was heard for connections.max.idle.ms.
IDLE_MS = 15_000
CLOSED_WITHIN_S = 45.0

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    need_namespaces()
    settings = {name: str(value) for name, value in LOW_LATENCY.items()} | {"connections.max.idle.ms": str(IDLE_MS)}
    with Hosts(tmp_path_factory.mktemp("hosts"), settings) as hosts, among_clients():
        yield hosts


@pytest.fixture
def topic(hosts: Hosts, request: pytest.FixtureRequest) -> str:
    name = request.node.name.translate(str.maketrans("[]", "--"))
    create_topic(hosts.bootstrap, name, PARTITIONS)
    wait_in_sync(hosts.bootstrap, name)
    return name


def lose_under_load(hosts: Hosts, topic: str, what: str, links: list[tuple[int, int]]) -> None:
    traffic = Traffic(hosts.bootstrap, topic, PARTITIONS, records_per_second=500)
    traffic.wait_acked(RECORDS)
    traffic.begin_gap()
    for source, target in links:
        hosts.lose(source, target)
    time.sleep(LOST_S)
    hosts.heal()
    healed = time.monotonic()
    traffic.wait_acked(RECORDS)
    gap_s = traffic.longest_gap_s()
    wait_in_sync(hosts.bootstrap, topic)
    in_sync_s = time.monotonic() - healed
    traffic.finish()
    while half_open := hosts.half_open():
        assert time.monotonic() < healed + CLOSED_WITHIN_S, half_open
        time.sleep(0.5)
    print(
        f"{what} for {LOST_S:g} s: {gap_s:.2f} s without an acknowledgement, in sync {in_sync_s:.1f} s after it, every "
        f"connection with two ends after {time.monotonic() - healed:.1f} s"
    )
    assert gap_s < GAP_MAX_S
    traffic.check()
    assert_replicas_equal(str(hosts.folder), hosts.bootstrap, topic)


def others_than(node_id: int) -> list[int]:
    return [other for other in (1, 2, 3) if other != node_id]


def test_a_leader_that_is_not_heard(hosts: Hosts, topic: str):
    """It hears everything, and its own packets reach the clients alone."""
    leader = leader_of(hosts.bootstrap, topic)
    lose_under_load(hosts, topic, f"leader {leader} mute", [(leader, other) for other in others_than(leader)])


def test_a_leader_that_does_not_hear(hosts: Hosts, topic: str):
    leader = leader_of(hosts.bootstrap, topic)
    lose_under_load(hosts, topic, f"leader {leader} deaf", [(other, leader) for other in others_than(leader)])


def test_an_active_controller_that_is_not_heard(hosts: Hosts, topic: str):
    active = quorum_of(hosts.bootstrap).leader_id
    lose_under_load(
        hosts, topic, f"active controller {active} mute", [(active, other) for other in others_than(active)]
    )


def test_an_active_controller_that_does_not_hear(hosts: Hosts, topic: str):
    active = quorum_of(hosts.bootstrap).leader_id
    lose_under_load(
        hosts, topic, f"active controller {active} deaf", [(other, active) for other in others_than(active)]
    )


def test_one_link_of_the_controller(hosts: Hosts, topic: str):
    """One broker's heartbeats and fetches do not arrive; everything else does."""
    active = quorum_of(hosts.bootstrap).leader_id
    other = others_than(active)[0]
    lose_under_load(hosts, topic, f"from {other} to the active controller {active} nothing", [(other, active)])


def test_a_node_that_clients_do_not_hear(hosts: Hosts, topic: str):
    """It leads, and nobody but them misses it: what they sent is stored, and they ask again until the link is back."""
    leader = leader_of(hosts.bootstrap, topic)
    traffic = Traffic(hosts.bootstrap, topic, PARTITIONS, records_per_second=500)
    traffic.wait_acked(RECORDS)
    hosts.lose(leader, CLIENTS)
    time.sleep(LOST_S)
    hosts.heal()
    healed = time.monotonic()
    traffic.wait_acked(RECORDS)
    print(
        f"node {leader} not heard by clients for {LOST_S:g} s: {time.monotonic() - healed:.1f} s after it all goes on"
    )
    traffic.finish()
    traffic.check()
    assert_replicas_equal(str(hosts.folder), hosts.bootstrap, topic)

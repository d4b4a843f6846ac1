"""The network between nodes is cut under load, and healed: a leader alone, a controller alone, a bridge.

The nodes are production nodes: formatted, started from files, both roles each, with listeners of their own for
replication and for the quorum. Clients reach all of them all the time, the one that is cut off too.
"""

import time
from collections.abc import Iterator

import pytest

from tailrace.testing import LOW_LATENCY

from .observe import assert_replicas_equal, create_topic, leader_of, quorum_of, wait_in_sync
from .production import Production
from .traffic import Traffic

PARTITIONS = 6
RECORDS = 500
CUT_S = 4.0


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    with Production(tmp_path_factory.mktemp("production"), dict(LOW_LATENCY)) as production:
        yield production


@pytest.fixture
def topic(production: Production, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    create_topic(production.bootstrap, name, PARTITIONS)
    wait_in_sync(production.bootstrap, name)
    return name


def cut_under_load(
    production: Production, topic: str, what: str, links: list[tuple[int, int]], rounds: int = 1
) -> None:
    traffic = Traffic(production.bootstrap, topic, PARTITIONS)
    for _ in range(rounds):
        traffic.wait_acked(RECORDS)
        traffic.begin_gap()
        for one, other in links:
            production.network.cut(one, other)
        # What was under way is answered by then, and sessions are over.
        time.sleep(CUT_S)
        # Those who still see each other go on without the others.
        traffic.wait_acked(RECORDS)
        print(f"{what}: {traffic.longest_gap_s() * 1000:.0f} ms without an acknowledgement")
        production.network.heal()
        traffic.wait_acked(RECORDS)
        wait_in_sync(production.bootstrap, topic)
    traffic.finish()
    wait_in_sync(production.bootstrap, topic)
    traffic.check()
    assert_replicas_equal(str(production.folder), production.bootstrap, topic)


def test_a_leader_alone(production: Production, topic: str):
    """Clients still reach it: it must not acknowledge what nobody else has."""
    leader = leader_of(production.bootstrap, topic)
    others = [node for node in production.nodes if node != leader]
    cut_under_load(production, topic, f"leader {leader} alone", [(leader, other) for other in others])


def test_the_active_controller_alone(production: Production, topic: str):
    active = quorum_of(production.bootstrap).leader_id
    others = [node for node in production.nodes if node != active]
    cut_under_load(production, topic, f"active controller {active} alone", [(active, other) for other in others])


def test_a_bridge(production: Production, topic: str):
    """Two nodes do not see each other; the third sees both."""
    active = quorum_of(production.bootstrap).leader_id
    bridge = next(node for node in production.nodes if node != active)
    other = next(node for node in production.nodes if node not in (active, bridge))
    cut_under_load(production, topic, f"no link between {active} and {other}", [(active, other)])


@pytest.mark.long
def test_cuts_again_and_again(production: Production, topic: str):
    cut_under_load(production, topic, "node 1 alone", [(1, 2), (1, 3)], rounds=5)

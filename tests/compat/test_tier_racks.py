"""Records of the store by the replica in one's own rack (KIP-392): each replica in sync reads them itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.nodes import NODE_IDS, Nodes
from tests.real.tier.topics import QUICK, TOPIC, fill, read, wait_cold
from tests.stores import moto, settings

pytestmark = pytest.mark.long

COUNT = 2000
LEADER = 1
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with moto() as address:
        common = QUICK | settings(address) | selector
        folder = tmp_path_factory.mktemp("racks")
        with Nodes(folder, lambda node_id: common | {"broker.rack": f"rack-{node_id}"}) as all_:
            admin = AdminClient({"bootstrap.servers": all_.bootstrap})
            new = NewTopic("t", num_partitions=1, replica_assignment=[[LEADER, 2, 3]], config=TOPIC)
            admin.create_topics([new])["t"].result(DEADLINE_S)
            fill(all_.bootstrap, range(COUNT))
            for node_id in NODE_IDS:
                wait_cold(all_.data(node_id) / "t-0", COUNT * 8 // 10)
            yield all_


def downloaded(nodes: Nodes, node_id: int) -> int:
    """Pieces that a node has kept of what it has read."""
    folder: Path = nodes.data(node_id) / "remote-log-cache"
    return len(list(folder.glob("*"))) if folder.exists() else 0


@pytest.mark.parametrize("near", [2, 3])
def test_the_near_replica_reads_from_the_store(nodes: Nodes, near: int) -> None:
    before = {node_id: downloaded(nodes, node_id) for node_id in NODE_IDS}
    assert read(nodes.bootstrap, COUNT, client_rack=f"rack-{near}") == list(range(COUNT))
    deadline = time.monotonic() + DEADLINE_S
    while downloaded(nodes, near) == before[near]:
        assert time.monotonic() < deadline, "the near one has asked the store"
        time.sleep(0.1)
    assert {each: downloaded(nodes, each) for each in NODE_IDS if each != near} == {
        each: count for each, count in before.items() if each != near
    }, "nobody else has"

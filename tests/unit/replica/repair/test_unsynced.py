"""A closed segment whose file goes before it was synced: the syncs of its log must not stop for good."""

import pytest

from tailrace.model.ids import NodeId
from tests.unit.replica.cluster import Cluster, simulate
from tests.unit.replica.repair.test_repair import SOON, Scrubs, fill

UNSYNCED = f"data/t-0/{32:020d}.log"


@pytest.mark.parametrize("node_id", [1, 2])
def test_it_is_noticed_by_the_sync_and_fetched_again(node_id: int):
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster)
        scrubs = Scrubs(cluster)
        await cluster.settle(2)  # The first round is over.
        node, values = cluster[node_id], cluster[3].values()
        log = node.partition().log
        closed = log.active
        log.roll()
        node.disk.remove(UNSYNCED)
        closed.release()
        node.replicas.flusher.request(node.partition())
        await cluster.settle(8)
        assert scrubs.of[NodeId(node_id)].scrubber.found_count == 1
        assert node.values() == values
        assert log.recovery_point == log.log_end_offset
        await scrubs.stop()

    simulate(test, **SOON)


def test_where_nobody_else_has_it_the_rest_is_synced():
    async def test(cluster: Cluster) -> None:
        cluster.start()
        await fill(cluster, isr=(1,))
        cluster.isolate(1)
        scrubs = Scrubs(cluster)
        await cluster.settle(2)
        log = cluster[1].partition().log
        closed = log.active
        log.roll()
        cluster[1].disk.remove(UNSYNCED)
        closed.release()
        cluster[1].replicas.flusher.request(cluster[1].partition())
        await cluster.settle(8)
        assert [each.cause for each in log.damaged_ranges] == ["its file is gone"]
        assert log.recovery_point == log.log_end_offset
        await scrubs.stop()

    simulate(test, **SOON)

"""A leader whose own records are damaged before anybody else has them: it cannot lead on."""

from tests.unit.replica.cluster import Cluster, simulate
from tests.unit.replica.repair.test_repair import SOON, Scrubs, fill, flip


def test_a_leader_whose_unconfirmed_records_nobody_can_take_calls_itself_damaged():
    async def test(cluster: Cluster) -> None:
        cluster.start(min_insync_replicas="2")
        await fill(cluster)
        confirmed = cluster[2].values()
        cluster.isolate(1)
        written = [cluster[1].append(b"never confirmed"), cluster[1].append(b"nor this")]
        cluster.set(isr=(1,))
        cluster[1].partition().log.roll()
        cluster[1].replicas.flusher.request(cluster[1].partition())  # Only what is synced is the scrub's matter.
        await cluster.settle(0.1)
        flip(cluster[1], 8, path=f"data/t-0/{32:020d}.log")
        cluster.heal()
        scrubs = Scrubs(cluster)
        await cluster.settle(10)
        assert scrubs.damaged == [1]
        assert [cluster[each].values() for each in (1, 2, 3)] == [confirmed] * 3
        assert cluster[1].partition().log.damaged_ranges == ()
        assert all(each.done() and each.exception() is not None for each in written)
        await scrubs.stop()

    simulate(test, **SOON)

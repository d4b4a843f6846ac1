"""Who is in sync: how followers join and leave, what the controller is asked, and what is waited for meanwhile."""

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.quorum import AlterPartitionResponse
from tests.unit.replica.cluster import Cluster, simulate


def test_one_that_lags_leaves_the_in_sync_set_and_comes_back():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        cluster.isolate(3)
        waiting = cluster[1].append(b"b")
        await cluster.settle(1.9)
        cluster[1].partition().shrink_isr()
        assert cluster[1].partition().proposal is None
        await cluster.settle(0.5)
        cluster[1].partition().shrink_isr()
        await waiting
        assert cluster.partitions[0].isr == (1, 2)
        cluster.heal()
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2, 3)
        assert cluster[1].partition().isr == (1, 2, 3)
        assert cluster[3].values() == [b"a", b"b"]

    simulate(run)


def test_one_that_lags_leaves_though_a_producer_sends_the_same_again_and_again():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster.settle()
        cluster.isolate(3)
        again = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        waiting = [cluster[1].append(b"a", **again)]
        for _ in range(3):
            await cluster.settle(1)
            waiting.append(cluster[1].append(b"a", **again))
        cluster[1].partition().shrink_isr()
        for each in waiting:
            await each
        assert cluster.partitions[0].isr == (1, 2)
        assert cluster[1].values() == [b"a"]

    simulate(run)


def test_one_that_is_proposed_counts_before_the_controller_has_answered():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, isr=(1, 2))
        cluster.alter_gate.clear()
        await cluster[1].append(b"a")
        await cluster.settle()
        assert cluster[1].partition().proposal.isr == (1, 2, 3)
        cluster.isolate(3)
        # Longer than it would be waited for as one that may join.
        waiting = cluster[1].append(b"b")
        await cluster.settle(5)
        cluster[1].append(b"c")
        await cluster.settle()
        assert not waiting.done()
        cluster.alter_gate.set()
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2, 3)
        assert not waiting.done()
        cluster.heal()
        await waiting

    simulate(run)


def test_without_enough_in_sync_replicas_nothing_is_confirmed():
    async def run(cluster: Cluster):
        cluster.start(min_insync_replicas="2")
        cluster.set(leader=1, isr=(1,))
        cluster.isolate(2)
        cluster.isolate(3)
        with pytest.raises(KafkaError) as raised:
            cluster[1].append(b"a")
        assert raised.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        waiting = cluster[1].append(b"a", acks=1)
        await cluster.settle()
        assert cluster[1].partition().high_watermark == 0
        cluster.heal()
        await waiting
        assert cluster[1].partition().high_watermark == 1

    simulate(run)


def test_only_the_newest_incarnation_counts():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        partition = cluster[1].partition()
        old_epoch = cluster.brokers[3].epoch
        new_epoch = cluster.register(3)
        waiting = cluster[1].append(b"b")
        cluster.isolate(3)
        # The leader has not heard of the new incarnation yet, and counts for it what it says itself.
        partition.note_fetch(3, new_epoch, offset=0, log_start_offset=0)
        with pytest.raises(KafkaError) as raised:
            partition.note_fetch(3, old_epoch, offset=2, log_start_offset=0)
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.settle()
        assert not waiting.done()
        assert partition.followers[3].log_end_offset == 0

    simulate(run)


def test_one_that_the_metadata_has_replaced_counts_for_nothing():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, isr=(1, 2))
        cluster.isolate(3)
        old_epoch = cluster.brokers[3].epoch
        cluster.register(3)
        cluster.publish()
        with pytest.raises(KafkaError) as raised:
            cluster[1].partition().note_fetch(3, old_epoch, offset=0, log_start_offset=0)
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    simulate(run)


def test_a_fenced_broker_does_not_join_the_in_sync_set():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, isr=(1, 2))
        cluster.fence(3)
        await cluster[1].append(b"a")
        await cluster.settle()
        assert cluster[3].values() == [b"a"]
        assert cluster.partitions[0].isr == (1, 2)
        assert not cluster.alter_requests
        cluster.fence(3, fenced=False)
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2, 3)

    simulate(run)


def test_a_proposal_names_the_incarnation_that_had_caught_up():
    """KIP-903: it comes back with an empty disk while the proposal is under way, and must not be taken for itself."""

    async def run(cluster: Cluster):
        cluster.start()
        cluster.alter_gate.clear()
        cluster.set(leader=1, isr=(1, 2))
        await cluster[1].append(b"a")
        await cluster.settle()
        assert cluster[1].partition().proposal.isr == (1, 2, 3)
        cluster[3].crash()
        cluster[3].disk.remove_folder("data")
        cluster[3].start()  # Registered, but no image has told the leader.
        cluster.isolate(3)
        cluster.alter_gate.set()
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2)
        assert cluster[1].partition().proposal is None
        cluster.heal()
        cluster.publish()
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2, 3)

    simulate(run)


def test_a_proposal_that_was_accepted_counts_until_its_image_comes():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, isr=(1, 2))
        cluster.deaf.add(1)
        await cluster.settle()
        partition = cluster[1].partition()
        assert cluster.partitions[0].isr == partition.proposal.isr == (1, 2, 3)
        assert partition.isr == (1, 2)
        cluster[1].follow(cluster[1].image)
        assert partition.proposal.isr == (1, 2, 3)
        cluster.isolate(3)
        waiting = cluster[1].append(b"a")
        await cluster.settle(1)
        assert not waiting.done()

    simulate(run)


def test_an_image_ends_a_proposal_that_it_has_overtaken():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1, isr=(1, 2))
        cluster.alter_gate.clear()
        await cluster.settle()
        partition = cluster[1].partition()
        assert partition.proposal.isr == (1, 2, 3)
        cluster.isolate(2)
        cluster.isolate(3)
        cluster.set(isr=(1,))
        assert partition.proposal is None
        cluster.alter_gate.set()
        await cluster.settle()
        assert partition.isr == cluster.partitions[0].isr == (1,)

    simulate(run)


def test_a_controller_that_cannot_be_reached_is_asked_again():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.cut = {(1, 0)}
        cluster.set(leader=1, isr=(1, 2))
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2)
        assert len(cluster.alter_requests) > 1
        cluster.heal()
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2, 3)

    simulate(run)


def test_many_proposals_go_in_one_request():
    async def run(cluster: Cluster):
        cluster.start()
        for index in range(10):
            cluster.set(leader=1, isr=(1, 2), index=index)
        await cluster.settle()
        assert all(state.isr == (1, 2, 3) for state in cluster.partitions.values())
        assert len(cluster.alter_requests) < 5

    simulate(run)


def test_one_that_was_about_to_join_is_not_waited_for_once_it_is_gone():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.cut = {(1, 0)}  # So that the proposals do not arrive.
        cluster.set(leader=1, isr=(1, 2))
        await cluster.settle()
        cluster.set(isr=(1, 2))  # It was refused, say.
        await cluster.settle(0.5)
        cluster[1].partition().proposal = None
        cluster.isolate(3)
        cluster[1].partition().followers[3].last_caught_up_ms = cluster[1].clock.monotonic_ms()
        waiting = cluster[1].append(b"a")
        await cluster.settle(1)
        assert not waiting.done()
        cluster.fence(3)
        await waiting

    simulate(run)


def test_one_that_had_everything_has_the_whole_lag_time_from_the_next_append_on():
    async def run(cluster: Cluster):
        cluster.start()
        cluster.set(leader=1)
        await cluster[1].append(b"a")
        await cluster.settle(60)
        cluster[1].append(b"b")
        cluster[1].partition().shrink_isr()
        assert cluster[1].partition().proposal is None

    simulate(run)


def test_an_answer_that_nobody_understands_does_not_end_the_proposals(monkeypatch):
    async def run(cluster: Cluster):
        cluster.start()
        decide = cluster._decide
        newer = AlterPartitionResponse.PartitionData(partition_index=0, error_code=30_000)  # A later release's.
        monkeypatch.setattr(cluster, "_decide", lambda *_: newer)
        cluster.set(leader=1, isr=(1, 2))
        await cluster.settle()
        assert cluster.alter_requests
        monkeypatch.setattr(cluster, "_decide", decide)
        await cluster.settle()
        assert cluster.partitions[0].isr == (1, 2, 3)

    simulate(run)


@pytest.mark.parametrize("was", ["1", "2"])
def test_settings_and_in_sync_set_are_those_of_one_image(was):
    """With either from an older image the record would be confirmed, though the next leader does not have it."""

    async def run(cluster: Cluster):
        cluster.start(min_insync_replicas=was)
        cluster.set(leader=1, isr=(1, 2) if was == "1" else (1,))
        cluster.isolate(1)
        waiting = cluster[1].append(b"a", acks=1)
        cluster.configs = {"min.insync.replicas": "2" if was == "1" else "1"}
        if was == "1":
            cluster.set(isr=(1,))
        else:
            cluster.set(leader=2, isr=(2,))
        await cluster.settle()
        assert cluster[1].partition().high_watermark == 0
        assert was == "1" or waiting.exception() is not None

    simulate(run)

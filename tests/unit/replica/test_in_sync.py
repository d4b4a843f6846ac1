"""Who is in sync: what the stories of `scenarios/` do not tell."""

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.replica.alter_isr import _settle
from tailrace.wire.apis.quorum import AlterPartitionResponse
from tests.unit.replica.cluster import Cluster, simulate
from tests.unit.replica.replicas import ME, OTHER, lead, make_partition


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


@pytest.mark.parametrize(
    ("codes", "is_asked_again", "stands"),
    [
        ("FENCED_LEADER_EPOCH INVALID_UPDATE_VERSION INVALID_REQUEST NEW_LEADER_ELECTED", False, True),
        ("UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION", False, True),
        ("INELIGIBLE_REPLICA OPERATION_NOT_ATTEMPTED", False, False),
        ("NOT_CONTROLLER STALE_BROKER_EPOCH REQUEST_TIMED_OUT UNKNOWN_SERVER_ERROR", True, True),
    ],
)
async def test_what_becomes_of_a_proposal_with_each_answer(codes: str, is_asked_again: bool, stands: bool) -> None:
    for code in codes.split():
        partition = make_partition()
        lead(partition, epoch=1, isr=(ME, OTHER), replicas=2)
        partition._propose((ME,))
        proposal = partition.proposal
        answer = AlterPartitionResponse.PartitionData(partition_index=0, error_code=ErrorCode[code])
        assert _settle(partition, proposal, answer) is not is_asked_again
        assert partition.proposal is (proposal if stands else None)


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

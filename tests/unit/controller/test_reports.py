"""What brokers report of their replicas: who leads after all have been away, and what becomes of a damaged one."""

import pytest

from tailrace.controller.image import NO_LEADER, PartitionImage
from tailrace.controller.partitions.change import RECOVERED, RECOVERING
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import ElectLeadersRequest, ElectLeadersResponse
from tailrace.wire.apis.own import AllowTruncationRequest, AllowTruncationResponse
from tailrace.wire.apis.quorum import AlterPartitionResponse
from tests.unit.controller.cluster import Cluster, alter_topic, assigned

WAIT_MS = 3_000


def cluster_without_leader(*, brokers: int = 3, min_insync: str = "2") -> Cluster:
    """One partition, "orders", of which all replicas were in sync when all brokers were killed at once."""
    cluster = Cluster(brokers=brokers, features=True)
    cluster.create(assigned("orders", list(range(1, brokers + 1))))
    alter_topic(cluster, "orders", "min.insync.replicas", min_insync)
    cluster.pass_time(10_000)
    assert cluster.partition("orders").leader == NO_LEADER
    assert set(cluster.partition("orders").eligible_leader_replicas) == set(range(1, brokers + 1))
    return cluster


def restart(
    cluster: Cluster, node_id: int, log_end_offset: int, *, last_epoch: int = 0, is_damaged: bool = False
) -> list[int]:
    """As a broker does: it registers, recovers, reports, is unfenced. Gives the partitions that only it can lead."""
    proof = cluster.image.brokers[node_id].epoch
    epoch = cluster.register(node_id, previous_broker_epoch=proof, unfence=False)
    response = cluster.report(node_id, "orders", log_end_offset, last_epoch=last_epoch, is_damaged=is_damaged)
    cluster.unfence(node_id, epoch)
    return response.topics[0].irreplaceable_partitions


def allow_truncation(cluster: Cluster, node_id: int) -> tuple[int, PartitionImage]:
    request = AllowTruncationRequest(
        broker_id=node_id,
        broker_epoch=cluster.image.brokers[node_id].epoch,
        topic_id=cluster.image.topics["orders"].id,
        leader_epoch=cluster.partition("orders").leader_epoch,
    )
    return cluster.do(request, AllowTruncationResponse).error_code, cluster.partition("orders")


def test_the_longest_log_of_the_latest_epoch_leads() -> None:
    cluster = cluster_without_leader()
    restart(cluster, 1, 100, last_epoch=0)
    restart(cluster, 2, 70, last_epoch=1)
    assert cluster.partition("orders").leader == NO_LEADER, "the third may have more"
    restart(cluster, 3, 80, last_epoch=1)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (3, RECOVERED)


def test_equal_logs_are_led_by_the_preferred_replica() -> None:
    cluster = cluster_without_leader()
    for node_id in (2, 1, 3):
        restart(cluster, node_id, 100)
    assert cluster.partition("orders").leader == 1


def test_those_that_stay_away_are_waited_for_and_not_for_ever() -> None:
    cluster = cluster_without_leader()
    restart(cluster, 1, 90)
    restart(cluster, 2, 100)
    cluster.live(WAIT_MS - 500)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.live(1_000)
    assert cluster.partition("orders").leader == 2


def test_a_report_of_an_earlier_incarnation_says_nothing() -> None:
    cluster = cluster_without_leader(brokers=2)
    restart(cluster, 1, 500)
    cluster.register(1, previous_broker_epoch=cluster.image.brokers[1].epoch)  # It comes back, and has not told yet.
    restart(cluster, 2, 100)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.report(1, "orders", 50)
    assert cluster.partition("orders").leader == 2


def test_a_better_one_that_cannot_lead_yet_is_waited_for() -> None:
    cluster = cluster_without_leader(brokers=2)
    epoch = cluster.register(1, previous_broker_epoch=cluster.image.brokers[1].epoch, unfence=False)
    cluster.report(1, "orders", 100)
    restart(cluster, 2, 90)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.unfence(1, epoch)
    assert cluster.partition("orders").leader == 1


def live_with(cluster: Cluster, *nodes: int) -> None:
    """Longer than the session of the others, and shorter than the wait for them."""
    for _ in range(10):
        for node_id in nodes:
            cluster.heartbeat(node_id)
        cluster.pass_time(280)


def cluster_in_which_one_restarts(*, min_insync: str = "2") -> Cluster:
    """All were killed at once, and broker 3 is back before the silence of the others is noticed."""
    cluster = Cluster(brokers=3, features=True, broker_session_timeout_ms=2500)
    cluster.create(assigned("orders", [1, 2, 3]))
    alter_topic(cluster, "orders", "min.insync.replicas", min_insync)
    restart(cluster, 3, 100)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (1, (1, 2), ())
    return cluster


@pytest.mark.parametrize("min_insync", ["1", "2"])
def test_whoever_was_back_first_leads_if_its_log_reaches_further_than_all_others(min_insync: str) -> None:
    cluster = cluster_in_which_one_restarts(min_insync=min_insync)
    restart(cluster, 1, 90)
    restart(cluster, 2, 80)
    assert cluster.partition("orders").leader == NO_LEADER, "the first has told nobody yet that its log is longer"
    cluster.report(3, "orders", 100)
    cluster.report(1, "orders", 90)
    cluster.report(2, "orders", 80)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (3, (3,), RECOVERED)


def test_whoever_was_back_first_does_not_lead_if_others_have_gone_on_without_it() -> None:
    cluster = cluster_in_which_one_restarts()
    restart(cluster, 1, 120)
    restart(cluster, 2, 110)
    for node_id, log_end_offset in ((3, 100), (2, 110), (1, 120)):
        cluster.report(node_id, "orders", log_end_offset)
    assert cluster.partition("orders").leader == 1


def test_whoever_was_back_first_is_compared_with_those_that_are_there() -> None:
    cluster = cluster_in_which_one_restarts()
    restart(cluster, 1, 90)
    live_with(cluster, 1, 3)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.report(3, "orders", 100)
    cluster.report(1, "orders", 90)
    live_with(cluster, 1, 3)
    assert cluster.partition("orders").leader == 3


def test_whoever_was_back_first_does_not_lead_by_itself() -> None:
    cluster = cluster_in_which_one_restarts()
    live_with(cluster, 3)
    cluster.report(3, "orders", 100)
    live_with(cluster, 3)
    assert cluster.partition("orders").leader == NO_LEADER, "nobody has told what the others have committed since"


def test_whoever_was_back_first_and_is_damaged_or_proves_nothing_is_not_compared() -> None:
    for is_damaged in (True, False):
        cluster = cluster_in_which_one_restarts()
        restart(cluster, 1, 90)
        restart(cluster, 2, 80)
        if not is_damaged:
            cluster.register(3)
        cluster.report(3, "orders", 100, is_damaged=is_damaged)
        cluster.report(2, "orders", 80)
        cluster.report(1, "orders", 90)
        assert cluster.partition("orders").leader == 1


def test_a_leader_that_is_at_work_ends_the_candidacy_of_whoever_has_restarted() -> None:
    cluster = cluster_in_which_one_restarts()
    cluster.do(cluster.proposal("orders", [1]), AlterPartitionResponse)
    cluster.report(3, "orders", 200)
    restart(cluster, 1, 90)
    restart(cluster, 2, 80)
    cluster.report(1, "orders", 90)
    assert cluster.partition("orders").leader == 1


def test_a_damaged_replica_leaves_all_sets_and_waits_for_the_others() -> None:
    cluster = cluster_without_leader()
    assert restart(cluster, 1, 40, is_damaged=True) == []
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (NO_LEADER, (), (2, 3))
    assert 1 not in partition.last_known_elr
    cluster.live(60_000)
    assert cluster.partition("orders").leader == NO_LEADER, "they have what it lost"
    restart(cluster, 3, 100)
    cluster.live(WAIT_MS)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (3, (3,), RECOVERED)
    assert partition.eligible_leader_replicas == (2,)


def test_the_last_one_that_was_counted_on_is_better_than_nobody() -> None:
    """One is damaged, and the other was killed before its folder could prove what it has: else nobody would lead."""
    cluster = cluster_without_leader(brokers=2)
    restart(cluster, 1, 40, is_damaged=True)
    assert cluster.partition("orders").eligible_leader_replicas == (2,)
    cluster.register(2)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (2, RECOVERING)


def test_a_log_of_an_epoch_that_never_was_is_damaged() -> None:
    cluster = cluster_without_leader()
    restart(cluster, 1, 100, last_epoch=0x01000000)
    assert cluster.partition("orders").eligible_leader_replicas == (2, 3)


def test_a_damaged_replica_that_is_the_last_one_leads_with_what_is_left() -> None:
    cluster = cluster_without_leader()
    assert [restart(cluster, node_id, 10 * node_id, is_damaged=True) for node_id in (3, 2, 1)] == [[], [], [0]]
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.leader_recovery_state) == (1, (1,), RECOVERING)


def test_the_only_replica_leads_with_what_is_left_and_a_new_epoch_tells() -> None:
    cluster = Cluster(brokers=1, features=True)
    cluster.create(assigned("orders", [1]))
    before = cluster.partition("orders")
    assert restart(cluster, 1, 40, is_damaged=True) == [0]
    partition = cluster.partition("orders")
    assert (partition.leader, partition.leader_epoch) == (1, before.leader_epoch + 1)


def test_a_damaged_follower_changes_nothing_while_others_lead() -> None:
    cluster = Cluster(brokers=3, features=True)
    cluster.create(assigned("orders", [1, 2, 3]))
    restart(cluster, 3, 7, is_damaged=True)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2))


def test_an_unclean_election_that_is_asked_for_takes_the_longest_log() -> None:
    cluster = cluster_without_leader()
    restart(cluster, 1, 40, is_damaged=True)
    cluster.register(2)  # A power loss: it proves nothing.
    cluster.report(2, "orders", 60)
    assert cluster.partition("orders").leader == NO_LEADER
    asked = ElectLeadersRequest.TopicPartitions(topic="orders", partitions=[0])
    cluster.do(ElectLeadersRequest(election_type=1, topic_partitions=[asked]), ElectLeadersResponse)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (2, RECOVERING)


def test_an_unclean_election_by_the_setting_takes_the_longest_log() -> None:
    cluster = cluster_without_leader()
    alter_topic(cluster, "orders", "unclean.leader.election.enable", "true")
    for node_id, log_end_offset in ((1, 40), (2, 60)):
        cluster.register(node_id)
        cluster.report(node_id, "orders", log_end_offset)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.live(WAIT_MS)
    assert cluster.partition("orders").leader == 2


def test_a_leader_that_lacks_what_an_eligible_follower_has_is_replaced() -> None:
    cluster = cluster_without_leader()
    restart(cluster, 1, 40)
    cluster.live(WAIT_MS)
    assert cluster.partition("orders").leader == 1, "its file was cut at the edge of a batch, and nobody knew"
    restart(cluster, 2, 100)
    restart(cluster, 3, 100)
    error, partition = allow_truncation(cluster, 2)
    assert error == ErrorCode.NEW_LEADER_ELECTED
    cluster.report(2, "orders", 100)
    cluster.report(3, "orders", 100)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.leader_recovery_state) == (2, RECOVERED)
    assert 1 not in (*partition.isr, *partition.eligible_leader_replicas, *partition.last_known_elr)


def test_records_that_nobody_counts_on_may_be_cut() -> None:
    cluster = Cluster(brokers=3, features=True)
    cluster.create(assigned("orders", [1, 2, 3]))
    restart(cluster, 3, 100)
    error, partition = allow_truncation(cluster, 3)
    assert (error, partition.leader, partition.leader_epoch) == (ErrorCode.NONE, 1, 0)


def test_records_given_up_by_an_unclean_election_may_be_cut() -> None:
    cluster = cluster_without_leader(brokers=2)
    for node_id in (2, 1):
        restart(cluster, node_id, 40, is_damaged=True)
    assert cluster.partition("orders").leader_recovery_state == RECOVERING
    assert allow_truncation(cluster, 2)[0] == ErrorCode.NONE


@pytest.mark.parametrize("leader_epoch", [-1, 7])
def test_who_asks_about_another_epoch_has_to_look_again(leader_epoch: int) -> None:
    cluster = Cluster(brokers=2, features=True)
    cluster.create(assigned("orders", [1, 2]))
    request = AllowTruncationRequest(
        broker_id=2,
        broker_epoch=cluster.image.brokers[2].epoch,
        topic_id=cluster.image.topics["orders"].id,
        leader_epoch=leader_epoch,
    )
    assert cluster.do(request, AllowTruncationResponse).error_code == ErrorCode.FENCED_LEADER_EPOCH
    request.broker_epoch = 0
    assert cluster.do(request, AllowTruncationResponse).error_code == ErrorCode.STALE_BROKER_EPOCH

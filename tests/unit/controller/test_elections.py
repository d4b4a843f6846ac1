"""Who leads: what the stories of `tests/unit/replica` do not tell."""

import pytest

from tailrace.controller.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from tailrace.controller.image import NO_LEADER
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.admin import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.unit.controller.cluster import Cluster, alter_topic, assigned

UNCLEAN = "unclean.leader.election.enable"
MIN_INSYNC = "min.insync.replicas"
# For elections among replicas that have all been away: eligible.leader.wait.ms.
WAIT_MS = 3_000


def cluster_of(brokers: int, *, min_insync: str = "1", features: bool = True) -> Cluster:
    """With one partition, "orders", led by broker 1 with all brokers in sync."""
    cluster = Cluster(brokers=brokers, features=features)
    cluster.create(assigned("orders", list(range(1, brokers + 1))))
    alter_topic(cluster, "orders", MIN_INSYNC, min_insync)
    return cluster


def fence(cluster: Cluster, *nodes: int) -> None:
    for node in nodes:
        assert cluster.heartbeat(node, want_fence=True).is_fenced


def elect(cluster: Cluster, *partitions: int, unclean: bool = False) -> list[tuple[int, int]]:
    asked = ElectLeadersRequest.TopicPartitions(topic="orders", partitions=list(partitions))
    request = ElectLeadersRequest(election_type=int(unclean), topic_partitions=[asked] if partitions else None)
    (result,) = cluster.do(request, ElectLeadersResponse).replica_election_results
    return [(each.partition_id, each.error_code) for each in result.partition_result]


def test_an_elected_one_that_can_commit_alone_leaves_no_others_eligible() -> None:
    cluster = cluster_of(2)
    cluster.pass_time(10_000)
    assert set(cluster.partition("orders").eligible_leader_replicas) == {1, 2}, "both were lost at once"
    cluster.heartbeat(2)
    cluster.live(WAIT_MS)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (2, (2,), ())


def test_without_the_feature_the_last_one_stays_in_sync() -> None:
    cluster = cluster_of(2, features=False)
    fence(cluster, 1, 2)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (NO_LEADER, (2,), ())
    cluster.heartbeat(1)
    assert cluster.partition("orders").leader == NO_LEADER
    cluster.heartbeat(2)
    assert cluster.partition("orders").leader == 2


def test_a_feature_that_is_taken_back_leaves_nobody_stranded() -> None:
    cluster = cluster_of(2, min_insync="2")
    fence(cluster, 2, 1)
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=ELIGIBLE_LEADER_REPLICAS_VERSION, upgrade_type=2)
    cluster.do(UpdateFeaturesRequest(feature_updates=[update]), UpdateFeaturesResponse)
    assert ELIGIBLE_LEADER_REPLICAS_VERSION not in cluster.image.features
    cluster.heartbeat(2)
    cluster.live(WAIT_MS)
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (2, (2,), ())


@pytest.mark.parametrize("value", ["1", "3"])
def test_another_min_insync_replicas_forgets_who_was_eligible(value: str) -> None:
    cluster = cluster_of(3, min_insync="2")
    fence(cluster, 3, 2)
    assert cluster.partition("orders").eligible_leader_replicas == (2,)
    alter_topic(cluster, "orders", MIN_INSYNC, value)
    assert cluster.partition("orders").eligible_leader_replicas == ()
    assert cluster.partition("orders").leader == 1


def test_without_a_leader_nothing_is_committed_and_nobody_forgotten() -> None:
    cluster = cluster_of(2, min_insync="2")
    fence(cluster, 1, 2)
    alter_topic(cluster, "orders", MIN_INSYNC, "1")
    assert set(cluster.partition("orders").eligible_leader_replicas) == {1, 2}


def test_a_preferred_election() -> None:
    cluster = cluster_of(2)
    assert elect(cluster, 0) == [(0, ErrorCode.ELECTION_NOT_NEEDED)]
    fence(cluster, 1)
    assert elect(cluster, 0) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    cluster.heartbeat(1)
    assert elect(cluster, 0) == [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)], "it is not in sync"
    cluster.expand("orders", 1)
    assert elect(cluster, 0, 7) == [(0, ErrorCode.NONE), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert (cluster.partition("orders").leader, cluster.partition("orders").leader_epoch) == (1, 2)
    assert elect(cluster) == [], "of all partitions those without need are not listed"


def test_an_unclean_election_that_is_asked_for() -> None:
    cluster = cluster_of(2)
    assert elect(cluster, 0, unclean=True) == [(0, ErrorCode.ELECTION_NOT_NEEDED)]
    fence(cluster, 2, 1)
    assert elect(cluster, 0, unclean=True) == [(0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]
    cluster.heartbeat(2)
    assert elect(cluster, 0, unclean=True) == [(0, ErrorCode.NONE)]
    assert (cluster.partition("orders").leader, cluster.partition("orders").isr) == (2, (2,))
    with pytest.raises(KafkaError, match="Unknown election type 9"):
        cluster.do(ElectLeadersRequest(election_type=9, topic_partitions=None), ElectLeadersResponse)


def test_leaders_go_back_by_themselves() -> None:
    cluster = Cluster(brokers=2, features=True, leader_imbalance_check_interval_seconds=10)
    cluster.create(assigned("orders", [1, 2], [1, 2], [2, 1], [1, 2]))
    fence(cluster, 1)
    cluster.heartbeat(1)
    for index in range(4):
        cluster.expand("orders", 1, index=index)
    leaders = [partition.leader for partition in cluster.image.topics["orders"].partitions.values()]
    assert leaders == [2, 2, 2, 2]
    cluster.live(9_000)
    assert cluster.partition("orders").leader == 2
    cluster.live(2_000)
    leaders = [partition.leader for partition in cluster.image.topics["orders"].partitions.values()]
    assert leaders == [1, 1, 2, 1]


def test_leaders_stay_where_they_are_if_it_is_wished() -> None:
    cluster = Cluster(
        brokers=2, features=True, leader_imbalance_check_interval_seconds=10, auto_leader_rebalance_enable=False
    )
    cluster.create(assigned("orders", [1, 2]))
    fence(cluster, 1)
    cluster.heartbeat(1)
    cluster.expand("orders", 1)
    cluster.live(30_000)
    assert cluster.partition("orders").leader == 2

"""AlterPartition: what a leader may propose. What is refused is told in the stories of `tests/unit/replica`."""

import pytest

from tailrace.controller.partitions.change import RECOVERED, RECOVERING
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.quorum import AlterPartitionRequest, AlterPartitionResponse
from tests.unit.controller.cluster import Cluster, alter_topic, assigned

State = AlterPartitionRequest.BrokerState


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 leads "orders", and is in sync with 2; 3 has just come back."""
    cluster = Cluster(brokers=4, features=True)
    cluster.create(assigned("orders", [1, 2, 3]))
    cluster.heartbeat(3, want_fence=True)
    cluster.heartbeat(3)
    assert cluster.partition("orders").isr == (1, 2)
    return cluster


def propose(
    cluster: Cluster, isr: list[int], *, sender: int = 1, **changes: object
) -> AlterPartitionResponse.PartitionData:
    request = cluster.proposal("orders", isr, sender=sender)
    for name, value in changes.items():
        setattr(request.topics[0].partitions[0], name, value)
    response = cluster.do(request, AlterPartitionResponse)
    assert response.error_code == ErrorCode.NONE
    return response.topics[0].partitions[0]


def test_a_follower_that_has_caught_up(cluster: Cluster) -> None:
    answer = propose(cluster, [1, 2, 3])
    partition = cluster.partition("orders")
    assert (answer.error_code, answer.isr, answer.leader_id) == (ErrorCode.NONE, [1, 2, 3], 1)
    assert (
        (answer.leader_epoch, answer.partition_epoch) == (partition.leader_epoch, partition.partition_epoch) == (0, 2)
    )


def test_version_2_has_no_broker_epochs(cluster: Cluster) -> None:
    answer = propose(cluster, [1, 2], new_isr_with_epochs=[], new_isr=[1, 2, 3])
    assert (answer.error_code, answer.isr) == (ErrorCode.NONE, [1, 2, 3])


def test_what_changes_nothing_writes_nothing(cluster: Cluster) -> None:
    before = cluster.image
    answer = propose(cluster, [1, 2])
    assert (answer.error_code, answer.partition_epoch) == (ErrorCode.NONE, 1)
    assert cluster.image is before


def test_who_is_about_to_stop_is_not_taken_in(cluster: Cluster) -> None:
    cluster.create(assigned("other", [3, 1]))  # Which it has to hand over first.
    cluster.heartbeat(3, want_shut_down=True)
    assert not cluster.image.brokers[3].is_active
    assert propose(cluster, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_leader_that_recovers_is_alone_until_it_says_so(cluster: Cluster) -> None:
    alter_topic(cluster, "orders", "unclean.leader.election.enable", "true")
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    cluster.live(3_000)
    assert cluster.partition("orders").leader == 3
    assert cluster.partition("orders").leader_recovery_state == RECOVERING
    cluster.heartbeat(2)
    refused = propose(cluster, [3, 2], sender=3, leader_recovery_state=RECOVERING)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    answer = propose(cluster, [3, 2], sender=3, leader_recovery_state=RECOVERED)
    assert (answer.error_code, answer.leader_recovery_state) == (ErrorCode.NONE, RECOVERED)
    assert cluster.partition("orders").isr == (3, 2)

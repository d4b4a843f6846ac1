"""AlterPartition: what a leader may propose."""

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


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"new_isr_with_epochs": [State(broker_id=1), State(broker_id=1)]}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [State(broker_id=1), State(broker_id=4)]}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [State(broker_id=2), State(broker_id=3)]}, ErrorCode.INVALID_REQUEST),
        ({"new_isr_with_epochs": [], "new_isr": []}, ErrorCode.INVALID_REQUEST),
        (
            {"new_isr_with_epochs": [State(broker_id=1), State(broker_id=3, broker_epoch=1)]},
            ErrorCode.INELIGIBLE_REPLICA,
        ),
        ({"leader_recovery_state": RECOVERING}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 7}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused(cluster: Cluster, changes: dict[str, object], code: ErrorCode) -> None:
    before = cluster.image
    assert propose(cluster, [1, 2, 3], **changes).error_code == code
    assert cluster.image is before


def test_only_the_leader_proposes(cluster: Cluster) -> None:
    assert propose(cluster, [1, 2], sender=2).error_code == ErrorCode.INVALID_REQUEST


def test_of_an_earlier_incarnation_nothing_is_taken(cluster: Cluster) -> None:
    request = cluster.proposal("orders", [1])
    request.broker_epoch -= 1
    assert cluster.do(request, AlterPartitionResponse).error_code == ErrorCode.STALE_BROKER_EPOCH
    request.broker_id = 9
    assert cluster.do(request, AlterPartitionResponse).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_an_unknown_topic(cluster: Cluster) -> None:
    request = cluster.proposal("orders", [1])
    request.topics[0].topic_id = b"?" * 16
    response = cluster.do(request, AlterPartitionResponse)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("state", ["fenced", "stopping"])
def test_who_is_about_to_go_is_not_taken_in(cluster: Cluster, state: str) -> None:
    cluster.create(assigned("other", [3, 1]))
    cluster.heartbeat(3, want_fence=state == "fenced", want_shut_down=state == "stopping")
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

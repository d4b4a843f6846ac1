"""Moving replicas: asked for, completed, replaced, cancelled, listed."""

import pytest

from tailrace.controller.image import NO_LEADER
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tailrace.wire.apis.quorum import AlterPartitionResponse
from tests.unit.controller.cluster import Cluster, alter_topic, assigned, directory_id

Asked = AlterPartitionReassignmentsRequest.ReassignablePartition


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(brokers=6, features=True)
    cluster.create(assigned("orders", [1, 2, 3], [1, 2, 3]))
    return cluster


def reassign(
    cluster: Cluster,
    replicas: list[int] | None,
    *,
    name: str = "orders",
    index: int = 0,
    may_change_factor: bool = True,
) -> tuple[int, str | None]:
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(
        name=name, partitions=[Asked(partition_index=index, replicas=replicas)]
    )
    request = AlterPartitionReassignmentsRequest(topics=[topic], allow_replication_factor_change=may_change_factor)
    response = cluster.do(request, AlterPartitionReassignmentsResponse)
    assert response.error_code == ErrorCode.NONE
    result = response.responses[0].partitions[0]
    return result.error_code, result.error_message


def ongoing(
    cluster: Cluster, topics: list[tuple[str, list[int]]] | None = None
) -> list[tuple[str, int, list[int], list[int]]]:
    asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    listed = None if topics is None else [asked(name=name, partition_indexes=indexes) for name, indexes in topics]
    response = cluster.ask(ListPartitionReassignmentsRequest(topics=listed), ListPartitionReassignmentsResponse)
    return [
        (topic.name, each.partition_index, each.adding_replicas, each.removing_replicas)
        for topic in response.topics
        for each in topic.partitions
    ]


def test_a_move_completes_when_all_of_the_target_are_in_sync(cluster: Cluster) -> None:
    assert reassign(cluster, [4, 5, 3]) == (ErrorCode.NONE, None)
    partition = cluster.partition("orders")
    assert partition.replicas == (4, 5, 3, 1, 2)
    assert (partition.adding_replicas, partition.removing_replicas) == ((4, 5), (1, 2))
    assert partition.directories == tuple(directory_id(node) for node in partition.replicas)
    assert (partition.leader, partition.leader_epoch) == (1, 0), "nothing is taken away yet"
    assert ongoing(cluster) == [("orders", 0, [4, 5], [1, 2])]
    cluster.expand("orders", 4)
    assert cluster.partition("orders").is_reassigning
    answer = cluster.do(cluster.proposal("orders", [1, 2, 3, 4, 5]), AlterPartitionResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr) == ((4, 5, 3), (3, 4, 5))
    assert (partition.leader, partition.leader_epoch) == (4, 1)
    assert partition.directories == tuple(directory_id(node) for node in (4, 5, 3))
    assert ongoing(cluster) == []


def test_a_new_order_is_made_at_once(cluster: Cluster) -> None:
    reassign(cluster, [3, 2, 1])
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.is_reassigning, partition.leader_epoch) == ((3, 2, 1), False, 0)


def test_fewer_replicas_are_a_new_leader_epoch(cluster: Cluster) -> None:
    reassign(cluster, [1, 2])
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (1, 2), 1)
    assert partition.leader_epoch == 1, "the replica that is gone must not go on in the old one"


def test_a_second_request_replaces_the_first(cluster: Cluster) -> None:
    reassign(cluster, [4, 5, 6])
    cluster.expand("orders", 4)
    reassign(cluster, [5, 2, 3])
    partition = cluster.partition("orders")
    assert partition.replicas == (5, 2, 3, 1)
    assert (partition.adding_replicas, partition.removing_replicas, partition.isr) == ((5,), (1,), (1, 2, 3))


def test_a_move_can_be_cancelled(cluster: Cluster) -> None:
    reassign(cluster, [4, 5, 6])
    cluster.expand("orders", 4)
    assert reassign(cluster, None) == (ErrorCode.NONE, None)
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.is_reassigning) == ((1, 2, 3), (1, 2, 3), False)
    assert reassign(cluster, None)[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_whose_new_replicas_alone_are_left_is_not_cancelled(cluster: Cluster) -> None:
    reassign(cluster, [4, 5, 6])
    cluster.expand("orders", 4)
    for node in (1, 2, 3):
        cluster.heartbeat(node, want_fence=True)
    assert cluster.partition("orders").isr == (4,)
    code, message = reassign(cluster, None)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "unclean leader election" in (message or "")
    alter_topic(cluster, "orders", "unclean.leader.election.enable", "true")
    assert reassign(cluster, None) == (ErrorCode.NONE, None)
    assert (cluster.partition("orders").replicas, cluster.partition("orders").leader) == ((1, 2, 3), NO_LEADER)


@pytest.mark.parametrize(
    ("replicas", "name", "index", "code"),
    [
        ([], "orders", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], "orders", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], "orders", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], "orders", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], "none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, "orders", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be(cluster: Cluster, replicas: list[int] | None, name: str, index: int, code: ErrorCode) -> None:
    before = cluster.image
    assert reassign(cluster, replicas, name=name, index=index)[0] == code
    assert cluster.image is before


def test_the_replication_factor_may_have_to_stay(cluster: Cluster) -> None:
    assert reassign(cluster, [4, 5], may_change_factor=False)[0] == ErrorCode.INVALID_REPLICATION_FACTOR
    assert reassign(cluster, [4, 5, 6], may_change_factor=False)[0] == ErrorCode.NONE
    assert reassign(cluster, [2, 5, 6], may_change_factor=False)[0] == ErrorCode.NONE, "the target counts"


def test_listing_what_is_asked_for(cluster: Cluster) -> None:
    reassign(cluster, [4, 2, 3], index=1)
    assert ongoing(cluster, [("orders", [0, 1, 9]), ("none", [0])]) == [("orders", 1, [4], [1])]
    assert ongoing(cluster, [("orders", [0])]) == []

"""Data folders: assigned, failed, lost (KIP-858)."""

import pytest

from tailrace.controller.image import LOST_DIRECTORY, NO_LEADER, UNASSIGNED_DIRECTORY, UNKNOWN_DIRECTORY
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import Uuid
from tailrace.wire.apis.quorum import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
)
from tests.unit.controller.cluster import Cluster, assigned, directory_id

FIRST, SECOND = directory_id(1, 1), directory_id(1, 2)


@pytest.fixture
def cluster() -> Cluster:
    """Broker 1 has two folders, with the partitions 0 and 1 of "orders" in one each."""
    cluster = Cluster(brokers=2, features=True)
    registration = cluster.registration(1)
    registration.log_dirs = [directory_id(1), FIRST, SECOND]
    cluster.unfence(1, cluster.do(registration, BrokerRegistrationResponse).broker_epoch)
    cluster.create(assigned("orders", [1, 2], [1, 2]))
    assert cluster.partition("orders").directories == (UNASSIGNED_DIRECTORY, directory_id(2))
    assert assign(cluster, FIRST, 0) == [ErrorCode.NONE]
    assert assign(cluster, SECOND, 1) == [ErrorCode.NONE]
    return cluster


def assign(
    cluster: Cluster, directory: Uuid, *partitions: int, node: int = 1, topic_id: bytes | None = None
) -> list[int]:
    data = AssignReplicasToDirsRequest.PartitionData
    topic = AssignReplicasToDirsRequest.TopicData(
        topic_id=topic_id or cluster.image.topics["orders"].id,
        partitions=[data(partition_index=index) for index in partitions],
    )
    request = AssignReplicasToDirsRequest(
        broker_id=node,
        broker_epoch=cluster.image.brokers[node].epoch,
        directories=[AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=[topic])],
    )
    response = cluster.do(request, AssignReplicasToDirsResponse)
    assert response.error_code == ErrorCode.NONE
    return [partition.error_code for partition in response.directories[0].topics[0].partitions]


def report(cluster: Cluster, *offline: Uuid) -> BrokerHeartbeatResponse:
    broker = cluster.image.brokers[1]
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=broker.epoch,
        current_metadata_offset=cluster.image.next_offset,
        offline_log_dirs=list(offline),
    )
    return cluster.do(request, BrokerHeartbeatResponse)


def test_replicas_are_assigned(cluster: Cluster) -> None:
    assert cluster.partition("orders", 0).directories == (FIRST, directory_id(2))
    assert cluster.partition("orders", 1).directories == (SECOND, directory_id(2))
    before = cluster.image
    assert assign(cluster, FIRST, 0) == [ErrorCode.NONE]
    assert cluster.image is before


def test_assignments_that_cannot_be(cluster: Cluster) -> None:
    assert assign(cluster, FIRST, 7) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(cluster, FIRST, 0, topic_id=b"?" * 16) == [ErrorCode.UNKNOWN_TOPIC_ID]
    cluster.register(3)
    assert assign(cluster, directory_id(3), 0, node=3) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    stale = AssignReplicasToDirsRequest(broker_id=1, broker_epoch=0)
    assert cluster.do(stale, AssignReplicasToDirsResponse).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_failed_folder_takes_only_its_partitions(cluster: Cluster) -> None:
    report(cluster, FIRST)
    failed, working = cluster.partition("orders", 0), cluster.partition("orders", 1)
    assert (failed.leader, failed.isr) == (2, (2,))
    assert (working.leader, working.isr) == (1, (1, 2))
    assert cluster.image.brokers[1].log_dirs == (directory_id(1), SECOND)
    assert cluster.image.brokers[1].is_active
    before = cluster.image
    report(cluster, FIRST)
    assert cluster.image is before, "it is known"


def test_what_lies_in_a_failed_folder_is_not_elected(cluster: Cluster) -> None:
    report(cluster, FIRST)
    cluster.heartbeat(2, want_fence=True)
    assert cluster.partition("orders", 0).leader == NO_LEADER
    assert cluster.partition("orders", 1).leader == 1


def test_a_replica_assigned_to_a_failed_folder_leaves(cluster: Cluster) -> None:
    assert assign(cluster, LOST_DIRECTORY, 0) == [ErrorCode.NONE]
    assert (cluster.partition("orders", 0).leader, cluster.partition("orders", 0).isr) == (2, (2,))
    assert cluster.partition("orders", 1).leader == 1


def test_a_folder_that_has_failed_is_known_before_its_broker_leads(cluster: Cluster) -> None:
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    assert report(cluster, FIRST).is_fenced
    assert not report(cluster, FIRST).is_fenced
    assert cluster.partition("orders", 0).leader == NO_LEADER
    assert cluster.partition("orders", 1).leader == 1


def test_an_emptied_disk_is_never_led_from() -> None:
    cluster = Cluster(brokers=2, features=True)
    cluster.create(assigned("orders", [1, 2]))
    cluster.heartbeat(2, want_fence=True)
    cluster.pass_time(60_000)
    assert cluster.partition("orders").last_known_elr == (1,)
    registration = cluster.registration(1)
    registration.log_dirs = [FIRST]
    cluster.unfence(1, cluster.do(registration, BrokerRegistrationResponse).broker_epoch)
    assert cluster.partition("orders").leader == NO_LEADER
    assert assign(cluster, FIRST, 0) == [ErrorCode.NONE]
    partition = cluster.partition("orders")
    assert (partition.leader, partition.last_known_elr) == (NO_LEADER, ())


def test_the_reserved_ids_are_kafkas() -> None:
    numbers = [int.from_bytes(reserved) for reserved in (UNKNOWN_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY)]
    assert numbers == [0, 1, 2]


def test_only_a_lost_directory_keeps_a_replica_offline(cluster: Cluster) -> None:
    broker = cluster.image.brokers[1]
    assert broker.has_online(UNKNOWN_DIRECTORY), "as a data folder from before there were several brokers tells it"
    assert broker.has_online(UNASSIGNED_DIRECTORY)
    assert not broker.has_online(LOST_DIRECTORY)
    assert not broker._replace(log_dirs=()).has_online(LOST_DIRECTORY)

"""Registration, fencing and producer ids."""

import pytest

from tailrace.model.config import Endpoint
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.apis.quorum import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tailrace.wire.schema import Message
from tests.unit.controller.cluster import Cluster, assigned, directory_id, topic


def test_a_registered_broker() -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.register(1, unfence=False)
    broker = cluster.image.brokers[1]
    assert broker.epoch == epoch == 0, "the offset of its record"
    assert broker.endpoints == (Endpoint("PLAINTEXT", "localhost", 9092),)
    assert broker.endpoint("PLAINTEXT") == broker.endpoints[0]
    assert broker.endpoint("OTHER") is None
    assert broker.log_dirs == (directory_id(1),)
    assert not broker.is_active
    cluster.unfence(1, epoch)
    assert cluster.image.brokers[1].is_active


def test_a_broker_of_another_cluster_is_refused() -> None:
    cluster = Cluster(brokers=0)
    request = BrokerRegistrationRequest(broker_id=1, cluster_id="another")
    response = cluster.do(request, BrokerRegistrationResponse)
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert cluster.image.brokers == {}


def test_a_broker_that_died_gets_new_leader_epochs() -> None:
    cluster = Cluster()
    cluster.create(topic("orders", 2))
    cluster.register(1)
    for partition in cluster.image.topics["orders"].partitions.values():
        assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 1, (1,))


def test_a_broker_that_stopped_cleanly_keeps_its_leader_epochs() -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.register(1)
    cluster.create(topic("orders", 2))
    before = cluster.image.topics
    cluster.register(1, previous_broker_epoch=epoch)
    assert cluster.image.topics is before
    assert cluster.image.brokers[1].epoch > epoch


def test_a_new_incarnation_leaves_its_leaderships_and_in_sync_sets() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(assigned("orders", [1, 2], [2, 1]))
    epoch = cluster.register(1, unfence=False)
    led, followed = cluster.image.topics["orders"].partitions.values()
    assert (led.leader, led.leader_epoch, led.isr) == (2, 1, (2,))
    assert (followed.leader, followed.leader_epoch, followed.isr) == (2, 0, (2,))
    cluster.unfence(1, epoch)
    assert cluster.partition("orders").leader == 2, "it comes back as a follower"


def test_heartbeats_must_be_of_this_incarnation() -> None:
    cluster = Cluster(brokers=0)
    old = cluster.register(1)
    cluster.register(1)
    unknown = cluster.ask(BrokerHeartbeatRequest(broker_id=2), BrokerHeartbeatResponse)
    stale = cluster.ask(BrokerHeartbeatRequest(broker_id=1, broker_epoch=old), BrokerHeartbeatResponse)
    assert (unknown.error_code, stale.error_code) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.STALE_BROKER_EPOCH,
    )


@pytest.mark.parametrize(("want_fence", "offset"), [(True, 1 << 40), (False, -1)])
def test_a_broker_stays_fenced_until_it_asks_and_has_caught_up(want_fence: bool, offset: int) -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.register(1, unfence=False)
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=epoch, want_fence=want_fence, current_metadata_offset=offset
    )
    response = cluster.do(request, BrokerHeartbeatResponse)
    assert response.is_fenced
    assert cluster.image.brokers[1].fenced


def test_a_heartbeat_of_an_active_broker_writes_nothing() -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.register(1)
    before = cluster.image
    cluster.unfence(1, epoch)
    assert cluster.image is before


def test_producer_ids_are_given_out_once() -> None:
    cluster = Cluster(brokers=0)
    epoch = cluster.register(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
    first = cluster.do(request, AllocateProducerIdsResponse)
    second = cluster.do(request, AllocateProducerIdsResponse)
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    assert second.producer_id_start == 1000
    assert cluster.rebuilt().next_producer_id == 2000
    stale = cluster.do(AllocateProducerIdsRequest(broker_id=1, broker_epoch=99), AllocateProducerIdsResponse)
    unknown = cluster.do(AllocateProducerIdsRequest(broker_id=5), AllocateProducerIdsResponse)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_what_the_controller_does_not_serve() -> None:
    with pytest.raises(KafkaError, match="does not serve MetadataRequest"):
        Cluster().do(MetadataRequest(), Message)

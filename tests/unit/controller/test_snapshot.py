"""An image as records. That they give the same image is checked on random clusters in tests/property."""

from tailrace.controller.image import METADATA_VERSION, MetadataImage
from tailrace.controller.replay import Replay
from tailrace.controller.snapshot import GROUP_SIZE, records_of
from tailrace.wire.apis.quorum import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tailrace.wire.apis.stored_records import FeatureLevelRecord
from tests.unit.controller.cluster import CLUSTER_ID, Cluster, topic


def test_a_snapshot_holds_everything_in_small_groups() -> None:
    cluster = Cluster(brokers=3, features=True, racks=2)
    cluster.create(topic("orders", 2 * GROUP_SIZE, 3, retention_ms="5"), topic("lo.gs", 1, 1))
    epoch = cluster.image.brokers[1].epoch
    cluster.do(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch), AllocateProducerIdsResponse)
    cluster.heartbeat(2, want_shut_down=True)
    groups = list(records_of(cluster.image))
    assert max(map(len, groups)) == GROUP_SIZE
    replay = Replay(MetadataImage(CLUSTER_ID))
    for offset, record in enumerate(record for group in groups for record in group):
        replay.replay_record(offset, record)
    replay.replay_control(cluster.image.next_offset)
    assert replay.image() == cluster.image


def test_the_version_comes_first() -> None:
    (first, *_), *_ = records_of(Cluster(features=True).image)
    assert isinstance(first, FeatureLevelRecord)
    assert first.name == METADATA_VERSION


def test_an_empty_image_is_no_records() -> None:
    assert list(records_of(MetadataImage(CLUSTER_ID))) == []

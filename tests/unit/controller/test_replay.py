"""Images: rebuilt equals live, old ones do not change, unchanged parts are shared."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.controller.image import MetadataImage, ResourceType
from tailrace.controller.replay import Replay
from tailrace.wire.apis.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tailrace.wire.apis.stored_records import (
    ClearElrRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from tests.unit.controller.cluster import CLUSTER_ID, Cluster, assigned, topic

TOPIC_ID = b"t" * 16
NAMES = ["a", "b", "a.b", "a_b"]


def test_unchanged_parts_are_shared() -> None:
    cluster = Cluster()
    cluster.create(topic("a", 2, retention_ms="5"), topic("b", 2))
    before = cluster.image
    cluster.create(topic("c"))
    after = cluster.image
    assert after is not before
    assert after.topics["a"] is before.topics["a"]
    assert after.brokers is before.brokers
    assert after.configs is before.configs
    assert "c" not in before.topics


def test_a_change_of_one_partition_copies_its_topic_alone() -> None:
    replay = Replay(MetadataImage(CLUSTER_ID))
    replay.replay_record(0, TopicRecord(name="a", topic_id=TOPIC_ID))
    replay.replay_record(1, TopicRecord(name="b", topic_id=b"b" * 16))
    for index in range(3):
        replay.replay_record(
            2 + index,
            PartitionRecord(
                topic_id=TOPIC_ID, partition_id=index, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0
            ),
        )
    before = replay.image()
    replay.replay_record(5, PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=1, isr=[1]))
    after = replay.image()
    assert after.topics["b"] is before.topics["b"]
    assert after.topics["a"].partitions[0] is before.topics["a"].partitions[0]
    changed = after.topics["a"].partitions[1]
    assert (changed.isr, changed.leader, changed.leader_epoch) == ((1,), 1, 0)
    assert changed.partition_epoch == before.topics["a"].partitions[1].partition_epoch + 1
    assert before.topics["a"].partitions[1].isr == (1, 2)


def test_setting_a_leader_starts_an_epoch() -> None:
    replay = Replay(MetadataImage(CLUSTER_ID))
    replay.replay_record(0, TopicRecord(name="a", topic_id=TOPIC_ID))
    partition = PartitionRecord(topic_id=TOPIC_ID, partition_id=0, replicas=[1], isr=[1], leader=1, leader_epoch=4)
    replay.replay_record(1, partition)
    replay.replay_record(2, PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=1))
    assert replay.image().topics["a"].partitions[0].leader_epoch == 5


def test_eligible_replicas_can_be_forgotten() -> None:
    """Kafka's own controller writes this record; ours changes each partition."""
    replay = Replay(MetadataImage(CLUSTER_ID))
    for offset, name in enumerate(("a", "b")):
        topic_id = name.encode() * 16
        replay.replay_record(2 * offset, TopicRecord(name=name, topic_id=topic_id))
        partition = PartitionRecord(
            topic_id=topic_id, partition_id=0, replicas=[1, 2], isr=[1], leader=1, eligible_leader_replicas=[2]
        )
        replay.replay_record(2 * offset + 1, partition)
    replay.replay_record(4, ClearElrRecord(topic_name="a"))
    image = replay.image()
    assert [image.topics[name].partitions[0].eligible_leader_replicas for name in "ab"] == [(), (2,)]
    replay.replay_record(5, ClearElrRecord(topic_name=""))
    assert replay.image().topics["b"].partitions[0].eligible_leader_replicas == ()
    assert image.topics["b"].partitions[0].eligible_leader_replicas == (2,), "an image that is held does not change"


def test_a_brokers_partitions_are_found_without_a_walk() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(assigned("a", [1, 2], [2, 3]), assigned("b", [3, 1]))
    before = cluster.image
    assert [(each.name, index) for each, index, _ in before.partitions_of(1)] == [("a", 0), ("b", 0)]
    cluster.do(DeleteTopicsRequest(topic_names=["b"]), DeleteTopicsResponse)
    assert [(each.name, index) for each, index, _ in cluster.image.partitions_of(1)] == [("a", 0)]
    assert cluster.image.partitions_by_broker[2] is before.partitions_by_broker[2], "what did not change is shared"
    assert len(list(before.partitions_of(1))) == 2


def test_features_and_unknown_records() -> None:
    replay = Replay(MetadataImage(CLUSTER_ID))
    replay.replay_record(0, FeatureLevelRecord(name="metadata.version", feature_level=30))
    replay.replay_record(1, NoOpRecord())
    replay.replay_control(5)
    image = replay.image()
    assert (image.features, image.next_offset) == ({"metadata.version": 30}, 5)
    replay.replay_record(5, FeatureLevelRecord(name="metadata.version", feature_level=0))
    assert replay.image().features == {}


def test_a_broker_can_be_unregistered() -> None:
    cluster = Cluster(brokers=2)
    epoch = cluster.image.brokers[2].epoch
    cluster.controller.replay(len(cluster.records), UnregisterBrokerRecord(broker_id=2, broker_epoch=epoch))
    assert list(cluster.image.brokers) == [1]


def test_a_record_is_never_replayed_twice() -> None:
    replay = Replay(MetadataImage(CLUSTER_ID))
    replay.replay_record(0, NoOpRecord())
    with pytest.raises(AssertionError, match="replayed twice"):
        replay.replay_record(0, NoOpRecord())


def _change(name: str, key: str, value: str | None) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0 if value else 1, value=value)
    return IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=ResourceType.TOPIC, resource_name=name, configs=[change])]
    )


STEPS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(NAMES), st.integers(1, 3)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just(0)),
    st.tuples(st.just("grow"), st.sampled_from(NAMES), st.integers(1, 5)),
    st.tuples(st.just("set"), st.sampled_from(NAMES), st.integers(0, 2)),
    st.tuples(st.just("restart"), st.just(""), st.integers(1, 3)),
)


def _step(cluster: Cluster, kind: str, name: str, number: int) -> None:
    match kind:
        case "create":
            cluster.create(topic(name, number, retention_ms=str(number)))
        case "delete":
            cluster.do(DeleteTopicsRequest(topic_names=[name]), DeleteTopicsResponse)
        case "grow":
            asked = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=number, assignments=None)
            cluster.do(CreatePartitionsRequest(topics=[asked]), CreatePartitionsResponse)
        case "set":
            cluster.do(_change(name, "segment.ms", str(number) if number else None), IncrementalAlterConfigsResponse)
        case "restart":
            cluster.register(number)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_a_rebuilt_image_equals_the_live_one(steps: list[tuple[str, str, int]]) -> None:
    cluster = Cluster(brokers=3)
    history: list[tuple[MetadataImage, MetadataImage]] = []
    for step in steps:
        _step(cluster, *step)
        history.append((cluster.image, cluster.rebuilt()))
    for live, rebuilt in history:
        assert live == rebuilt
        assert live.partition_count == sum(len(each.partitions) for each in live.topics.values())
        assert {live.topics[name].id: name for name in live.topics} == live.topic_names
        held = {
            (node, each.name, index)
            for each in live.topics.values()
            for index, partition in each.partitions.items()
            for node in partition.replicas
        }
        assert held == {
            (node, name, index)
            for node, names in live.partitions_by_broker.items()
            for name, indexes in names.items()
            for index in indexes
        }
        assert all(names and all(names.values()) for names in live.partitions_by_broker.values())

"""kafka-python's admin client: the newest versions of the admin requests, log folders and topic partitions."""

from collections.abc import Callable, Iterator

import pytest
from kafka import TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from .clients.corpus import START_MS, STEP_MS, small
from .clients.pure import KafkaPython


@pytest.fixture
def pure_admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def test_a_topic_lives_and_dies(pure_admin: KafkaAdminClient, fresh_name: Callable[[], str]):
    name = fresh_name()
    pure_admin.create_topics([NewTopic(name, 2, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        pure_admin.create_topics([NewTopic(name, 2, 1)])
    assert name in pure_admin.list_topics()
    (described,) = pure_admin.describe_topics([name])
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1]
    pure_admin.create_partitions({name: NewPartitions(3)})
    (grown,) = pure_admin.describe_topic_partitions([name])["topics"]
    assert [partition["partition_index"] for partition in grown["partitions"]] == [0, 1, 2]
    assert str(grown["topic_id"]) == described["topic_id"]
    pure_admin.delete_topics([name])
    with pytest.raises(UnknownTopicOrPartitionError):
        pure_admin.delete_topics([name])


@pytest.mark.parametrize("incremental", [True, False])
def test_settings_are_altered(pure_admin: KafkaAdminClient, create_topic: Callable[..., str], incremental: bool):
    # Without increments the library sends the whole set again, with what was there before.
    topic = create_topic(**{"retention.ms": "60000"})
    change = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"segment.bytes": "7000000"})
    assert pure_admin.alter_configs([change], incremental=incremental) == {"topic": {topic: "OK"}}
    described = pure_admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
    assert {name: setting["value"] for name, setting in described.items()} == {
        "retention.ms": "60000",
        "segment.bytes": "7000000",
    }
    assert described["retention.ms"]["config_type"] == "LONG"
    assert described["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"


def test_resources_with_settings_are_listed(pure_admin: KafkaAdminClient, topic: str):
    assert topic in pure_admin.list_config_resources()["topic"]


def test_offsets_are_listed_and_records_deleted(bootstrap: str, pure_admin: KafkaAdminClient, topic: str):
    KafkaPython().produce(bootstrap, topic, small(10))
    partition = TopicPartition(topic, 0)

    def listed(spec: OffsetSpec | int) -> int:
        return pure_admin.list_partition_offsets({partition: spec})[partition].offset

    assert (listed(OffsetSpec.EARLIEST), listed(OffsetSpec.LATEST)) == (0, 10)
    assert (listed(OffsetSpec.MAX_TIMESTAMP), listed(START_MS + 7 * STEP_MS)) == (9, 7)
    assert pure_admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert (listed(OffsetSpec.EARLIEST), listed(OffsetSpec.EARLIEST_LOCAL)) == (4, 4)
    assert listed(OffsetSpec.LATEST_TIERED) == -1


def test_the_cluster_and_its_log_folders_are_described(bootstrap: str, pure_admin: KafkaAdminClient, topic: str):
    KafkaPython().produce(bootstrap, topic, small(10))
    cluster = pure_admin.describe_cluster()
    assert [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]] == [bootstrap]
    ((folder,),) = [broker["log_dirs"] for broker in pure_admin.describe_log_dirs()]
    sizes = {
        entry["name"]: [partition["partition_size"] for partition in entry["partitions"]] for entry in folder["topics"]
    }
    assert len(sizes[topic]) == 1
    assert sizes[topic][0] > 1_000

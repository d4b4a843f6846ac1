"""librdkafka's admin client: topics, settings, records, offsets and the cluster."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from .clients import DEADLINE_S
from .clients.confluent import Confluent
from .clients.corpus import START_MS, STEP_MS, small


def _only(futures: dict[Any, "Future[Any]"]) -> Any:
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def _code(futures: dict[Any, "Future[Any]"]) -> int:
    with pytest.raises(KafkaException) as raised:
        _only(futures)
    return raised.value.args[0].code()


def _settings(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    return _only(admin.describe_configs([resource]))


def test_a_topic_is_created_listed_described_and_deleted(admin: AdminClient, fresh_name: Callable[[], str]):
    name = fresh_name()
    _only(admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "3600000"})]))
    listed = admin.list_topics(timeout=DEADLINE_S).topics[name]
    assert sorted(listed.partitions) == [0, 1, 2]
    described = _only(admin.describe_topics(TopicCollection([name])))
    assert (described.name, described.is_internal, len(described.partitions)) == (name, False, 3)
    assert [node.id for node in described.partitions[0].isr] == [described.partitions[0].leader.id]
    assert len(str(described.topic_id)) >= 22
    _only(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics
    assert _code(admin.describe_topics(TopicCollection([name]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("no/slash", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("n" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("compat-two-replicas", 1, 2), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("compat-zero-replicas", 1, 0), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("compat-setting", 1, 1, config={"no.such.setting": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("compat-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("compat-bound", 1, 1, config={"segment.bytes": "0"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else None,
)
def test_a_topic_that_cannot_be_is_refused(admin: AdminClient, topic: NewTopic, code: int):
    assert _code(admin.create_topics([topic])) == code
    assert topic.topic not in admin.list_topics(timeout=DEADLINE_S).topics


def test_a_topic_exists_once(admin: AdminClient, topic: str):
    assert _code(admin.create_topics([NewTopic(topic, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS


def test_names_that_differ_in_dots_and_underscores_collide(admin: AdminClient, fresh_name: Callable[[], str]):
    name = fresh_name()
    _only(admin.create_topics([NewTopic(f"{name}.x", 1, 1)]))
    assert _code(admin.create_topics([NewTopic(f"{name}_x", 1, 1)])) == KafkaError.TOPIC_EXCEPTION


def test_validate_only_creates_nothing(admin: AdminClient, fresh_name: Callable[[], str]):
    name = fresh_name()
    _only(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=DEADLINE_S).topics


def test_an_assignment_may_be_given(admin: AdminClient, fresh_name: Callable[[], str]):
    name = fresh_name()
    broker = admin.list_topics(timeout=DEADLINE_S).orig_broker_id
    _only(admin.create_topics([NewTopic(name, 2, replica_assignment=[[broker], [broker]])]))
    assert len(admin.list_topics(timeout=DEADLINE_S).topics[name].partitions) == 2
    unknown = NewTopic(fresh_name(), 1, replica_assignment=[[broker + 99]])
    assert _code(admin.create_topics([unknown])) == KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_grows_and_never_shrinks(bootstrap: str, admin: AdminClient, topic: str):
    Confluent().produce(bootstrap, topic, small(5))
    _only(admin.create_partitions([NewPartitions(topic, 4)]))
    assert len(admin.list_topics(timeout=DEADLINE_S).topics[topic].partitions) == 4
    assert _code(admin.create_partitions([NewPartitions(topic, 4)])) == KafkaError.INVALID_PARTITIONS
    assert _code(admin.create_partitions([NewPartitions(topic, 2)])) == KafkaError.INVALID_PARTITIONS
    assert len(Confluent().read(bootstrap, topic, 5)) == 5


def test_settings_are_altered_one_by_one(admin: AdminClient, topic: str):
    resource = ConfigResource(ResourceType.TOPIC, topic)
    before = _settings(admin, resource)
    assert before["retention.ms"].value == "604800000"
    assert before["retention.ms"].is_default
    resource.add_incremental_config(ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET))
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    )
    _only(admin.incremental_alter_configs([resource]))
    after = _settings(admin, ConfigResource(ResourceType.TOPIC, topic))
    assert (after["retention.ms"].value, after["cleanup.policy"].value) == ("1234567", "delete,compact")
    assert after["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    undo = ConfigResource(ResourceType.TOPIC, topic)
    undo.add_incremental_config(ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE))
    undo.add_incremental_config(
        ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SUBTRACT)
    )
    _only(admin.incremental_alter_configs([undo]))
    again = _settings(admin, ConfigResource(ResourceType.TOPIC, topic))
    assert (again["retention.ms"].value, again["cleanup.policy"].value) == ("604800000", "compact")


@pytest.mark.parametrize(
    ("name", "value"), [("no.such.setting", "1"), ("retention.ms", "soon"), ("min.insync.replicas", "0")]
)
def test_a_setting_that_cannot_be_is_refused(admin: AdminClient, topic: str, name: str, value: str):
    before = _settings(admin, ConfigResource(ResourceType.TOPIC, topic))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
    assert _code(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG
    after = _settings(admin, ConfigResource(ResourceType.TOPIC, topic))
    assert {key: entry.value for key, entry in after.items()} == {key: entry.value for key, entry in before.items()}


def test_settings_of_an_unknown_topic_are_refused(admin: AdminClient, fresh_name: Callable[[], str]):
    resource = ConfigResource(ResourceType.TOPIC, fresh_name())
    assert _code(admin.describe_configs([resource])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_brokers_settings_are_described_and_altered(admin: AdminClient):
    broker = str(admin.list_topics(timeout=DEADLINE_S).orig_broker_id)
    settings = _settings(admin, ConfigResource(ResourceType.BROKER, broker))
    assert settings["node.id"].value == broker
    assert settings["node.id"].is_read_only
    assert not settings["log.retention.ms"].is_read_only
    _alter_broker(admin, broker, "log.retention.ms", "123456789")
    # Apache Kafka answers before the broker has taken the change over.
    deadline = time.monotonic() + DEADLINE_S
    changed = settings["log.retention.ms"]
    while changed.value != "123456789" and time.monotonic() < deadline:
        changed = _settings(admin, ConfigResource(ResourceType.BROKER, broker))["log.retention.ms"]
    assert (changed.value, changed.source) == ("123456789", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    _alter_broker(admin, broker, "log.retention.ms", None)
    fixed = ConfigResource(ResourceType.BROKER, broker)
    fixed.add_incremental_config(ConfigEntry("node.id", "77", incremental_operation=AlterConfigOpType.SET))
    assert _code(admin.incremental_alter_configs([fixed])) in (KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG)


def _alter_broker(admin: AdminClient, broker: str, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    resource = ConfigResource(ResourceType.BROKER, broker)
    resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=operation))
    _only(admin.incremental_alter_configs([resource]))


def test_records_are_deleted_up_to_an_offset(bootstrap: str, admin: AdminClient, topic: str):
    Confluent().produce(bootstrap, topic, small(100))
    assert _only(admin.delete_records([TopicPartition(topic, 0, 40)])).low_watermark == 40
    assert [record.offset for record in Confluent().read(bootstrap, topic, 60, offset=40)] == list(range(40, 100))
    assert _code(admin.delete_records([TopicPartition(topic, 0, 101)])) == KafkaError.OFFSET_OUT_OF_RANGE
    assert _only(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 100


@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 50),
        (OffsetSpec.max_timestamp(), 49),
        (OffsetSpec.for_timestamp(START_MS + 7 * STEP_MS), 7),
        (OffsetSpec.for_timestamp(START_MS + 1_000 * STEP_MS), -1),
    ],
    ids=["earliest", "latest", "max timestamp", "a time", "a time after the last"],
)
def test_offsets_are_listed(bootstrap: str, admin: AdminClient, topic: str, spec: OffsetSpec, offset: int):
    Confluent().produce(bootstrap, topic, small(50))
    assert _only(admin.list_offsets({TopicPartition(topic, 0): spec})).offset == offset


def test_the_cluster_is_described(bootstrap: str, admin: AdminClient):
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert cluster.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
    assert cluster.controller.id == cluster.nodes[0].id

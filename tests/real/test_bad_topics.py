"""Topics that cannot be: names, counts and settings are refused with the right error, and nothing is created."""

import os
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tailrace.model.errors import ErrorCode
from tailrace.testing import Broker

from .raw import RawClient

pytestmark = pytest.mark.usefixtures("bystander")

TIMEOUT_S = 10


@pytest.mark.parametrize(
    "name", [".", "..", "../escape", "/etc/escape", "a/b", "a\\b", "with space", "ümlaut", "new\nline", "x" * 250]
)
def test_invalid_name(tailrace_broker: Broker, admin: AdminClient, name: str):
    before = _files_around(tailrace_broker)
    assert _error_of_create(admin, NewTopic(name, 1, 1)) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert _files_around(tailrace_broker) == before


def test_longest_name_is_fine(admin: AdminClient):
    assert _error_of_create(admin, NewTopic("y" * 249, 1, 1)) is None


@pytest.mark.parametrize(("first", "second"), [("metric.a", "metric_a"), ("b_c.d", "b.c_d")])
def test_names_that_collide(admin: AdminClient, first: str, second: str):
    """Metrics write both as the same name, so Kafka refuses the second."""
    assert _error_of_create(admin, NewTopic(first, 1, 1)) is None
    assert _error_of_create(admin, NewTopic(second, 1, 1)) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topic_that_exists(admin: AdminClient, topic: str):
    assert _error_of_create(admin, NewTopic(topic, 1, 1)) == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("partitions", [0, -2, -(1 << 31), (1 << 31) - 1])
def test_partition_count_that_cannot_be(client: RawClient, partitions: int):
    error = ErrorCode.INVALID_PARTITIONS if partitions < 1 else ErrorCode.POLICY_VIOLATION
    assert client.create_topic("counted", partitions=partitions) == error


@pytest.mark.parametrize("replicas", [0, -2, 2, 32767])
def test_replication_factor_that_cannot_be(client: RawClient, replicas: int):
    assert client.create_topic("replicated", replicas=replicas) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_name_that_is_empty(client: RawClient):
    assert client.create_topic("") == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_assignment_to_a_broker_that_does_not_exist(admin: AdminClient):
    wanted = NewTopic("assigned", 1, replica_assignment=[[77]])
    assert _error_of_create(admin, wanted) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("count", [1, 2])
def test_partitions_never_become_fewer(admin: AdminClient, create_topic: Callable[..., str], count: int):
    topic = create_topic(partitions=2)
    (grown,) = admin.create_partitions([NewPartitions(topic, count)]).values()
    assert _error_of(grown) == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(1 << 40)),
        ("cleanup.policy", "shred"),
        ("compression.type", "middle-out"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("preallocate", "perhaps"),
    ],
)
def test_setting_that_does_not_exist_or_parse(admin: AdminClient, topic: str, name: str, value: str):
    created = NewTopic("configured", 1, 1, config={name: value})
    assert _error_of_create(admin, created) == ErrorCode.INVALID_CONFIG
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    assert _error_of(altered) == ErrorCode.INVALID_CONFIG


def test_refused_topics_do_not_exist(admin: AdminClient):
    refused = {"counted", "replicated", "assigned", "configured"}
    assert not refused & set(admin.list_topics(timeout=TIMEOUT_S).topics)


def test_topic_that_was_never_there(admin: AdminClient):
    (deleted,) = admin.delete_topics(["never-there"]).values()
    assert _error_of(deleted) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error_of_create(admin: AdminClient, wanted: NewTopic) -> ErrorCode | None:
    (created,) = admin.create_topics([wanted]).values()
    return _error_of(created)


def _error_of(future: object) -> ErrorCode | None:
    try:
        future.result(TIMEOUT_S)
    except KafkaException as refused:
        error = refused.args[0]
        assert error.str(), "the client is told why"
        return ErrorCode(error.code())
    return None


def _files_around(broker: Broker) -> set[str]:
    parent = os.path.dirname(broker.data)
    return set(os.listdir(parent)) | set(os.listdir(broker.data))

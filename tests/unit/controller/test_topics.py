"""CreateTopics and DeleteTopics, item by item, with the codes and words of Kafka's controller."""

import pytest

from tailrace.controller.image import ResourceType
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID
from tailrace.wire.apis.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tailrace.wire.apis.stored_records import ConfigRecord, PartitionRecord, TopicRecord
from tests.unit.controller.cluster import Cluster, Topic, TopicConfigEntry, assigned, directory_id, topic


def test_a_topic_with_defaults() -> None:
    cluster = Cluster(num_partitions=3)
    (result,) = cluster.create(topic("orders")).topics
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    created = cluster.image.topics["orders"]
    assert created.id == result.topic_id != ZERO_UUID
    assert list(created.partitions) == [0, 1, 2]
    partition = created.partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == (directory_id(1),)
    assert cluster.image.topic_names[created.id] == "orders"
    assert cluster.image.partition_count == 3


def test_what_a_topic_becomes_on_the_log() -> None:
    cluster = Cluster()
    before = len(cluster.records)
    cluster.create(topic("orders", 2, retention_ms="5", cleanup_policy="compact"))
    kinds = [type(record) for record in cluster.records[before:]]
    assert kinds == [TopicRecord, ConfigRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    assert cluster.image.config(ResourceType.TOPIC, "orders") == {"retention.ms": "5", "cleanup.policy": "compact"}


def test_the_response_tells_all_settings_and_their_sources() -> None:
    cluster = Cluster(log_retention_hours=1)
    (result,) = cluster.create(topic("orders", retention_bytes="7")).topics
    assert result.configs is not None
    settings = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert list(settings) == sorted(settings)
    assert settings["retention.bytes"] == ("7", 1)
    assert settings["retention.ms"] == ("3600000", 4)
    assert settings["segment.bytes"] == ("1073741824", 5)
    assert settings["cleanup.policy"] == ("delete", 5)
    assert "internal.segment.bytes" not in settings


def test_validate_only_changes_nothing() -> None:
    cluster = Cluster()
    before = cluster.image
    results = cluster.create(topic("orders", 2), topic("a b"), validate_only=True).topics
    assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert results[0].num_partitions == 2
    assert cluster.image is before


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'.' is not allowed"),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
        (topic("../up"), ErrorCode.INVALID_TOPIC_EXCEPTION, "contains one or more characters other than ASCII"),
        (topic("é"), ErrorCode.INVALID_TOPIC_EXCEPTION, "contains one or more characters other than ASCII"),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "Creation of internal topic"),
        (topic("old.topic"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old.topic' already exists."),
        (
            topic("old_topic"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'old_topic' collides with existing topic: old.topic",
        ),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (
            topic("t", -2),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0"),
        (
            topic("t", 1, 4),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached",
        ),
        (topic("t", 101), ErrorCode.POLICY_VIOLATION, "more than max.partitions.per.request (100)"),
        (topic("t", nope="1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (topic("t", segment_bytes="1"), ErrorCode.INVALID_CONFIG, "Value must be at least 1048576"),
        (
            Topic(name="t", num_partitions=1, replication_factor=1, configs=[TopicConfigEntry(name="a", value=None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: a",
        ),
        (assigned("t", [1], [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 9, but no such broker"),
        (assigned("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once"),
        (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list"),
        (assigned("t", [1], [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "which have 1 replica(s)"),
    ],
    ids=lambda value: value.name[:12] if isinstance(value, Topic) else None,
)
def test_topics_that_cannot_be(asked: Topic, code: ErrorCode, message: str) -> None:
    cluster = Cluster(brokers=3, max_partitions_per_request=100)
    cluster.create(topic("old.topic"))
    before = cluster.image
    (result,) = cluster.create(asked).topics
    assert (result.name, result.error_code) == (asked.name, code)
    assert message in (result.error_message or "")
    assert (result.num_partitions, result.replication_factor) == (-1, -1)
    assert cluster.image is before


def test_one_bad_topic_does_not_keep_the_others() -> None:
    cluster = Cluster()
    results = cluster.create(topic("good"), topic("a b"), topic("better")).topics
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
    assert set(cluster.image.topics) == {"good", "better"}


def test_a_name_given_twice_is_created_never() -> None:
    cluster = Cluster()
    results = cluster.create(topic("twice"), topic("once"), topic("twice")).topics
    assert [(result.name, result.error_code) for result in results] == [
        ("twice", ErrorCode.INVALID_REQUEST),
        ("once", ErrorCode.NONE),
    ]
    assert results[0].error_message == "Duplicate topic name."


def test_names_collide_within_a_request_too() -> None:
    cluster = Cluster()
    results = cluster.create(topic("a.b"), topic("a_b"), topic("a-b"), topic("ab")).topics
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION, 0, 0]


def test_a_deleted_topic_leaves_its_name_free() -> None:
    cluster = Cluster()
    cluster.create(topic("a.b", 4, retention_ms="5"))
    (deleted,) = cluster.do(DeleteTopicsRequest(topic_names=["a.b"]), DeleteTopicsResponse).responses
    assert deleted.error_code == ErrorCode.NONE
    assert cluster.image.partition_count == 0
    assert cluster.image.configs == {}
    assert cluster.image.collisions == {}
    (result,) = cluster.create(topic("a_b")).topics
    assert result.error_code == ErrorCode.NONE
    assert result.topic_id != deleted.topic_id


def test_an_explicit_assignment() -> None:
    cluster = Cluster(brokers=3)
    (result,) = cluster.create(assigned("orders", [3, 1], [1, 2])).topics
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    partitions = cluster.image.topics["orders"].partitions
    assert [partition.replicas for partition in partitions.values()] == [(3, 1), (1, 2)]
    assert [partition.leader for partition in partitions.values()] == [3, 1]


def test_an_assignment_excludes_counts_and_gaps() -> None:
    cluster = Cluster()
    both = assigned("a", [1])
    both.num_partitions = 1
    factor = assigned("b", [1])
    factor.replication_factor = 1
    gap = assigned("c", [1], [1])
    gap.assignments[1].partition_index = 2
    again = assigned("d", [1], [1])
    again.assignments[1].partition_index = 0
    results = cluster.create(both, factor, gap, again).topics
    assert [(result.error_code, result.error_message) for result in results] == [
        (
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Found multiple manual partition assignments for partition 0"),
    ]


def test_fenced_brokers_get_no_partitions() -> None:
    cluster = Cluster(brokers=0)
    cluster.register(1, unfence=False)
    placed, given = cluster.create(topic("placed"), assigned("given", [1])).topics
    assert placed.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced." in (placed.error_message or "")
    assert given.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "are fenced or in controlled shutdown" in (given.error_message or "")


def test_only_active_replicas_of_an_assignment_are_in_sync() -> None:
    cluster = Cluster(brokers=2)
    cluster.register(1, unfence=False)
    cluster.create(assigned("orders", [1, 2]))
    partition = cluster.image.topics["orders"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 2), (2,), 2)


def test_a_default_replication_factor_that_cannot_be() -> None:
    (result,) = Cluster(default_replication_factor=0).create(topic("orders")).topics
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_the_cluster_has_a_bound_on_partitions() -> None:
    cluster = Cluster(max_partitions_per_cluster=5)
    cluster.create(topic("a", 3))
    (result,) = cluster.create(topic("b", 3)).topics
    assert result.error_code == ErrorCode.POLICY_VIOLATION
    assert "max.partitions.per.cluster (5)" in (result.error_message or "")


def test_delete_by_name_and_by_id() -> None:
    cluster = Cluster()
    ids = {result.name: result.topic_id for result in cluster.create(topic("a"), topic("b"), topic("c")).topics}
    state = DeleteTopicsRequest.DeleteTopicState
    unknown_id = b"?" * 16
    request = DeleteTopicsRequest(
        topics=[
            state(name="a"),
            state(topic_id=ids["b"]),
            state(name="x"),
            state(topic_id=unknown_id),
            state(name="c", topic_id=ids["c"]),
            state(),
        ]
    )
    results = cluster.do(request, DeleteTopicsResponse).responses
    assert [(result.name, result.topic_id, result.error_code) for result in results] == [
        ("a", ids["a"], ErrorCode.NONE),
        ("b", ids["b"], ErrorCode.NONE),
        ("x", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, unknown_id, ErrorCode.UNKNOWN_TOPIC_ID),
        ("c", ids["c"], ErrorCode.INVALID_REQUEST),
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ]
    assert set(cluster.image.topics) == {"c"}
    assert set(cluster.image.topic_names) == {ids["c"]}


def test_delete_of_one_topic_in_two_ways() -> None:
    cluster = Cluster()
    (created,) = cluster.create(topic("a")).topics
    state = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(topics=[state(topic_id=created.topic_id), state(name="a")])
    first, second = cluster.do(request, DeleteTopicsResponse).responses
    assert (first.error_code, second.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert second.error_message == "The provided topic name maps to an ID that was already supplied."


def test_delete_of_a_name_given_twice() -> None:
    cluster = Cluster()
    cluster.create(topic("a"))
    (result,) = cluster.do(DeleteTopicsRequest(topic_names=["a", "a"]), DeleteTopicsResponse).responses
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert "a" in cluster.image.topics


def test_deletion_can_be_disabled() -> None:
    cluster = Cluster(delete_topic_enable=False)
    with pytest.raises(KafkaError) as refusal:
        cluster.do(DeleteTopicsRequest(topic_names=["a"]), DeleteTopicsResponse)
    assert refusal.value.code is ErrorCode.TOPIC_DELETION_DISABLED


def test_an_empty_request_has_an_empty_answer() -> None:
    cluster = Cluster()
    assert cluster.do(CreateTopicsRequest(), CreateTopicsResponse).topics == []

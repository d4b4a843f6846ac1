"""Creating and deleting topics: CreateTopics, DeleteTopics.

Each topic of a request succeeds or fails by itself, with the codes and messages of Kafka's controller; all that
succeed become one atomic batch. A topic becomes a TopicRecord, the ConfigRecords of its settings, and a
PartitionRecord for each partition.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TypeAlias

from tailrace.controller.brokers import remote_storage
from tailrace.controller.effective import broker_layers, topic_entries
from tailrace.controller.image import ResourceType, TopicImage
from tailrace.controller.names import check_topic_name, collision_key
from tailrace.controller.partitions.creation import check_assignment, partition_record, place_partitions
from tailrace.controller.view import Result, View
from tailrace.model.config import parse_topic_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, ZERO_UUID, NodeId, Uuid
from tailrace.wire.apis.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tailrace.wire.apis.stored_records import ConfigRecord, RemoveTopicRecord, TopicRecord
from tailrace.wire.schema import Message

CreatableTopicResult = CreateTopicsResponse.CreatableTopicResult
DeletableTopicResult = DeleteTopicsResponse.DeletableTopicResult
_Describe: TypeAlias = Callable[[tuple[tuple[str, str], ...]], list[CreateTopicsResponse.CreatableTopicConfigs]]


def create_topics(view: View, request: CreateTopicsRequest) -> Result:
    times_named = Counter(topic.name for topic in request.topics)
    total = sum(len(topic.assignments) or _partition_count(view, topic) for topic in request.topics)
    describe = _describer(view)
    records: list[Message] = []
    results: dict[str, CreateTopicsResponse.CreatableTopicResult] = {}
    collisions: dict[str, str] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if times_named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _check_new_name(view, topic.name, collisions)
            _check_partition_total(view, total)
            created, result = _create_topic(view, topic, describe)
            view.asker.charge(result.num_partitions)
            results[topic.name] = result
            records += created
            collisions[collision_key(topic.name) or topic.name] = topic.name
        except KafkaError as error:
            results[topic.name] = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
    response = CreateTopicsResponse(topics=list(results.values()))
    return Result([] if request.validate_only else records, response)


def delete_topics(view: View, request: DeleteTopicsRequest) -> Result:
    """Topics are named (all versions) or given by id (version 6). The answers keep the order of the request."""
    if not view.config.delete_topic_enable:
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: set delete.topic.enable=true.")
    asked: list[tuple[str | None, Uuid]] = [(name, ZERO_UUID) for name in request.topic_names]
    asked += [(topic.name, Uuid(topic.topic_id)) for topic in request.topics]
    times_asked = Counter(asked)
    results: dict[tuple[str | None, Uuid], DeleteTopicsResponse.DeletableTopicResult] = {}
    deleted: set[Uuid] = set()
    records: list[Message] = []
    for name, topic_id in asked:
        if (name, topic_id) in results:
            continue
        try:
            topic = _find_topic(view, name, topic_id, times_asked[name, topic_id])
            if topic.id in deleted:
                reason = "The provided topic name maps to an ID that was already supplied."
                raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
            view.asker.charge(len(topic.partitions))
            deleted.add(topic.id)
            records.append(RemoveTopicRecord(topic_id=topic.id))
            results[name, topic_id] = DeletableTopicResult(name=topic.name, topic_id=topic.id)
        except KafkaError as error:
            results[name, topic_id] = DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
    return Result(records, DeleteTopicsResponse(responses=list(results.values())))


def _check_new_name(view: View, name: str, collisions: Mapping[str, str]) -> None:
    """`collisions` are the names created earlier in the same request."""
    if name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    check_topic_name(name)
    if name in view.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    key = collision_key(name)
    other = key and (view.image.collisions.get(key) or collisions.get(key))
    if other:
        message = f"Topic '{name}' collides with existing topic: {other}"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _check_partition_total(view: View, total: int) -> None:
    if total > view.config.max_partitions_per_request:
        message = (
            f"Excessively large number of partitions per request: {total} is more than max.partitions.per.request "
            f"({view.config.max_partitions_per_request}). Create fewer at once."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    if view.image.partition_count + total > view.config.max_partitions_per_cluster:
        message = (
            f"The cluster has {view.image.partition_count} partitions; {total} more would exceed "
            f"max.partitions.per.cluster ({view.config.max_partitions_per_cluster}). Delete topics or raise it."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


def _describer(view: View) -> _Describe:
    """Tells what settings topics get. Topics created together mostly share theirs, so each set is described once."""
    layers = broker_layers(view.static_config, view.image)

    @cache
    def describe(overrides: tuple[tuple[str, str], ...]) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
        texts = dict(overrides)
        config = parse_topic_config(texts, view.config)
        remote_storage.check_topic(view.image, {}, is_enabled=config.remote_storage_enable)
        entries = topic_entries(config, texts, layers)
        return [
            CreateTopicsResponse.CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source)
            for entry in entries
        ]

    return describe


def _create_topic(
    view: View, topic: CreateTopicsRequest.CreatableTopic, describe: _Describe
) -> tuple[list[Message], CreateTopicsResponse.CreatableTopicResult]:
    overrides = _overrides(topic)
    configs = describe(overrides)
    replicas = _assigned(view, topic) if topic.assignments else _placed(view, topic)
    topic_id = Uuid(view.random.uuid())
    settings: list[Message] = [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in overrides
    ]
    partitions: list[Message] = [
        partition_record(view, topic_id, partition, nodes) for partition, nodes in enumerate(replicas)
    ]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=configs,
    )
    return [TopicRecord(name=topic.name, topic_id=topic_id), *settings, *partitions], result


def _overrides(topic: CreateTopicsRequest.CreatableTopic) -> tuple[tuple[str, str], ...]:
    """The settings that the request gives, by name."""
    empty = [config.name for config in topic.configs if config.value is None]
    if empty:
        message = f"Null value not supported for topic configs: {','.join(empty)}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    texts = {config.name: config.value for config in topic.configs if config.value is not None}
    return tuple(sorted(texts.items()))


def _assigned(view: View, topic: CreateTopicsRequest.CreatableTopic) -> list[Sequence[NodeId]]:
    """The replicas of each partition as the request has them."""
    for what, value in (("replication factor", topic.replication_factor), ("numPartitions", topic.num_partitions)):
        if value != -1:
            message = f"A manual partition assignment was specified, but {what} was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    replicas: dict[int, Sequence[NodeId]] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in replicas:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        replicas[index] = check_assignment(view, index, assignment.broker_ids, replication_factor=factor)
        factor = len(assignment.broker_ids)
    if set(replicas) != set(range(len(replicas))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    return [replicas[index] for index in range(len(replicas))]


def _placed(view: View, topic: CreateTopicsRequest.CreatableTopic) -> list[tuple[NodeId, ...]]:
    factor = topic.replication_factor
    if factor < -1 or factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    count = _partition_count(view, topic)
    factor = view.config.default_replication_factor if factor == -1 else factor
    return place_partitions(view, range(count), replication_factor=factor)


def _partition_count(view: View, topic: CreateTopicsRequest.CreatableTopic) -> int:
    return view.config.num_partitions if topic.num_partitions == -1 else max(0, topic.num_partitions)


def _find_topic(view: View, name: str | None, topic_id: Uuid, times_asked: int) -> TopicImage:
    by_id = name is None
    if times_asked > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if by_id else 'name'}.")
    if by_id and topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if not by_id and topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    topic = view.image.topic_by_id(topic_id) if name is None else view.image.topics.get(name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise KafkaError(code, "There is no topic with that id." if by_id else f"The topic '{name}' does not exist.")
    return topic

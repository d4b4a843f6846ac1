"""Partitions of new and of existing topics: CreatePartitions, and what CreateTopics shares with it."""

from collections import Counter
from collections.abc import Sequence

from tailrace.controller.partitions.change import default_directory
from tailrace.controller.partitions.placement import decide_placement
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.admin import CreatePartitionsRequest, CreatePartitionsResponse
from tailrace.wire.apis.stored_records import PartitionRecord
from tailrace.wire.schema import Message

CreatePartitionsTopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


def create_partitions(view: View, request: CreatePartitionsRequest) -> Result:
    times_named = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: dict[str, CreatePartitionsResponse.CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if times_named[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            added = _add_partitions(view, topic, already_added=len(records))
            view.asker.charge(len(added))
            records += added
            results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
        except KafkaError as error:
            results[topic.name] = CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
    response = CreatePartitionsResponse(results=list(results.values()))
    return Result([] if request.validate_only else records, response)


def place_partitions(view: View, partitions: range, *, replication_factor: int) -> list[tuple[NodeId, ...]]:
    brokers = [broker for _, broker in sorted(view.image.brokers.items())]
    # Each topic starts elsewhere, and with another shift of its followers.
    start_index = view.random.randrange(max(1, len(brokers)) ** 2)
    return decide_placement(
        brokers,
        partitions=partitions,
        replication_factor=replication_factor,
        start_index=start_index,
        machines=view.config.tailrace_machines,
    )


def check_assignment(
    view: View, partition: int, broker_ids: Sequence[int], *, replication_factor: int | None
) -> tuple[NodeId, ...]:
    """The replicas of a new partition that a request asks for by hand. Raises KafkaError
    INVALID_REPLICA_ASSIGNMENT."""
    check_replicas(view, broker_ids)
    if replication_factor is not None and len(broker_ids) != replication_factor:
        raise _invalid_assignment(
            f"The manual partition assignment includes a partition with {len(broker_ids)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )
    if not any(view.image.is_active(broker_id) for broker_id in broker_ids):
        raise _invalid_assignment(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown."
        )
    return tuple(map(NodeId, broker_ids))


def check_replicas(view: View, broker_ids: Sequence[int]) -> None:
    """Registered brokers, each once. Raises KafkaError INVALID_REPLICA_ASSIGNMENT."""
    if not broker_ids:
        raise _invalid_assignment("The manual partition assignment includes an empty replica list.")
    for broker_id, times in sorted(Counter(broker_ids).items()):
        if broker_id not in view.image.brokers:
            reason = f"includes broker {broker_id}, but no such broker is registered."
            raise _invalid_assignment(f"The manual partition assignment {reason}")
        if times > 1:
            raise _invalid_assignment(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )


def partition_record(view: View, topic_id: Uuid, partition: int, replicas: Sequence[NodeId]) -> PartitionRecord:
    """A new partition: in sync where its brokers are active, of which there is one, and led by the first of them."""
    isr = [node for node in replicas if view.image.is_active(node)]
    return PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(view.image, node) for node in replicas],
    )


def _add_partitions(
    view: View, asked: CreatePartitionsRequest.CreatePartitionsTopic, *, already_added: int
) -> list[PartitionRecord]:
    topic = view.image.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{asked.name}' does not exist.")
    if topic.is_read_only:
        why = f"Topic '{asked.name}' is a mirror: it gets the partitions that its source has."
        if topic.closed is not None:
            why = f"Topic '{asked.name}' was handed over to the cluster {topic.closed.cluster_id}: it does not change."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)
    count = len(topic.partitions)
    _check_count(view, asked, count, already_added)
    new = range(count, asked.count)
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        replicas = place_partitions(view, new, replication_factor=factor)
    elif len(asked.assignments) != len(new):
        raise _invalid_assignment(
            f"Attempted to add {len(new)} additional partition(s), but only {len(asked.assignments)} assignment(s) "
            "were specified."
        )
    else:
        replicas = [
            check_assignment(view, partition, assignment.broker_ids, replication_factor=factor)
            for partition, assignment in zip(new, asked.assignments, strict=True)
        ]
    return [partition_record(view, topic.id, partition, nodes) for partition, nodes in zip(new, replicas, strict=True)]


def _check_count(
    view: View, asked: CreatePartitionsRequest.CreatePartitionsTopic, count: int, already_added: int
) -> None:
    if asked.count == count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if asked.count < count:
        message = f"The topic {asked.name} currently has {count} partition(s); {asked.count} would not be an increase."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
    added = already_added + asked.count - count
    limit = min(
        view.config.max_partitions_per_request, view.config.max_partitions_per_cluster - view.image.partition_count
    )
    if added > limit:
        message = (
            f"Adding {added} partitions exceeds what max.partitions.per.request "
            f"({view.config.max_partitions_per_request}) or max.partitions.per.cluster "
            f"({view.config.max_partitions_per_cluster}) leaves."
        )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)


def _invalid_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

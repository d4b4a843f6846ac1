"""Moving replicas: AlterPartitionReassignments (KIP-455) and ListPartitionReassignments.

    asked      replicas = the target, then those that are to go; adding and removing tell them apart
    catch up   the leader takes the added ones into the in-sync set by AlterPartition
    complete   when all of the target are in sync, in that same change, those that were to go are taken away

A request on a partition that is being reassigned replaces what was asked before, and one without replicas cancels it:
replicas that had only been added so far are dropped again. What is dropped must not be all that is in sync.
"""

from collections.abc import Iterable, Sequence

from tailrace.controller.effective import topic_config
from tailrace.controller.image import PartitionImage, TopicImage
from tailrace.controller.partitions.change import PartitionChanges
from tailrace.controller.partitions.creation import check_replicas
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tailrace.wire.schema import Message

TopicResult = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
PartitionResult = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
OngoingTopic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingPartition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


def alter_partition_reassignments(view: View, request: AlterPartitionReassignmentsRequest) -> Result:
    """Each partition succeeds or fails by itself; one that is named twice counts once, as asked last."""
    changes = PartitionChanges(view)
    records: list[Message] = []
    may_change_factor = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor, error_message=None
    )
    for asked in {topic.name: topic for topic in request.topics}.values():
        result = TopicResult(name=asked.name)
        response.responses.append(result)
        for wanted in {each.partition_index: each for each in asked.partitions}.values():
            index = wanted.partition_index
            try:
                topic = _find_topic(view, asked.name, index)
                record = _reassign(view, changes, topic, wanted, may_change_factor=may_change_factor)
                records += [] if record is None else [record]
                result.partitions.append(PartitionResult(partition_index=index, error_message=None))
            except KafkaError as error:
                result.partitions.append(
                    PartitionResult(partition_index=index, error_code=error.code, error_message=error.message)
                )
    return Result(records, response)


def list_partition_reassignments(view: View, request: ListPartitionReassignmentsRequest) -> Result:
    asked: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        asked = [(topic.name, topic.partitions) for topic in view.image.topics.values()]
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    response = ListPartitionReassignmentsResponse(error_message=None)
    for name, indexes in asked:
        topic = view.image.topics.get(name)
        ongoing = [] if topic is None else _ongoing(topic, indexes)
        if ongoing:
            response.topics.append(OngoingTopic(name=name, partitions=ongoing))
    return Result([], response)


def _ongoing(
    topic: TopicImage, indexes: Iterable[int]
) -> list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]:
    return [
        OngoingPartition(
            partition_index=index,
            replicas=list(partition.replicas),
            adding_replicas=list(partition.adding_replicas),
            removing_replicas=list(partition.removing_replicas),
        )
        for index in indexes
        if (partition := topic.partitions.get(index)) is not None and partition.is_reassigning
    ]


def _find_topic(view: View, name: str, index: int) -> TopicImage:
    topic = view.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if index not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic


def _reassign(
    view: View,
    changes: PartitionChanges,
    topic: TopicImage,
    wanted: AlterPartitionReassignmentsRequest.ReassignablePartition,
    *,
    may_change_factor: bool,
) -> PartitionChangeRecord | None:
    partition = topic.partitions[wanted.partition_index]
    # What the partition had before any reassignment that is under way.
    original = tuple(node for node in partition.replicas if node not in partition.adding_replicas)
    if wanted.replicas is None:
        if not partition.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        target = original
    else:
        check_replicas(view, wanted.replicas)
        target = tuple(map(NodeId, wanted.replicas))
        if not may_change_factor:
            _check_factor(partition, target)
    proposed = _decide_target(partition, original, target)
    if _has_safe(partition) and not _has_safe(proposed) and not _allows_unclean(view, topic):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to change the assignment of {topic.name}:{wanted.partition_index} because it would require an "
            "unclean leader election.",
        )
    return changes.decide(topic, wanted.partition_index, proposed)


def _decide_target(partition: PartitionImage, original: Sequence[NodeId], target: Sequence[NodeId]) -> PartitionImage:
    removing = tuple(node for node in original if node not in target)
    adding = tuple(node for node in target if node not in original)
    replicas = (*target, *removing)
    return partition._replace(
        replicas=replicas,
        isr=tuple(node for node in partition.isr if node in replicas),
        eligible_leader_replicas=tuple(node for node in partition.eligible_leader_replicas if node in replicas),
        adding_replicas=adding,
        removing_replicas=removing,
    )


def _has_safe(partition: PartitionImage) -> bool:
    return bool(partition.isr or partition.eligible_leader_replicas)


def _check_factor(partition: PartitionImage, target: Sequence[NodeId]) -> None:
    """KIP-860. While a reassignment is under way its target counts."""
    factor = len(partition.replicas) - len(partition.removing_replicas)
    if len(target) != factor:
        message = f"The replication factor is changed from {factor} to {len(target)}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _allows_unclean(view: View, topic: TopicImage) -> bool:
    return topic_config(view.config, view.image, topic.name).unclean_leader_election_enable

"""AlterPartition (KIP-497): a leader proposes the in-sync replicas of its partitions.

Each partition succeeds or fails by itself. The leader must be the one of this leader epoch and have seen the last
change of the partition; new members must be active, and in the incarnation that has caught up (KIP-903; version 2 does
not tell it). The change may complete a reassignment, and with it end the proposer's own leadership.
"""

from tailrace.controller.brokers.registration import check_epoch
from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.controller.partitions.change import RECOVERED, RECOVERING, PartitionChanges
from tailrace.controller.replay import change_partition
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.quorum import AlterPartitionRequest, AlterPartitionResponse
from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tailrace.wire.schema import Message

PartitionData = AlterPartitionRequest.PartitionData
PartitionResult = AlterPartitionResponse.PartitionData
TopicResult = AlterPartitionResponse.TopicData
BrokerState = AlterPartitionRequest.BrokerState


def alter_partition(view: View, request: AlterPartitionRequest) -> Result:
    error = check_epoch(view.image.brokers.get(request.broker_id), request.broker_epoch)
    if error is not ErrorCode.NONE:
        return Result([], AlterPartitionResponse(error_code=error))
    changes = PartitionChanges(view)
    records: list[Message] = []
    response = AlterPartitionResponse()
    for asked in request.topics:
        topic = view.image.topic_by_id(Uuid(asked.topic_id))
        result = TopicResult(topic_id=asked.topic_id)
        response.topics.append(result)
        for proposed in {each.partition_index: each for each in asked.partitions}.values():
            error = _check(view.image, topic, proposed, NodeId(request.broker_id))
            if topic is None or error:
                result.partitions.append(_refused(proposed, error))
                continue
            # The leader is at work: whoever was not there since may lack what it has committed.
            view.candidates.forget_restarted((topic.id, proposed.partition_index))
            record, answer = _alter(changes, topic, proposed)
            records += [] if record is None else [record]
            result.partitions.append(answer)
    return Result(records, response)


def _check(
    image: MetadataImage,
    topic: TopicImage | None,
    proposed: AlterPartitionRequest.PartitionData,
    leader: NodeId,
) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(proposed.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _check_epochs(partition, proposed, leader) or _check_isr(image, partition, proposed)


def _alter(
    changes: PartitionChanges, topic: TopicImage, proposed: AlterPartitionRequest.PartitionData
) -> tuple[PartitionChangeRecord | None, AlterPartitionResponse.PartitionData]:
    old = partition = topic.partitions[proposed.partition_index]
    target = old._replace(
        isr=tuple(NodeId(member.broker_id) for member in _proposed_isr(proposed)),
        leader_recovery_state=proposed.leader_recovery_state,
    )
    record = changes.decide(topic, proposed.partition_index, target)
    if record is not None:
        partition = change_partition(old, record)
    if partition.leader != old.leader:
        # Both an error and a change: the end of a reassignment has given the leadership to another.
        return record, _refused(proposed, ErrorCode.NEW_LEADER_ELECTED)
    return record, PartitionResult(
        partition_index=proposed.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _check_epochs(
    partition: PartitionImage, proposed: AlterPartitionRequest.PartitionData, leader: NodeId
) -> ErrorCode:
    if proposed.leader_epoch > partition.leader_epoch or proposed.partition_epoch > partition.partition_epoch:
        # The broker knows more than this controller, which must have been replaced.
        return ErrorCode.NOT_CONTROLLER
    if proposed.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != leader:
        return ErrorCode.INVALID_REQUEST
    if proposed.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _check_isr(
    image: MetadataImage, partition: PartitionImage, proposed: AlterPartitionRequest.PartitionData
) -> ErrorCode:
    isr = _proposed_isr(proposed)
    members = [member.broker_id for member in isr]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in members:
        return ErrorCode.INVALID_REQUEST
    if proposed.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    is_alone = len(members) == 1 and partition.leader_recovery_state == RECOVERING
    if proposed.leader_recovery_state == RECOVERING and not is_alone:
        # Until it has recovered the leader is alone, and it does not fall back.
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, member) for member in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _proposed_isr(proposed: AlterPartitionRequest.PartitionData) -> list[AlterPartitionRequest.BrokerState]:
    return proposed.new_isr_with_epochs or [BrokerState(broker_id=node) for node in proposed.new_isr]


def _is_eligible(image: MetadataImage, member: AlterPartitionRequest.BrokerState) -> bool:
    broker = image.brokers.get(member.broker_id)
    return broker is not None and broker.is_active and member.broker_epoch in (-1, broker.epoch)


def _refused(proposed: AlterPartitionRequest.PartitionData, error: ErrorCode) -> AlterPartitionResponse.PartitionData:
    return PartitionResult(partition_index=proposed.partition_index, error_code=error)

"""MoveLeader: a leader that cannot read a part of its log gives the lead to an in-sync replica that can.

It stays in sync: what it cannot read is known, and it takes part in everything that is written from now on. So the only
change is that of the leader. The request must come from the leader of this epoch in its present incarnation, and the
replica that it names must be in sync and able to lead.
"""

from tailrace.controller.brokers.registration import check_epoch
from tailrace.controller.image import PartitionImage, TopicImage
from tailrace.controller.partitions.change import PartitionChanges
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.own import MoveLeaderRequest, MoveLeaderResponse
from tailrace.wire.apis.stored_records import PartitionChangeRecord


def move_leader(view: View, request: MoveLeaderRequest) -> Result:
    topic = view.image.topic_by_id(Uuid(request.topic_id))
    partition = None if topic is None else topic.partitions.get(request.partition_index)
    error = check_epoch(view.image.brokers.get(request.broker_id), request.broker_epoch)
    if not error:
        error = _check(partition, request)
    if error or topic is None or partition is None:
        return Result([], MoveLeaderResponse(error_code=error))
    new_leader = NodeId(request.new_leader_id)
    if not PartitionChanges(view).can_lead(partition, new_leader):
        message = f"Broker {new_leader} is not in sync and at work: {list(partition.isr)} are in sync."
        return Result(
            [], MoveLeaderResponse(error_code=ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, error_message=message)
        )
    return Result([_record(topic, request.partition_index, new_leader)], MoveLeaderResponse())


def _check(partition: PartitionImage | None, request: MoveLeaderRequest) -> ErrorCode:
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if request.leader_epoch > partition.leader_epoch:
        # The broker knows more than this controller, which must have been replaced.
        return ErrorCode.NOT_CONTROLLER
    if request.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != request.broker_id or request.new_leader_id == request.broker_id:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _record(topic: TopicImage, index: int, leader: NodeId) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=leader)

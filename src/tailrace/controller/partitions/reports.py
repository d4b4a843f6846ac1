"""What brokers report of their replicas, beyond what Kafka's requests can say (`wire.apis.own`).

    ReportReplicas    how far the replicas of partitions without a leader reach, for whoever is to be elected; and which
                      replicas recovery has found damaged. A damaged one leaves the in-sync, the eligible and the last
                      known set in one batch, before its broker is unfenced, and comes back as a follower
    AllowTruncation   a follower has confirmed records that its leader lacks. If the follower is counted on, it is the
                      leader that has lost them, and another one is elected; else the records were given up by an
                      unclean election, and may go

If a damaged replica is the only one in those sets, what is left of it is all there is: it becomes the last known
leader, whose election is an unclean one, so that the others follow it. Where it leads already, as a lone broker does, a
new leader epoch tells its readers that the log has changed behind them.
"""

from collections.abc import Sequence

from tailrace.controller.brokers.registration import check_epoch
from tailrace.controller.features import keeps_eligible_leader_replicas
from tailrace.controller.image import NO_LEADER, PartitionImage, TopicImage
from tailrace.controller.mirrors.reversing import decide_cut
from tailrace.controller.partitions.candidates import ReplicaEnd
from tailrace.controller.partitions.change import RECOVERING, PartitionChanges
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.own import (
    AllowTruncationRequest,
    AllowTruncationResponse,
    ReportReplicasRequest,
    ReportReplicasResponse,
)
from tailrace.wire.apis.stored_records import PartitionChangeRecord
from tailrace.wire.schema import Message


def report_replicas(view: View, request: ReportReplicasRequest) -> Result:
    broker = view.image.brokers.get(request.broker_id)
    error = check_epoch(broker, request.broker_epoch)
    if broker is None or error is not ErrorCode.NONE:
        return Result([], ReportReplicasResponse(error_code=error))
    node_id = broker.node_id
    damaged, others = PartitionChanges(view, damaged={node_id}), PartitionChanges(view)
    records: list[PartitionChangeRecord | None] = []
    response = ReportReplicasResponse()
    for told in request.topics:
        topic = view.image.topic_by_id(Uuid(told.topic_id))
        if topic is None:
            continue
        irreplaceable: list[int] = []
        for replica in told.replicas:
            index = replica.partition_index
            partition = topic.partitions.get(index)
            if partition is None or node_id not in partition.replicas:
                continue
            end = ReplicaEnd(
                broker_epoch=broker.epoch,
                leader_epoch=replica.leader_epoch,
                last_epoch=replica.last_epoch,
                log_end_offset=replica.log_end_offset,
                log_start_offset=replica.log_start_offset,
            )
            # An epoch that nobody has led in yet is a flipped bit: no CRC covers it.
            is_possible = replica.last_epoch <= partition.leader_epoch
            view.candidates.note((topic.id, index), node_id, end if is_possible else end._replace(last_epoch=-1))
            if is_possible and not replica.is_damaged:
                records.append(others.decide(topic, index) if partition.leader == NO_LEADER else None)
                continue
            view.candidates.forget_restarted((topic.id, index), node_id)
            if _has_other_candidates(partition, node_id):
                records.append(damaged.decide(topic, index))
            else:
                irreplaceable.append(index)
                records.append(_decide_irreplaceable(view, others, topic, index, node_id))
        response.topics.append(ReportReplicasResponse.Topic(topic_id=topic.id, irreplaceable_partitions=irreplaceable))
    return Result([record for record in records if record is not None], response)


def allow_truncation(view: View, request: AllowTruncationRequest) -> Result:
    broker = view.image.brokers.get(request.broker_id)
    error = check_epoch(broker, request.broker_epoch)
    if broker is None or error is not ErrorCode.NONE:
        return _answered(error)
    topic = view.image.topic_by_id(Uuid(request.topic_id))
    partition = topic.partitions.get(request.partition_index) if topic is not None else None
    if topic is None or partition is None:
        return _answered(ErrorCode.UNKNOWN_TOPIC_ID)
    if request.leader_epoch != partition.leader_epoch or partition.leader == NO_LEADER:
        return _answered(ErrorCode.FENCED_LEADER_EPOCH)
    if broker.node_id == partition.leader:
        return _answered(ErrorCode.NONE, [decide_cut(topic, request.partition_index, broker.node_id)])
    is_counted_on = broker.node_id in (*partition.isr, *partition.eligible_leader_replicas)
    if partition.leader_recovery_state == RECOVERING or not is_counted_on:
        return _answered(ErrorCode.NONE)
    record = PartitionChanges(view, damaged={partition.leader}).decide(topic, request.partition_index)
    return _answered(ErrorCode.NEW_LEADER_ELECTED, [] if record is None else [record])


def decide_held_back(view: View) -> list[Message]:
    """The elections that have waited for long enough: those who are there have to do."""
    changes, records = PartitionChanges(view), []
    for key in view.candidates.due(view.image):
        topic = view.image.topic_by_id(key[0])
        record = changes.decide(topic, key[1]) if topic is not None else None
        if record is None:
            view.candidates.stop_waiting(key)
        else:
            view.candidates.look_again_later(key)
            records.append(record)
    return [*records]


def _has_other_candidates(partition: PartitionImage, node_id: NodeId) -> bool:
    return bool({*partition.isr, *partition.eligible_leader_replicas, *partition.last_known_elr} - {node_id})


def _decide_irreplaceable(
    view: View, changes: PartitionChanges, topic: TopicImage, index: int, node_id: NodeId
) -> PartitionChangeRecord | None:
    partition = topic.partitions[index]
    if partition.leader == node_id:
        return PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=node_id)
    if partition.leader != NO_LEADER or not keeps_eligible_leader_replicas(view.image):
        return None
    return changes.decide(
        topic, index, partition._replace(isr=(), eligible_leader_replicas=(), last_known_elr=(node_id,))
    )


def _answered(error: ErrorCode, records: Sequence[Message] = ()) -> Result:
    return Result([*records], AllowTruncationResponse(error_code=error))

"""Brokers come and go: BrokerRegistration, BrokerHeartbeat, AllocateProducerIds.

    (absent) --registration--> fenced --heartbeat--> active

A new incarnation's registration is a death: unless the broker proves a clean stop, by the epoch it had (KIP-966), the
partitions that it led get a new leader epoch. That is how clients that read records which a power loss took find out.
"""

from collections.abc import Iterator

from tailrace.controller.image import NO_LEADER, BrokerImage, PartitionImage, TopicImage
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId
from tailrace.wire.apis.quorum import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tailrace.wire.apis.stored import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from tailrace.wire.schema import Message

# As in Kafka: few round trips to the controller, and 2**63 ids last for ever.
PRODUCER_ID_BLOCK_SIZE = 1000
_UNFENCE = -1


def register_broker(view: View, request: BrokerRegistrationRequest) -> Result:
    if request.cluster_id != view.image.cluster_id:
        return Result([], BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    epoch = view.image.next_offset
    records: list[Message] = [
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=[
                RegisterBrokerRecord.BrokerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
            rack=request.rack,
            fenced=True,
            log_dirs=list(request.log_dirs),
        )
    ]
    old = view.image.brokers.get(request.broker_id)
    if old is not None and request.previous_broker_epoch != old.epoch:
        records += [
            PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=_leader_after_death(partition))
            for topic, index, partition in _partitions(view)
            if partition.leader == old.node_id
        ]
    return Result(records, BrokerRegistrationResponse(broker_epoch=epoch))


def _leader_after_death(partition: PartitionImage) -> NodeId:
    """Where the dead leader was alone in sync nobody else can take over, so it stays: one record instead of two, which
    matters to a single node with thousands of partitions."""
    return partition.leader if partition.isr == (partition.leader,) else NO_LEADER


def heartbeat(view: View, request: BrokerHeartbeatRequest) -> Result:
    """Unfences a broker that asks for it, once it has seen its own registration, and lets it lead again."""
    broker = view.image.brokers.get(request.broker_id)
    error = _check_epoch(broker, request.broker_epoch)
    if broker is None or error is not ErrorCode.NONE:
        return Result([], BrokerHeartbeatResponse(error_code=error))
    is_caught_up = request.current_metadata_offset >= broker.epoch
    if not broker.fenced or request.want_fence or not is_caught_up:
        response = BrokerHeartbeatResponse(is_caught_up=is_caught_up, is_fenced=broker.fenced)
        return Result([], response)
    records: list[Message] = [
        BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    ]
    records += [
        PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=leader)
        for topic, index, partition in _partitions(view)
        if (leader := decide_leader(partition, view, becoming_active=broker.node_id)) is not None
    ]
    return Result(records, BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))


def decide_leader(partition: PartitionImage, view: View, *, becoming_active: NodeId) -> NodeId | None:
    """Who leads a partition that has no leader: the first replica in the in-sync set that is active. None if it has
    a leader, or none can be had."""
    if partition.leader != NO_LEADER:
        return None
    return next(
        (
            node
            for node in partition.replicas
            if node in partition.isr and (node == becoming_active or view.image.brokers[node].is_active)
        ),
        None,
    )


def allocate_producer_ids(view: View, request: AllocateProducerIdsRequest) -> Result:
    error = _check_epoch(view.image.brokers.get(request.broker_id), request.broker_epoch)
    if error is not ErrorCode.NONE:
        return Result([], AllocateProducerIdsResponse(error_code=error))
    start = view.image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return Result([record], response)


def _check_epoch(broker: BrokerImage | None, epoch: int) -> ErrorCode:
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return ErrorCode.NONE if broker.epoch == epoch else ErrorCode.STALE_BROKER_EPOCH


def _partitions(view: View) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in view.image.topics.values():
        for index, partition in topic.partitions.items():
            yield topic, index, partition

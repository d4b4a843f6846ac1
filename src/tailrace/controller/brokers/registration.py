"""Who belongs to the cluster: BrokerRegistration, and the producer ids that its members get.

A new incarnation's registration is a death, which comes before the registration itself: the broker leaves every in-sync
set and every leadership before it may come back. If it proves, by the epoch of its predecessor (KIP-966), that it has
lost nothing, it stays eligible where too few are in sync; else it may lack records that were acked, and does not.

While a session lasts nobody else can register under the same id, unless with one of the same data folders: these are
locked by their process, so that the other one must be dead, and a broker that restarts need not wait for the end of
its own session. But a request may come late, after the one who sent it has died and its successor was let in. It gives
itself away by its proof, which is older than the one that is at work; without any proof, as of a first start, the one
at work is put out, finds that at its next heartbeat and registers again.
"""

from tailrace.controller.brokers import queues, remote_storage
from tailrace.controller.features import check_registered_features
from tailrace.controller.image import BrokerImage, MetadataImage
from tailrace.controller.partitions.change import PartitionChanges
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId
from tailrace.wire.apis.quorum import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tailrace.wire.apis.stored_records import (
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from tailrace.wire.schema import Message

# As in Kafka: few round trips to the controller, and 2**63 ids last for ever.
PRODUCER_ID_BLOCK_SIZE = 1000
# Ids below are kept for directories that are none (KIP-858).
_RESERVED_DIRECTORY_IDS = frozenset(bytes(15) + bytes([number]) for number in range(100))


def register_broker(view: View, request: BrokerRegistrationRequest) -> Result:
    if request.cluster_id != view.image.cluster_id:
        return Result([], BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
    old = view.image.brokers.get(request.broker_id)
    try:
        _check_duplicate(view, request, old)
        _check_directories(view.image, request)
        offered = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
        check_registered_features(view.image, offered)
        remote_storage.check_broker(view.image, offered)
        queues.check_broker(view.image, view.config, offered)
    except KafkaError as error:
        return Result([], BrokerRegistrationResponse(error_code=error.code))
    if old is not None and old.incarnation_id == request.incarnation_id:
        # The answer to its registration was lost, or it has news of itself.
        record = _broker_record(request, old.epoch)
        record.fenced, record.in_controlled_shutdown = old.fenced, old.in_controlled_shutdown
        return Result([record], BrokerRegistrationResponse(broker_epoch=old.epoch))
    view.sessions.begin(request.broker_id)
    # The death comes first: with it alone the broker is one that has died, while a broker that is registered anew and
    # still leads might not have what it is trusted to have.
    death = _decide_death(view, request, old)
    epoch = view.image.next_offset + len(death)
    records: list[Message] = [*death, _broker_record(request, epoch)]
    return Result(records, BrokerRegistrationResponse(broker_epoch=epoch), is_divisible=True)


def allocate_producer_ids(view: View, request: AllocateProducerIdsRequest) -> Result:
    error = check_epoch(view.image.brokers.get(request.broker_id), request.broker_epoch)
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


def check_epoch(broker: BrokerImage | None, epoch: int) -> ErrorCode:
    """Whether a request comes from the incarnation that is registered."""
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED
    return ErrorCode.NONE if broker.epoch == epoch else ErrorCode.STALE_BROKER_EPOCH


def _check_duplicate(view: View, request: BrokerRegistrationRequest, old: BrokerImage | None) -> None:
    if old is None or old.incarnation_id == request.incarnation_id or not view.sessions.is_valid(old.node_id):
        return
    is_late = not old.fenced and 0 <= request.previous_broker_epoch < old.epoch
    if is_late or not set(old.log_dirs) & set(request.log_dirs):
        message = f"Another broker is registered as {request.broker_id} and was heard just now: give each its node.id."
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise _invalid_registration("No directories specified in request")
    if _RESERVED_DIRECTORY_IDS.intersection(directories):
        raise _invalid_registration("Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise _invalid_registration("Duplicate directory ID in request")
    for node_id, other in sorted(image.brokers.items()):
        if node_id != request.broker_id and set(other.log_dirs) & set(directories):
            raise _invalid_registration(f"Broker {node_id} is already registered with one of the directories")


def _broker_record(request: BrokerRegistrationRequest, epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
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


def _decide_death(
    view: View, request: BrokerRegistrationRequest, old: BrokerImage | None
) -> list[PartitionChangeRecord]:
    node_id = request.broker_id
    has_everything = old is not None and request.previous_broker_epoch == old.epoch
    if view.image.brokers.keys() == {node_id}:
        return _decide_lone_death(view, node_id, has_everything=has_everything)
    leaving, lost = ({node_id}, set()) if has_everything else (set(), {node_id})
    partitions = list(view.image.partitions_of(node_id))
    if has_everything:
        in_sync = ((topic.id, index) for topic, index, partition in partitions if node_id in partition.isr)
        view.candidates.note_restarted(NodeId(node_id), in_sync, view.image)
    else:
        for topic, index, _ in partitions:
            view.candidates.forget_restarted((topic.id, index), NodeId(node_id))
    changes = PartitionChanges(view, leaving=leaving, lost=lost)
    return changes.decide_all((topic, index) for topic, index, _ in partitions)


def _decide_lone_death(view: View, node_id: int, *, has_everything: bool) -> list[PartitionChangeRecord]:
    """The only broker goes on leading what it led: nobody else can, and a node with thousands of partitions starts
    without two records for each. If it may have lost records, a new leader epoch tells their readers."""
    if has_everything:
        return []
    return [
        PartitionChangeRecord(topic_id=topic.id, partition_id=index, leader=node_id)
        for topic, index, partition in view.image.partitions_of(node_id)
        if partition.leader == node_id
    ]


def _invalid_registration(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, message)

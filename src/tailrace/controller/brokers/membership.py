"""The rarer requests about members: UnregisterBroker, and ControllerRegistration (KIP-919), which makes the endpoints
and features of a controller known. Voters of the quorum are another matter, and the quorum's own."""

from tailrace.controller.partitions.change import PartitionChanges
from tailrace.controller.replay import controller_image
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import UnregisterBrokerRequest, UnregisterBrokerResponse
from tailrace.wire.apis.quorum import ControllerRegistrationRequest, ControllerRegistrationResponse
from tailrace.wire.apis.stored_records import RegisterControllerRecord, UnregisterBrokerRecord
from tailrace.wire.schema import Message


def unregister_broker(view: View, request: UnregisterBrokerRequest) -> Result:
    """Its replicas stay assigned to it; whoever takes a broker out for good has moved them away before."""
    broker = view.image.brokers.get(request.broker_id)
    if broker is None:
        message = f"Broker ID {request.broker_id} is not currently registered"
        response = UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=message)
        return Result([], response)
    changes = PartitionChanges(view, lost={broker.node_id})
    records: list[Message] = [
        *changes.decide_all((topic, index) for topic, index, _ in view.image.partitions_of(broker.node_id)),
        UnregisterBrokerRecord(broker_id=broker.node_id, broker_epoch=broker.epoch),
    ]
    return Result(records, UnregisterBrokerResponse(error_message=None))


def register_controller(view: View, request: ControllerRegistrationRequest) -> Result:
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            RegisterControllerRecord.ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    known = view.image.controllers.get(request.controller_id)
    is_known = known is not None and known == controller_image(record)
    return Result([] if is_known else [record], ControllerRegistrationResponse(error_message=None))

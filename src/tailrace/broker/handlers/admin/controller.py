"""Requests that the active controller decides, and the Envelope in which brokers hand on those of clients.

    by_controller   the controller's machine decides: heartbeats, AlterPartition, elections, reassignments, features
    by_quorum       the Raft node decides: DescribeQuorum, AddRaftVoter, RemoveRaftVoter, asked of a broker
    envelope        a client's request inside (KIP-590): served as if it had come itself

On the listener of a controller that is not active all of them are answered with NOT_CONTROLLER, and whoever asked looks
for the next one. On the listeners of clients they are handed on to the active controller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tailrace.broker.serving.dispatch import Dispatcher
from tailrace.catalogue import Audience
from tailrace.controller.view import Asker
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.model.security import Principal
from tailrace.wire.apis.quorum import DescribeQuorumResponse, EnvelopeRequest, EnvelopeResponse
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.context import BoundListener, RequestContext
    from tailrace.broker.services import Services

_SIZE_BYTES = 4


async def handle_by_controller(services: Services, context: RequestContext, request: Message) -> Message:
    charge = services.meters.mutations(context)
    if charge is None:
        return await _decide(services, context, request, Asker(context.principal))
    answer: Any = await _decide(services, context, request, Asker(context.principal, charge))
    answer.throttle_time_ms = max(charge.throttle_ms, answer.throttle_time_ms)
    return cast("Message", answer)


async def _decide(services: Services, context: RequestContext, request: Message, asker: Asker) -> Message:
    """By this node, if it is the active controller: then it is charged here, and else there."""
    if not context.listener.is_controller:
        return await _forward(services, context, request, here=lambda each: services.quorum.submit_local(each, asker))
    try:
        return await services.quorum.submit_local(request, asker)
    except KafkaError as error:
        context.is_misdirected = error.code is ErrorCode.NOT_CONTROLLER
        raise


async def handle_by_quorum(services: Services, context: RequestContext, request: Message) -> Message:
    answer = await _forward(services, context, request, here=services.quorum.driver.handle)
    if services.node.peers is None and isinstance(answer, DescribeQuorumResponse):
        _tell_endpoints(services, answer)
    return answer


def _tell_endpoints(services: Services, answer: DescribeQuorumResponse) -> None:
    """A node that is a quorum by itself has no listener for one: who looks for it finds it where clients do."""
    for node in answer.nodes:
        broker = services.image.brokers.get(node.node_id)
        if not node.listeners and broker is not None:
            node.listeners = [
                DescribeQuorumResponse.Listener(name=name, host=host, port=port)
                for name, host, port in broker.endpoints
            ]


async def _forward(
    services: Services,
    context: RequestContext,
    request: Message,
    here: Callable[[Message], Awaitable[Message]] | None = None,
) -> Message:
    from tailrace.broker.handlers.admin.resends import Before, settle_resent

    before = Before(services)
    answer, was_resent = await services.forwarding.forward(context, request, here=here)
    return await settle_resent(services, before, request, answer) if was_resent else answer


class _Client(NamedTuple):
    """The client that an Envelope tells of."""

    peer: str
    listener: BoundListener
    principal: Principal


async def handle_envelope(services: Services, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    from tailrace.wire.principals import decode_principal

    if not services.quorum.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    host = _unpacked_host(request.client_host_address)
    if host is None:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        principal = decode_principal(request.request_principal or b"")
    except ProtocolError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    client = _Client(f"{host}:0", context.listener, principal)
    dispatcher = Dispatcher(services, Audience.FORWARDED)
    try:
        inner, answer = dispatcher.dispatch(memoryview(request.request_data), client)
    except ProtocolError:
        # As in Kafka: what is inside cannot be read, or may not be forwarded.
        return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if isinstance(answer, CoroutineType):
        answer = await answer
    if inner.is_misdirected:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    assert isinstance(answer, Message), "a forwarded request is answered"
    frame = b"".join(bytes(part) for part in dispatcher.encode(inner, answer))  # type: ignore[arg-type] # Bytes only.
    return EnvelopeResponse(response_data=frame[_SIZE_BYTES:])


def _unpacked_host(packed: bytes) -> str | None:
    from ipaddress import ip_address

    return str(ip_address(bytes(packed))) if len(packed) in (4, 16) else None

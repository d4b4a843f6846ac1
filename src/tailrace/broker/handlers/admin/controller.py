"""Requests that the active controller decides, and the Envelope in which brokers hand on those of clients.

    by_controller   the controller's machine decides: heartbeats, AlterPartition, elections, reassignments, features
    by_quorum       the Raft node decides: DescribeQuorum, AddRaftVoter, RemoveRaftVoter, asked of a broker
    envelope        a client's request inside (KIP-590): served as if it had come itself

On the listener of a controller that is not active all of them are answered with NOT_CONTROLLER, and whoever asked looks
for the next one. On the listeners of clients they are handed on to the active controller.
"""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.dispatch import Dispatcher
from tailrace.broker.handlers import FORWARDABLE
from tailrace.model.errors import ErrorCode, ProtocolError
from tailrace.wire.apis.quorum import EnvelopeRequest, EnvelopeResponse
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext
    from tailrace.broker.server import BoundListener

_SIZE_BYTES = 4


async def handle_by_controller(broker: Broker, context: RequestContext, request: Message) -> Message:
    return await broker.submit(context, request)


async def handle_by_quorum(broker: Broker, context: RequestContext, request: Message) -> Message:
    return await broker.forwarding.forward(context, request, here=broker.quorum.driver.handle)


class _Client(NamedTuple):
    """The client that an Envelope tells of."""

    peer: str
    listener: BoundListener


async def handle_envelope(broker: Broker, context: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    if not broker.quorum.is_active:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    host = _unpacked_host(request.client_host_address)
    if host is None:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    dispatcher = Dispatcher(broker, FORWARDABLE)
    try:
        inner, answer = dispatcher.dispatch(memoryview(request.request_data), _Client(f"{host}:0", context.listener))
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

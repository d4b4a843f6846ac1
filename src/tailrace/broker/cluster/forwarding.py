"""The way to the active controller, wherever it is: in this process, or on another node.

    ask       a request of this node itself (heartbeat, AlterPartition, producer ids): sent as it is
    forward   a client's admin request: by Envelope (KIP-590), with the principal and address of the client, in the
              version in which the client sent it

Both try again while the controller moves, until their time is over: an answer NOT_CONTROLLER, a lost connection and a
change of leadership under way all mean "ask the next one". So a request may be done twice, as in Kafka; who forwards it
is told that it was sent again, and what an answer means then is in handlers.admin.resends. Nothing else is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.wire import apis
from tailrace.wire.apis.own import AllowTruncationRequest, AllowTruncationResponse
from tailrace.wire.apis.quorum import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.cluster.peers import Peers
    from tailrace.broker.context import RequestContext
    from tailrace.broker.quorum.quorum import Quorum
    from tailrace.model.ports import Clock

R = TypeVar("R", bound=Message)

_RETRY_PAUSE_SECONDS = 0.05
# How often a call that waits for its answer looks whether the controller has moved.
_LOOK_SECONDS = 0.25
_SIZE_BYTES = 4
_UNKNOWN_HOST = bytes(4)


class Forwarded(NamedTuple):
    answer: Message
    was_resent: bool  # An earlier try may have been done.


class Forwarding:
    """`peers` is None for a node that is a cluster by itself."""

    def __init__(self, quorum: Quorum, peers: Peers | None, clock: Clock, *, request_timeout_ms: int) -> None:
        self._quorum = quorum
        self._peers = peers
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms

    async def ask(
        self,
        request: Message,
        response_type: type[R],
        *,
        timeout_ms: float | None = None,
        channel: str = "controller",
        is_urgent: bool = False,
        on_resend: Callable[[], None] | None = None,
    ) -> R:
        """Raises KafkaError: REQUEST_TIMED_OUT if no controller answered in time. What is urgent is asked of the other
        voters too if the controller that is known does not answer at once: a new one may be known to them first."""
        if self._peers is None:
            return await self._ask_here(request, response_type)
        deadline_ms = self._clock.monotonic_ms() + (self._request_timeout_ms if timeout_ms is None else timeout_ms)
        while True:
            try:
                if self._quorum.is_active and not isinstance(request, EnvelopeRequest):
                    async with asyncio.timeout((deadline_ms - self._clock.monotonic_ms()) / 1000):
                        answer = await self._ask_here(request, response_type)
                else:
                    answer = await self._call(request, response_type, deadline_ms, channel, is_urgent=is_urgent)
                if getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                    return answer
                cause = "it is not the controller any more"
            except TimeoutError:
                cause = "the change was not committed in time"
            except KafkaError as error:
                if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION):
                    raise
                cause = error.message
            await self._pause(deadline_ms, request, cause)
            if on_resend is not None:
                on_resend()

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self.ask(request, AlterPartitionResponse, channel="alter partition")

    async def allow_truncation(self, request: AllowTruncationRequest) -> AllowTruncationResponse:
        return await self.ask(request, AllowTruncationResponse, channel="reports")

    async def forward(
        self,
        context: RequestContext,
        request: Message,
        *,
        here: Callable[[Message], Awaitable[Message]] | None = None,
    ) -> Forwarded:
        """The controller's answer to a client's request; `here` serves it if this node is the controller. Raises
        KafkaError."""
        resends: list[bool] = []
        if self._quorum.is_active or self._peers is None:
            try:
                return Forwarded(await (here or self._quorum.submit_local)(request), was_resent=False)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER or self._peers is None:
                    raise
                resends.append(True)
        envelope = _wrap(context, request)
        response = await self.ask(envelope, EnvelopeResponse, channel="forward", on_resend=lambda: resends.append(True))
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "The controller could not take the request")
        try:
            _, answer = decode_response(context.api_key, context.api_version, response.response_data or b"")
        except ProtocolError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's answer: {error}") from error
        return Forwarded(answer, was_resent=bool(resends))

    async def _ask_here(self, request: Message, response_type: type[R]) -> R:
        answer = await self._quorum.submit_local(request)
        assert isinstance(answer, response_type), f"{type(answer).__name__} answers {type(request).__name__}"
        return answer

    async def _call(
        self, request: Message, response_type: type[R], deadline_ms: float, channel: str, *, is_urgent: bool
    ) -> R:
        """One try at the controller that is known now, given up when another one is."""
        leadership = self._quorum.leadership
        endpoint = next(iter(leadership.endpoints), None)
        timeout_ms = int(deadline_ms - self._clock.monotonic_ms())
        if self._peers is None or timeout_ms <= 0:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no time is left")
        if endpoint is None:
            answer = await self._call_voters(request, response_type, channel) if is_urgent else None
            if answer is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
            return answer
        call = asyncio.ensure_future(
            self._peers.call_address(
                endpoint.host, endpoint.port, request, response_type, timeout_ms=timeout_ms, channel=channel
            )
        )
        try:
            while True:
                await asyncio.wait((call,), timeout=_LOOK_SECONDS)
                if call.done():
                    return call.result()
                now = self._quorum.leadership
                if (now.epoch, now.leader_id) != (leadership.epoch, leadership.leader_id):
                    raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller has moved")
                answer = await self._call_voters(request, response_type, channel) if is_urgent else None
                if answer is not None:
                    return answer
        finally:
            call.cancel()

    async def _call_voters(self, request: Message, response_type: type[R], channel: str) -> R | None:
        """The answer of the first voter, other than the leader that is known, who turns out to be the controller."""
        assert self._peers is not None, "who has no peers has no other voters"
        leadership = self._quorum.leadership
        driver, timeout_ms = self._quorum.driver, int(_LOOK_SECONDS * 1000)
        for voter in driver.voters:
            endpoint = voter.endpoint(driver.node.identity.listener_name)
            if voter.key.id == leadership.leader_id or endpoint is None:
                continue
            try:
                answer = await self._peers.call_address(
                    endpoint.host, endpoint.port, request, response_type, timeout_ms=timeout_ms, channel=channel
                )
            except KafkaError:
                continue
            if getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                return answer
        return None

    async def _pause(self, deadline_ms: float, request: Message, cause: str) -> None:
        if self._clock.monotonic_ms() + _RETRY_PAUSE_SECONDS * 1000 >= deadline_ms:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"No controller answered {apis.api_name(request.api_key)} in time: {cause}",
            )
        await asyncio.sleep(_RETRY_PAUSE_SECONDS)


def _wrap(context: RequestContext, request: Message) -> EnvelopeRequest:
    from tailrace.wire.principals import encode_principal  # A node that never forwards does not pay for it.

    frame = encode_request(context.api_key, context.api_version, context.correlation_id, context.client_id, request)
    data = b"".join(bytes(part) for part in frame)  # type: ignore[arg-type] # No request holds a piece of a file.
    return EnvelopeRequest(
        request_data=data[_SIZE_BYTES:],
        request_principal=encode_principal(context.principal),
        client_host_address=_packed_host(context.peer.rpartition(":")[0]),
    )


def _packed_host(host: str) -> bytes:
    """As Java's InetAddress has it: four or sixteen bytes."""
    from ipaddress import ip_address

    try:
        return ip_address(host.strip("[]").partition("%")[0]).packed
    except ValueError:
        return _UNKNOWN_HOST

"""From a frame to a handler and from its answer to bytes: header, version check, decode, call, encode.

What goes wrong, and what becomes of it
- An API or a version that is not served, or bytes that do not decode: ProtocolError, the connection closes, as in
  Kafka. Only ApiVersions is answered in every version, since it is how a client finds out.
- KafkaError from a handler: an answer with that code, where the response has a place for one at its top; else the
  connection closes, and the log says why.
- Any other exception is our bug: logged with its trace and answered with UNKNOWN_SERVER_ERROR, so that no client's
  bytes can stop broker after broker. An assertion that failed below the shell means that stored state cannot be
  trusted: it stops the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tailrace.broker.context import Pending, RequestContext, UnanswerableError
from tailrace.broker.handlers import Served
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.model.ports import Bytes, FileSlice
from tailrace.wire import apis
from tailrace.wire.compile import Decoder, decoder
from tailrace.wire.frame import (
    HEADER_TAGS_MAX,
    RequestHeader,
    decode_request_header,
    encode_response,
    request_header_version,
)
from tailrace.wire.schema import Message

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.server import BoundListener

_log = events.logger("dispatch")

Answer = Message | Pending[Any] | None
Handler = Callable[..., Answer | Coroutine[Any, Any, Answer]]

_KEY_AND_VERSION = Struct(">hh")
_API_VERSIONS = 18


class Route(NamedTuple):
    """What is known of one API in one version once its first request has come."""

    decode_header: Decoder[RequestHeader]
    decode: Decoder[Message]
    handle: Handler


class Origin(Protocol):
    """Where a request came from: a connection, or an Envelope that tells of one."""

    @property
    def peer(self) -> str: ...

    @property
    def listener(self) -> BoundListener: ...


class Dispatcher:
    def __init__(self, broker: Broker, handlers: Mapping[int, Served]) -> None:
        self._broker = broker
        self._handlers = handlers
        self._items_max = broker.config.max_request_items
        # Bounded by the table of handlers: nothing is entered for what is not served.
        self._routes: dict[tuple[int, int], Route] = {}

    def dispatch(
        self, frame: memoryview, origin: Origin
    ) -> tuple[RequestContext, Answer | Coroutine[Any, Any, Answer]]:
        """Raises ProtocolError or UnanswerableError, nothing else."""
        if len(frame) < _KEY_AND_VERSION.size:  # As what an Envelope holds may be.
            raise ProtocolError(f"a request of {len(frame)} bytes has no room for a header")
        key_and_version = _KEY_AND_VERSION.unpack_from(frame)
        route = self._routes.get(key_and_version)
        if route is None:
            route = self._find_route(*key_and_version)
        if route is None:
            header, position = decode_request_header(frame)
        else:
            header, position = route.decode_header(frame, 0, HEADER_TAGS_MAX)
        context = RequestContext(
            api_key=key_and_version[0],
            api_version=key_and_version[1],
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            peer=origin.peer,
            listener=origin.listener,
        )
        if route is None:
            return self._answer_unknown_api_versions(context)
        request, _end = route.decode(frame, position, self._items_max)
        try:
            answer = route.handle(self._broker, context, request)
        except Exception as error:
            return context, self._answer_failure(context, error)
        if isinstance(answer, CoroutineType):
            return context, self._supervise(context, answer)
        return context, answer

    def encode(self, context: RequestContext, answer: Message) -> list[Bytes | FileSlice]:
        return encode_response(context.api_key, context.api_version, context.correlation_id, answer)

    def _find_route(self, api_key: int, version: int) -> Route | None:
        """None for ApiVersions in a version that we do not know."""
        served = self._handlers.get(api_key)
        if served is None:
            raise ProtocolError(f"a request for API key {api_key}, which is not served here")
        if not served.version_min <= version <= served.version_max:
            if api_key == _API_VERSIONS:
                return None
            raise ProtocolError(
                f"{apis.api_name(api_key)} in version {version}: "
                f"versions {served.version_min} to {served.version_max} are served"
            )
        module = import_module(f"tailrace.broker.handlers.{served.module}")
        route = Route(
            decoder(RequestHeader, request_header_version(api_key, version)),
            decoder(apis.request_type(api_key), version),
            getattr(module, served.function),
        )
        self._routes[api_key, version] = route
        return route

    def _answer_unknown_api_versions(self, context: RequestContext) -> tuple[RequestContext, Message]:
        """In version 0, which every client understands, listing ApiVersions alone (KIP-511)."""
        from tailrace.broker.handlers.api_versions import unsupported_version_response

        context.api_version = 0
        return context, unsupported_version_response()

    async def _supervise(self, context: RequestContext, handling: Coroutine[Any, Any, Answer]) -> Answer:
        try:
            return await handling
        except Exception as error:
            return self._answer_failure(context, error)

    def _answer_failure(self, context: RequestContext, error: Exception) -> Message:
        if isinstance(error, UnanswerableError):
            raise error
        if isinstance(error, KafkaError):
            code, message = error.code, error.message
        else:
            code, message = ErrorCode.UNKNOWN_SERVER_ERROR, "The broker failed on this request; its log says why."
            self._report_bug(context, error)
        response = apis.response_type(context.api_key)()
        if not hasattr(response, "error_code"):
            raise ProtocolError(f"{apis.api_name(context.api_key)}, refused as a whole: {message}")
        response.error_code = int(code)
        if hasattr(response, "error_message"):
            response.error_message = message
        return response

    def _report_bug(self, context: RequestContext, error: Exception) -> None:
        _log.error(
            "a request failed",
            trace=True,
            api=apis.api_name(context.api_key),
            version=context.api_version,
            client=context.client_id,
            peer=context.peer,
        )
        self._broker.judge_bug(error)

"""The way of a request, told in one screen: `dispatch` and `encode`.

    decode      header and request, by its API and version
    authorise   \\  what its row of the catalogue asks, where the node has an authorizer (broker/access), then the steps
    admit       /  `before` that it names: each is given the request and gives it back, whole or without what is
                   refused, and then leaves in the context what joins the answers; or raises. The audit log notes
                   the request before, and its answer after all others
    handle      the handler answers at once, parks the request (Pending), or goes on as a task
    account     the steps `after`: each is given the answer and gives it back, with throttle_time_ms for one
    encode      the answer to bytes
    send        by the connection, in its place among the others
    measure     the node's meters, where it has some, count it once its answer is known; of one request in many they are
                told how long it was handled, parked and sent (`measuring`)

A step that no row names costs the test of an empty tuple, or of a None.

Only a connection that may speak has a dispatcher: who it is was settled before. `express` is a short way past most of
this for small produces, and says itself which steps it leaves out.

What goes wrong, and what becomes of it
- An API or a version that is not served, or bytes that do not decode: ProtocolError, the connection closes, as in
  Kafka. Only ApiVersions is answered in every version, since it is how a client finds out.
- KafkaError from a step or a handler: an answer with that code, in the form that its API has for it (`failures`).
- Any other exception is our bug: logged with its trace and answered with UNKNOWN_SERVER_ERROR, so that no client's
  bytes can stop broker after broker. An assertion that failed below the shell means that stored state cannot be
  trusted: it stops the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tailrace.broker.context import AnsweredError, BoundListener, Pending, RequestContext, UnanswerableError
from tailrace.broker.serving.measuring import NO_ERRORS, Look, errors_of, looker
from tailrace.catalogue import CATALOGUE, Audience, Served, load, load_handler
from tailrace.columns import Throttled
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, ProtocolError
from tailrace.model.ports import Bytes, FileSlice
from tailrace.model.security import Principal
from tailrace.wire import apis
from tailrace.wire.apis.keys import ApiKey
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
    from tailrace.broker.logs.audit import Audit
    from tailrace.broker.metrics.requests import Meter
    from tailrace.broker.services import Services

_log = events.logger("dispatch")

Answer = Message | Pending[Any] | None
Handler = Callable[..., Answer | Coroutine[Any, Any, Answer]]
Before = Callable[["Services", RequestContext, Any], Message]
After = Callable[["Services", RequestContext, Any], Message]

_KEY_AND_VERSION = Struct(">hh")


class Route(NamedTuple):
    """What is known of one API in one version once its first request has come."""

    decode_header: Decoder[RequestHeader]
    decode: Decoder[Message]
    before: tuple[Before, ...]
    handle: Handler
    after: tuple[After, ...]
    meter: Meter | None
    look: Look
    throttled: Throttled


class RequestOrigin(Protocol):
    """Where a request came from: a connection, or an Envelope that tells of one."""

    @property
    def peer(self) -> str: ...

    @property
    def listener(self) -> BoundListener: ...

    @property
    def principal(self) -> Principal: ...


class Dispatcher:
    def __init__(self, services: Services, audience: Audience) -> None:
        self._services = services
        self.audience = audience
        self._items_max = services.config.max_request_items
        self._meters = services.meters
        # Bounded by the catalogue: nothing is entered for what is not served.
        self._routes: dict[tuple[int, int], Route] = {}
        self._request_log = services.request_log
        self._audits: Audit | None = None  # Once a request is to be audited.

    def dispatch(
        self, frame: memoryview, origin: RequestOrigin
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
            principal=origin.principal,
        )
        context.received_bytes = len(frame)
        if route is None:
            return self._answer_unknown_api_versions(context)
        if (meter := route.meter) is not None:
            meter.until_timed -= 1
            if meter.until_timed <= 0:
                context.measurement = meter.begin(self._services.ports.clock)
        if self._request_log.is_on:
            self._request_log.follow(context, meter, len(frame))
        if self._meters.number and route.throttled is not Throttled.NEVER:
            self._take_toll(context, route.throttled, len(frame))
        request, _end = route.decode(frame, position, self._items_max)
        try:
            if route.before:
                for step in route.before:
                    request = step(self._services, context, request)
            answer = route.handle(self._services, context, request)
        except Exception as error:
            answer = self._answer_failure(context, request, error)
        if context.measurement is not None and not isinstance(answer, Message):
            context.measurement.note_parked()
        if context.toll is not None:
            context.toll.end_work()
        if isinstance(answer, CoroutineType):
            return context, self._supervise(context, request, answer)
        return context, answer

    def encode(self, context: RequestContext, answer: Message) -> list[Bytes | FileSlice]:
        if context.joins:
            for join in context.joins:
                answer = join(answer)
        route = self._routes.get((context.api_key, context.api_version))
        if route is not None and route.after:
            for step in route.after:
                answer = step(self._services, context, answer)
        if context.toll is not None:
            context.toll.settle(answer)
        parts = encode_response(context.api_key, context.api_version, context.correlation_id, answer)
        if route is not None and route.meter is not None:
            sent_bytes = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
            route.meter.count(context.received_bytes, sent_bytes - 4, route.look(answer))
        if context.measurement is not None:
            context.measurement.note_answered(parts, errors_of(answer))
        return parts

    def note_unanswered(self, context: RequestContext) -> None:
        """The client wants no answer."""
        route = self._routes.get((context.api_key, context.api_version))
        if route is not None and route.meter is not None:
            route.meter.count(context.received_bytes, 0, NO_ERRORS)
        if context.measurement is not None:
            context.measurement.note_unanswered()

    def _find_route(self, api_key: int, version: int) -> Route | None:
        """None for ApiVersions in a version that we do not know."""
        api = CATALOGUE.get(api_key)
        served = api.served_to(self.audience) if api is not None else None
        if api is None or served is None or not self._services.has(api.only_with):
            raise ProtocolError(f"a request for API key {api_key}, which is not served here")
        if not served.version_min <= version <= served.version_max:
            if api_key == ApiKey.API_VERSIONS:
                return None
            raise ProtocolError(
                f"{apis.api_name(api_key)} in version {version}: "
                f"versions {served.version_min} to {served.version_max} are served"
            )
        before, after = (*self._judges(served), *map(load, api.before)), tuple(map(load, api.after))
        if api.is_audited and self.audience is not Audience.FORWARDED:
            audit = self._audit()
            before, after = (audit.note_request, *before), (*after, audit.note_answer)
        route = Route(
            decoder(RequestHeader, request_header_version(api_key, version)),
            decoder(apis.request_type(api_key), version),
            before,
            load_handler(served),
            after,
            self._find_meter(api_key, version),
            looker(apis.response_type(api_key)),
            api.throttled_in(version, self.audience),
        )
        self._routes[api_key, version] = route
        return route

    def _find_meter(self, api_key: int, version: int) -> Meter | None:
        """What is in an Envelope is sent by that."""
        meters = self._services.request_meters
        return None if meters is None or self.audience is Audience.FORWARDED else meters.of(api_key, version)

    def _judges(self, served: Served) -> tuple[Before, ...]:
        """The steps that ask whether whoever asks may."""
        if self._services.access is None:
            return ()
        from tailrace.broker.access.judging import steps_for

        return steps_for(served.asks)

    def _audit(self) -> Audit:
        """One for all routes: they share the bound on its lines."""
        if self._audits is None:
            from tailrace.broker.logs.audit import Audit

            self._audits = Audit(self._services)
        return self._audits

    def _take_toll(self, context: RequestContext, throttled: Throttled, received_bytes: int) -> None:
        from tailrace.broker.quotas.tolls import Toll

        if context.listener.name != self._meters.exempt_listener:
            context.toll = Toll(self._meters, context, throttled, received_bytes)

    def _answer_unknown_api_versions(self, context: RequestContext) -> tuple[RequestContext, Message]:
        """In version 0, which every client understands, listing ApiVersions alone (KIP-511)."""
        from tailrace.broker.handlers.api_versions import unsupported_version_response

        context.api_version = 0
        if (context.api_key, 0) not in self._routes:
            self._find_route(context.api_key, 0)  # By which it is counted.
        return context, unsupported_version_response()

    async def _supervise(
        self, context: RequestContext, request: Message, handling: Coroutine[Any, Any, Answer]
    ) -> Answer:
        try:
            if context.toll is not None:
                return await context.toll.time(handling)
            return await handling
        except Exception as error:
            return self._answer_failure(context, request, error)

    def _answer_failure(self, context: RequestContext, request: Message, error: Exception) -> Message:
        from tailrace.broker.failures import refuse

        if isinstance(error, UnanswerableError):
            raise error
        if isinstance(error, AnsweredError):
            return error.answer
        if not isinstance(error, KafkaError):
            self._report_bug(context, error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The broker failed on this request; its log says why.")
        return refuse(request, context.api_version, error)

    def _report_bug(self, context: RequestContext, error: Exception) -> None:
        _log.error(
            "a request failed",
            trace=True,
            api=apis.api_name(context.api_key),
            version=context.api_version,
            client=context.client_id,
            peer=context.peer,
        )
        self._services.judge_bug(error)

"""What all answers share: who asks, what path and body say, documents as Confluent's proxy has them, and refusals.

A handler is a function of a `Call`. It raises GatewayError for what is refused, KafkaError for what the cluster
refuses. Each `Operation` is a route and an entry of the OpenAPI document, so that neither is without the other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from urllib.parse import quote, unquote

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace.apps.gateway.callers import Caller, Callers
from tailrace.apps.gateway.consume.readers import Readers
from tailrace.apps.gateway.errors import GatewayError, bad_field, bad_request, not_found, of_kafka, too_large
from tailrace.apps.gateway.produce.json_stream import parse_json
from tailrace.apps.gateway.produce.records import ReadV3, reader_of_records
from tailrace.apps.gateway.produce.schemas import Schemas
from tailrace.apps.gateway.settings import GatewaySettings
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError

_log = events.logger("gateway")
JSON = "application/json"
_INT32_MAX = (1 << 31) - 1
# Of a body that is too large so much is read and thrown away: a client that is still sending when the connection is
# closed sees a broken connection, and not the answer.
_PASSED_OVER_TIMES = 8
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class RegistryPlace(NamedTuple):
    url: str
    ca_file: str | None = None


class Gateway:
    def __init__(
        self, callers: Callers, settings: GatewaySettings, readers: Readers, registry: RegistryPlace | None = None
    ) -> None:
        self.callers = callers
        self.settings = settings
        self.readers = readers
        self._registry = registry

    def reader_of_records(self, caller: Caller, topic: str) -> ReadV3:
        with_schema = None if self._registry is None else self.schemas(caller).of_topic(topic)
        return reader_of_records(self.settings.headers_max, with_schema)

    def schemas(self, caller: Caller) -> Schemas:
        """Raises GatewayError if there is no registry."""
        if self._registry is None:
            raise bad_request("the format schema needs a registry, and this gateway has no --schema-registry")
        if caller.schemas is None:
            caller.schemas = Schemas(*self._registry, caller.sasl)
        return caller.schemas


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    handler: Callable[[Call], Awaitable[Response]]
    summary: str
    # What is sent and answered, by the names of `openapi`. None: nothing, or no JSON object.
    body: str | None = None
    answer: str | None = None
    status: int = 200
    query: Mapping[str, str] | None = None
    # What bodies may be, where it is more than JSON.
    takes: Collection[str] = (JSON,)
    gives: str = JSON

    def route(self, gateway: Gateway) -> Route:
        async def endpoint(request: Request) -> Response:
            caller: Caller | None = None
            try:
                check_origin(request, gateway.settings)
                check_accept(request, self.gives)
                if self.body is not None:
                    check_content_type(request, self.takes)
                caller = await gateway.callers.enter(request.headers)
                call = Call(gateway, request, caller, self)
                with caller.in_use():
                    return await self.handler(call)
            except (GatewayError, KafkaError) as error:
                return refusal_of(gateway, error, caller)
            except Exception as error:  # A bug must not take others along.
                _log.error("a request has failed", method=self.method, path=self.path, trace=error)
                return refusal(GatewayError(500, 500, "Internal Server Error: see the log of the gateway"))

        return Route(self.path, endpoint, methods=[self.method])


class Call:
    """One request, with what is known of who sends it."""

    def __init__(self, gateway: Gateway, request: HTTPConnection, caller: Caller, operation: Operation) -> None:
        self.gateway = gateway
        self.settings = gateway.settings
        self.request = request
        self.caller = caller
        self.operation = operation

    # --- the path

    def text(self, name: str) -> str:
        """A part of the path, which may hold an encoded slash."""
        return unquote(cast(str, self.request.path_params[name]))

    def number(self, name: str) -> int:
        text = self.text(name)
        if not text.isascii() or not text.isdigit() or int(text) > _INT32_MAX:
            raise not_found(f"{name} is a number, not {text!r}")
        return int(text)

    async def cluster_id(self) -> str:
        """Of the path, which has to be this cluster's."""
        cluster = self.caller.cluster
        if cluster.cluster_id is None:
            await cluster.refresh([])
        asked = self.text("cluster_id")
        if asked != cluster.cluster_id:
            raise GatewayError(404, 404, f"Cluster {asked} cannot be found: this gateway leads to {cluster.cluster_id}")
        return asked

    # --- the question

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def query_number(self, name: str, default: int, *, most: int = _INT32_MAX) -> int:
        text = self.query(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or int(text) > most:
            raise bad_request(f"{name}={text} is no number from 0 to {most}")
        return int(text)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        text = self.query(name, default)
        if text not in choices:
            raise bad_request(f"{name}={text} is none of {', '.join(choices)}")
        return text

    async def body(self) -> bytes:
        chunks: list[bytes] = []
        size, most = 0, self.settings.body_max_bytes
        async for chunk in cast(Request, self.request).stream():
            size += len(chunk)
            if size <= most:
                chunks.append(chunk)
            elif size > most * _PASSED_OVER_TIMES:
                break
            else:
                chunks.clear()
        if size > most:
            raise too_large(f"the body has more than {most} bytes: send less at a time, or raise request.max.bytes")
        return b"".join(chunks)

    async def json(self) -> Any:
        data = await self.body()
        if not data.strip():
            raise bad_field("Null input provided. Data is required.")
        return parse_json(data)

    async def fields(self, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
        """The body, which has these fields and no others."""
        document = await self.json()
        if not isinstance(document, dict):
            raise bad_field("The body is not an object.")
        if missing := [name for name in required if document.get(name) is None]:
            raise bad_field(f"{missing[0]} is missing.")
        if unknown := sorted(document.keys() - {*required, *optional}):
            raise bad_field(f"There is no field {unknown[0]} here, but {', '.join((*required, *optional))}.")
        return document

    # --- the answer

    @property
    def base(self) -> str:
        url = self.request.url
        return f"{url.scheme}://{url.netloc}"

    def url(self, *parts: object) -> str:
        path = "/".join(quote(str(part), safe=":-") for part in parts)
        return f"{self.base}/v3/clusters/{path}" if path else f"{self.base}/v3/clusters"

    def related(self, *parts: object) -> dict[str, str]:
        return {"related": self.url(*parts)}

    def resource(self, kind: str, place: tuple[object, ...], crn: str, **fields: Any) -> dict[str, Any]:
        """`crn` is what stands behind the cluster in its resource name."""
        metadata = {"self": self.url(*place), "resource_name": f"crn:///kafka={place[0]}{crn}"}
        return {"kind": kind, "metadata": metadata, **fields}

    def collection(self, kind: str, place: tuple[object, ...], data: list[dict[str, Any]]) -> Response:
        return answer({"kind": kind, "metadata": {"self": self.url(*place), "next": None}, "data": data})


def answer(content: Any, status: int = 200) -> Response:
    return Response(to_json(content), status, headers=_HEADERS, media_type=JSON)


def nothing() -> Response:
    return Response(status_code=204, headers=_HEADERS)


def refusal(error: GatewayError) -> Response:
    return Response(
        to_json(error.document()), error.status, headers={**_HEADERS, **(error.headers or {})}, media_type=JSON
    )


def refusal_of(gateway: Gateway, error: GatewayError | KafkaError, caller: Caller | None) -> Response:
    if isinstance(error, KafkaError):
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED and caller is not None:
            gateway.callers.forget(caller)
        error = of_kafka(error)
    return refusal(error)


def to_json(content: Any) -> bytes:
    try:
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # What is no UTF-8 in the cluster carries surrogates, which an escape can say.
        return json.dumps(content, separators=(",", ":")).encode()


def check_content_type(request: HTTPConnection, taken: Collection[str]) -> str:
    """What the body is; JSON if nobody says."""
    found = media_type(request.headers.get("content-type", ""))
    if not found:
        return JSON
    if found not in taken:
        raise GatewayError(415, 415, f"HTTP 415 Unsupported Media Type: {found}; send {' or '.join(taken)}")
    return found


def check_origin(request: HTTPConnection, settings: GatewaySettings) -> None:
    """A page from elsewhere that a browser shows must not speak with the rights of this machine, unless it is let."""
    origin = request.headers.get("origin")
    if origin is None:
        return
    allowed = {each.strip() for each in settings.allowed_origins.split(",") if each.strip()}
    if "*" in allowed or origin in allowed or origin.partition("://")[2] == request.headers.get("host"):
        return
    raise GatewayError(403, 40301, f"pages from {origin} are not let in: see access.control.allow.origin")


def check_accept(request: HTTPConnection, given: str) -> None:
    accepted = request.headers.get("accept", "")
    if not accepted:
        return
    kind = given.partition("/")[0]
    for item in accepted.split(","):
        name = media_type(item)
        if name in ("*/*", f"{kind}/*", given) or (given == JSON and name.startswith("application/vnd.kafka.")):
            return
    raise GatewayError(406, 406, f"HTTP 406 Not Acceptable: this gives {given}")


def media_type(header: str) -> str:
    return header.partition(";")[0].strip().lower()


async def gather(*questions: Awaitable[Any]) -> list[Any]:
    """All of them at once; the first failure is raised when all are through."""
    found = await asyncio.gather(*questions, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return list(found)

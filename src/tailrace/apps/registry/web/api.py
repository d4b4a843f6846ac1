"""What all handlers share: the registry, who asks and whether they may, and the way to the registry that writes.

A handler is a function of a `Call`. It raises RegistryError for what is refused; NotWriterError leads to the writer, if
there is one and the request has not been led here by another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tailrace.apps.registry import errors
from tailrace.apps.registry.access.callers import Caller, Door
from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.service import NotWriterError, Registry
from tailrace.apps.registry.state.deleting import Decided
from tailrace.apps.registry.state.names import is_top_level, normalize_subject
from tailrace.apps.registry.web import http
from tailrace.apps.registry.web.forwarding import Forwarding
from tailrace.model import events
from tailrace.model.acls import Operation
from tailrace.model.errors import KafkaError

_log = events.logger("registry")


class Call:
    """One request, with what is known of who sends it."""

    def __init__(self, api: Api, request: Request, caller: Caller) -> None:
        self.registry = api.registry
        self.state = api.registry.state
        self.request = request
        self._door = api.door
        self._caller = caller

    def may(self, operation: Operation, subject: str | None) -> bool:
        return self._door.may(self._caller, operation, subject)

    def check(self, operation: Operation, subject: str | None) -> None:
        if not self.may(operation, subject):
            what = f"Subject: {subject}" if subject is not None else "Cluster: kafka-cluster"
            word = operation.name.title().replace("_", "")
            raise RegistryError(403, 40301, f"{self._caller.principal} is denied operation {word} on {what}")

    def subject(self, operation: Operation, *, by_alias: bool = True) -> str:
        """The subject of the path, which the caller may do this to."""
        subject = normalize_subject(http.path_text(self.request, "subject"))
        self.check(operation, subject)
        resolved = self.state.resolve_alias(subject) if by_alias else subject
        if resolved != subject:
            self.check(operation, resolved)
        return resolved

    def scope(self, operation: Operation) -> str | None:
        """Whose settings are meant: a subject's, a context's, or (None) those of all."""
        name = self.request.path_params.get("subject")
        if name is None or is_top_level(subject := normalize_subject(http.path_text(self.request, "subject"))):
            self.check(operation, None)
            return None
        self.check(operation, subject)
        return subject

    async def json(self) -> dict[str, Any]:
        return await http.json_body(self.request, self.registry.settings.body_max_bytes)

    async def write(self, decide: Callable[[], Decided]) -> Response:
        return self.answer(await self.registry.write(decide))

    def answer(self, content: Any, status: int = 200) -> Response:
        return http.answer(self.request, content, status)

    def flag(self, name: str) -> bool:
        return http.flag(self.request, name)


Handler = Callable[[Call], Awaitable[Response]]


class Api:
    def __init__(self, registry: Registry, door: Door, forwarding: Forwarding) -> None:
        self.registry = registry
        self.door = door
        self._forwarding = forwarding

    def route(self, method: str, path: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                http.content_type_of(request)
                caller = await self.door.enter(request)
                return await handler(Call(self, request, caller))
            except NotWriterError as error:
                return await self._forward(request, error)
            except RegistryError as error:
                return http.refusal(error)
            except KafkaError as error:
                return http.refusal(errors.store_failed(f"{error.message} ({error.code.name})"))
            except Exception as error:  # A bug must not take others along.
                _log.error("a request has failed", method=method, path=path, trace=error)
                return http.refusal(RegistryError(500, 500, f"Internal Server Error: {error!r}"))

        return Route(path, endpoint, methods=[method])

    async def _forward(self, request: Request, error: NotWriterError) -> Response:
        if error.writer is None or error.writer == self.registry.identity:
            return http.refusal(errors.no_leader("Leader not known: registries are electing one; try again"))
        if request.headers.get("x-forward", "").lower() == "true":
            return http.refusal(errors.no_leader("This registry is not the leader any more; try again"))
        sent = asyncio.ensure_future(self._forwarding.forward(request, error.writer))
        changed = asyncio.ensure_future(self.registry.wait_leader_change())
        await asyncio.wait([sent, changed], return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        if not sent.done():
            sent.cancel()
            return http.refusal(
                errors.forwarding_failed(
                    "The leader has changed while it was asked: whether it has written is not known"
                )
            )
        try:
            return sent.result()
        except RegistryError as failure:
            return http.refusal(failure)

"""A write that came to a registry that does not write: sent on to the one that does, with the caller's own credential.

A caller that came by a certificate cannot be shown to another registry. Such a request goes on with this registry's own
credential: it was judged here, and the writer trusts whoever logs in as a registry.
"""

from __future__ import annotations

import asyncio
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from tailrace.apps.registry.errors import forwarding_failed
from tailrace.apps.registry.settings import RegistrySettings
from tailrace.apps.registry.topic.election import Identity
from tailrace.apps.registry.web.http import body

# What a request says of itself; the rest is between two neighbours.
_PASSED_ON = (
    "accept",
    "content-type",
    "authorization",
    "confluent-accept-unknown-properties",
    "confluent-client-version",
)


class _Answer(NamedTuple):
    status: int
    content_type: str | None
    content: bytes


class Forwarding:
    def __init__(
        self, settings: RegistrySettings, *, tls: ssl.SSLContext | None = None, own_authorization: str | None = None
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._own_authorization = own_authorization

    async def forward(self, request: Request, writer: Identity) -> Response:
        """Raises RegistryError if the writer cannot be reached."""
        headers = {name: text for name in _PASSED_ON if (text := request.headers.get(name))}
        headers["X-Forward"] = "true"
        if "authorization" not in headers and self._own_authorization is not None:
            headers["authorization"] = self._own_authorization
        query = request.scope["query_string"].decode("latin-1")
        target = request.scope["path"] + (f"?{query}" if query else "")
        data = await body(request, self._settings.body_max_bytes)
        try:
            found = await asyncio.to_thread(self._exchange, writer, request.method, target, headers, data)
        except (OSError, HTTPException) as error:
            raise forwarding_failed(
                f"Error while forwarding the request to the leader {writer.url}: {error or type(error).__name__}"
            ) from None
        return Response(found.content, found.status, media_type=found.content_type)

    def _exchange(self, writer: Identity, method: str, target: str, headers: dict[str, str], data: bytes) -> _Answer:
        connect_s = self._settings.connect_timeout_ms / 1000
        connection: HTTPConnection
        if writer.scheme == "https":
            context = self._tls or ssl.create_default_context()
            connection = HTTPSConnection(writer.host, writer.port, timeout=connect_s, context=context)
        else:
            connection = HTTPConnection(writer.host, writer.port, timeout=connect_s)
        try:
            connection.connect()
            connection.sock.settimeout(self._settings.forward_timeout_ms / 1000)
            connection.request(method, target, body=data or None, headers=headers)
            response = connection.getresponse()
            return _Answer(response.status, response.getheader("Content-Type"), response.read())
        finally:
            connection.close()

"""HTTP for an app that is its own process: a port that is bound before anything else, TLS, and uvicorn on our loop.

Requests know the certificate that their connection has shown (`credentials.CERTIFICATE`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.apps.credentials import CERTIFICATE
from tailrace.model.security import TlsSettings

EXIT_ORPHANED = 3
_BACKLOG = 1024
# How long requests that are under way may take at the end.
_GRACE_S = 5
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (compared; the user asks for it)


class Place(NamedTuple):
    """Where an app listens."""

    host: str
    port: int
    tls: TlsSettings | None = None

    def server_context(self) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        from tailrace.real.tls.certificates import make_server_context

        return make_server_context(self.tls)

    def host_for_others(self, name: str) -> str:
        return name if self.host in _ANY_ADDRESS else self.host


def listen(place: Place) -> socket.socket:
    """Raises OSError."""
    family, kind, number, _, address = socket.getaddrinfo(
        place.host or None, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, number)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


class _Protocol(HttpToolsProtocol):
    def on_message_begin(self) -> None:
        super().on_message_begin()
        tls = self.transport.get_extra_info("ssl_object")
        if tls is not None and (certificate := tls.getpeercert(binary_form=True)):
            from tailrace.real.tls.subjects import subject_of

            self.scope[CERTIFICATE] = subject_of(certificate)  # type: ignore[literal-required]


class Server(uvicorn.Server):
    """`options` are uvicorn's, where an app wants others than these."""

    def __init__(
        self, app: Any, context: ssl.SSLContext | None, on_started: Callable[[], None], **options: Any
    ) -> None:
        defaults: dict[str, Any] = {
            "http": _Protocol,
            "ws": "none",
            "loop": "none",
            "lifespan": "off",
            "access_log": False,
            "log_config": None,
            "server_header": False,
            "date_header": False,
            "timeout_graceful_shutdown": _GRACE_S,
        }
        config = uvicorn.Config(app, **(defaults | options))
        config.load()
        config.ssl = context
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # They are the app's.

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

"""A registry as a process: a port, TLS, who may come in, and an end that leaves the group.

Prints one line on stdout, `registry: <url>`, once clients can ask.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.apps.registry.access.callers import Door, OpenDoor
from tailrace.apps.registry.access.logins import CERTIFICATE, Logins
from tailrace.apps.registry.access.rights import GuardedDoor
from tailrace.apps.registry.service import Registry
from tailrace.apps.registry.settings import RegistrySettings
from tailrace.apps.registry.topic.election import Identity
from tailrace.apps.registry.web.app import make_app
from tailrace.apps.registry.web.forwarding import Forwarding
from tailrace.client.connection import Address
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Mechanism, Security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Dialer, Ports
from tailrace.model.security import ClientAuth, TlsSettings
from tailrace.real.background import RealBackground
from tailrace.real.cluster import open_cluster
from tailrace.schemas.limits import FRAMES_A_LEVEL

_EXIT_ORPHANED = 3
_CLIENT_ID = "tailrace-registry"
_BACKLOG = 1024
# Two cores have room for two.
_PARSING_THREADS = 2
# How long requests that are under way may take at the end.
_GRACE_S = 5
_ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (compared; the user asks for it)


class Place(NamedTuple):
    """Where a registry listens."""

    host: str
    port: int
    tls: TlsSettings | None = None


async def serve(
    place: Place,
    bootstrap: Sequence[Address],
    security: Security,
    settings: RegistrySettings,
    on_ready: Callable[[str], None],
    *,
    parent: int | None = None,
) -> None:
    """Until SIGINT or SIGTERM. `parent` is a pipe that ends with the process that started this one. Raises KafkaError,
    and OSError if it cannot listen."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), settings.nesting_max * FRAMES_A_LEVEL))
    context = None if place.tls is None else _server_context(place.tls)
    listener = _listen(place)
    with listener:
        port = listener.getsockname()[1]
        scheme = "http" if context is None else "https"
        host = settings.host if place.host in _ANY_ADDRESS else place.host
        identity = Identity(scheme, host, port, settings.is_eligible)
        cluster, reading = (open_cluster(bootstrap, security=security, client_id=_CLIENT_ID) for _ in range(2))
        try:
            door = _door(cluster, bootstrap, security, settings)
            registry = Registry(cluster, reading, settings, identity, RealBackground(_PARSING_THREADS))
            forwarding = Forwarding(
                settings, tls=_client_context(place.tls), own_authorization=_own_authorization(security)
            )
            server = _Server(make_app(registry, door, forwarding), context, lambda: on_ready(identity.url))
            await _run(registry, door, server, listener, parent)
        finally:
            cluster.close()
            reading.close()


async def _run(registry: Registry, door: Door, server: _Server, listener: socket.socket, parent: int | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if parent is not None:
        loop.add_reader(parent, os._exit, _EXIT_ORPHANED)
    told = asyncio.ensure_future(stop.wait())
    try:
        starting = asyncio.ensure_future(_start(registry, door))
        await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            return
        starting.result()
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        ends: list[asyncio.Future[Any]] = [serving, registry.reader.failed, told]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await registry.leave()  # While requests are still answered: another may become the writer meanwhile.
        server.should_exit = True
        await serving
        if registry.reader.failed.done():
            registry.reader.failed.result()
    finally:
        told.cancel()
        await registry.close()
        if isinstance(door, GuardedDoor):
            await door.close()


async def _start(registry: Registry, door: Door) -> None:
    settings = registry.settings
    try:
        if isinstance(door, GuardedDoor):
            await door.start()
        await registry.start()
    except TimeoutError:
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"topic {settings.topic} was not made and read within {settings.init_timeout_ms} ms; are the brokers well? "
            "see kafkastore.init.timeout.ms",
        ) from None


def _listen(place: Place) -> socket.socket:
    """Before anything else: other registries are told the port."""
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


# --- HTTP


class _Protocol(HttpToolsProtocol):
    """Requests know the certificate that their connection has shown."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        tls = self.transport.get_extra_info("ssl_object")
        if tls is not None and (certificate := tls.getpeercert(binary_form=True)):
            from tailrace.real.tls.subjects import subject_of

            self.scope[CERTIFICATE] = subject_of(certificate)  # type: ignore[literal-required]


class _Server(uvicorn.Server):
    def __init__(self, app: Any, context: ssl.SSLContext | None, on_started: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            loop="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        config.load()
        config.ssl = context
        super().__init__(config)
        self._on_started = on_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # They are ours.

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


# --- who may come in


def _door(cluster: Cluster, bootstrap: Sequence[Address], security: Security, settings: RegistrySettings) -> Door:
    ways = frozenset(settings.authentication.split(","))
    if settings.authentication == "auto":
        ways = frozenset({"none"} if security.sasl is None else {"basic", "bearer"})
    if ways == {"none"}:
        return OpenDoor()
    logins = Logins(
        ports=cluster.ports,
        bootstrap=bootstrap,
        security=security,
        settings=settings,
        ways=ways,
        dialer=_login_dialer(cluster.ports, security),
    )
    return GuardedDoor(cluster, logins, settings, _own_principal(security))


def _login_dialer(ports: Ports, security: Security) -> Dialer:
    if security.tls is None:
        return ports.network
    from tailrace.real.tls.certificates import make_tls_context
    from tailrace.real.tls.client import TlsDialer

    return TlsDialer(ports.network, make_tls_context(security.tls))


def _own_principal(security: Security) -> str | None:
    sasl = security.sasl
    return f"User:{sasl.username}" if sasl is not None and sasl.mechanism is not Mechanism.OAUTHBEARER else None


def _own_authorization(security: Security) -> str | None:
    sasl = security.sasl
    if sasl is None or sasl.mechanism is Mechanism.OAUTHBEARER:
        return None
    return "Basic " + b64encode(f"{sasl.username}:{sasl.password}".encode()).decode()


# --- TLS


def _server_context(settings: TlsSettings) -> ssl.SSLContext:
    from tailrace.real.tls.certificates import make_server_context

    return make_server_context(settings)


def _client_context(settings: TlsSettings | None) -> ssl.SSLContext | None:
    """To the registry that writes, which has a certificate of the same authorities."""
    if settings is None:
        return None
    from dataclasses import replace

    from tailrace.real.tls.certificates import make_tls_context

    return make_tls_context(replace(settings, client_auth=ClientAuth.NONE))

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
from collections.abc import Callable, Sequence
from typing import Any

from tailrace.apps.registry.access.callers import Door, OpenDoor
from tailrace.apps.registry.access.logins import Logins
from tailrace.apps.registry.access.rights import GuardedDoor
from tailrace.apps.registry.service import Registry
from tailrace.apps.registry.settings import RegistrySettings
from tailrace.apps.registry.topic.election import Identity
from tailrace.apps.registry.web.app import make_app
from tailrace.apps.registry.web.forwarding import Forwarding
from tailrace.apps.serving import EXIT_ORPHANED, Place, Server, listen
from tailrace.client.connection import Address
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Mechanism, Security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Dialer, Ports
from tailrace.model.security import ClientAuth, TlsSettings
from tailrace.real.background import RealBackground
from tailrace.real.cluster import open_cluster
from tailrace.schemas.limits import FRAMES_A_LEVEL

_CLIENT_ID = "tailrace-registry"
# Two cores have room for two.
_PARSING_THREADS = 2


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
    context = place.server_context()
    listener = listen(place)  # Before anything else: other registries are told the port.
    with listener:
        port = listener.getsockname()[1]
        scheme = "http" if context is None else "https"
        identity = Identity(scheme, place.host_for_others(settings.host), port, settings.is_eligible)
        cluster, reading = (open_cluster(bootstrap, security=security, client_id=_CLIENT_ID) for _ in range(2))
        try:
            door = _door(cluster, bootstrap, security, settings)
            registry = Registry(cluster, reading, settings, identity, RealBackground(_PARSING_THREADS))
            forwarding = Forwarding(
                settings, tls=_client_context(place.tls), own_authorization=_own_authorization(security)
            )
            server = Server(make_app(registry, door, forwarding), context, lambda: on_ready(identity.url))
            await _run(registry, door, server, listener, parent)
        finally:
            cluster.close()
            reading.close()


async def _run(registry: Registry, door: Door, server: Server, listener: socket.socket, parent: int | None) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if parent is not None:
        loop.add_reader(parent, os._exit, EXIT_ORPHANED)
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


def _client_context(settings: TlsSettings | None) -> ssl.SSLContext | None:
    """To the registry that writes, which has a certificate of the same authorities."""
    if settings is None:
        return None
    from dataclasses import replace

    from tailrace.real.tls.certificates import make_tls_context

    return make_tls_context(replace(settings, client_auth=ClientAuth.NONE))

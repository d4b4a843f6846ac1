"""A gateway as a process: a port, TLS, who may come in, and an end that lets what is under way finish.

Prints one line on stdout, `gateway: <url>`, once it serves.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from tailrace.apps.gateway.app import make_app
from tailrace.apps.gateway.callers import Callers
from tailrace.apps.gateway.consume.readers import Readers
from tailrace.apps.gateway.settings import AUTOMATIC, GatewaySettings
from tailrace.apps.gateway.web import Gateway, RegistryPlace
from tailrace.apps.serving import EXIT_ORPHANED, Place, Server, listen
from tailrace.client.connection import Address, ConnectionLimits
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Security
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.cluster import open_cluster

_CLIENT_ID = "tailrace-gateway"
# A message over a socket is an acknowledgement.
_SOCKET_MESSAGE_BYTES = 4096


async def serve(
    place: Place,
    bootstrap: Sequence[Address],
    security: Security,
    settings: GatewaySettings,
    on_ready: Callable[[str], None],
    *,
    names: Sequence[str] = (),
    registry: RegistryPlace | None = None,
    parent: int | None = None,
) -> None:
    """Until SIGINT or SIGTERM. `names` are those by which browsers ask for this host; `parent` is a pipe that ends with
    the process that started this one. Raises KafkaError, and OSError if it cannot listen."""
    _check_identity(security, settings)
    context = place.server_context()

    def open_as(caller: Security) -> Cluster:
        limits = ConnectionLimits(request_timeout_ms=settings.delivery_timeout_ms)
        return open_cluster(bootstrap, security=caller, client_id=_CLIENT_ID, limits=limits)

    callers = Callers(open_as, security, settings)
    gateway = Gateway(callers, settings, Readers(settings), registry)
    with listen(place) as listener:
        host, port = place.host_for_others(settings.host), listener.getsockname()[1]
        url = f"{'http' if context is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"
        server = Server(
            make_app(gateway, _hosts(place.host, names)),
            context,
            lambda: on_ready(url),
            ws="websockets-sansio",
            ws_max_size=_SOCKET_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            limit_concurrency=settings.connections_max,
        )
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        if parent is not None:
            loop.add_reader(parent, os._exit, EXIT_ORPHANED)
        tidying = asyncio.ensure_future(callers.tidy())
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        told = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([serving, told], return_when=asyncio.FIRST_COMPLETED)
            gateway.readers.stopping.set()  # Their requests would last for ever.
            server.should_exit = True
            await serving
        finally:
            for each in (told, tidying):
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each
            callers.close()


def _check_identity(security: Security, settings: GatewaySettings) -> None:
    """A gateway that brokers know by its certificate must not lend it to everyone by an oversight."""
    has_certificate = security.tls is not None and security.tls.certificates is not None
    if settings.authentication == AUTOMATIC and security.sasl is None and has_certificate:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "brokers know this gateway by its certificate, and everyone who reaches it would act with its rights: "
            "connect to a SASL listener, or say --set authentication=none if that is meant",
        )


def _hosts(host: str, names: Sequence[str]) -> list[str]:
    """On a loopback address only its own names: else a page from anywhere could lead its name here."""
    with suppress(ValueError):
        if host == "localhost" or ipaddress.ip_address(host).is_loopback:
            return ["localhost", "127.0.0.1", "[::1]", host, *names]
    return list(names) or ["*"]

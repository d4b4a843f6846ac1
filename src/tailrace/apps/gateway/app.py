"""All paths as one ASGI application."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.apps.gateway.about import OPERATIONS as ABOUT
from tailrace.apps.gateway.consume import events
from tailrace.apps.gateway.consume.sockets import socket_route
from tailrace.apps.gateway.errors import GatewayError
from tailrace.apps.gateway.produce import routes as produce
from tailrace.apps.gateway.rest import acls, clusters, configs, groups, partitions, topics
from tailrace.apps.gateway.web import Gateway, Operation, refusal

# Paths with a dash in the place of a name come before those with the name: `configs` and `partitions` have some.
OPERATIONS: tuple[Operation, ...] = (
    *ABOUT,
    *configs.OPERATIONS,
    *partitions.OPERATIONS,
    *clusters.OPERATIONS,
    *topics.OPERATIONS,
    *groups.OPERATIONS,
    *acls.OPERATIONS,
    *produce.OPERATIONS,
    *events.OPERATIONS,
)


def make_app(gateway: Gateway, hosts: Collection[str] = ("*",)) -> ASGIApp:
    """`hosts` are the names by which a browser may ask."""
    app = Starlette(
        routes=[*(each.route(gateway) for each in OPERATIONS), socket_route(gateway)],
        exception_handlers={HTTPException: _refuse},
    )
    app.router.redirect_slashes = False
    origins = [each.strip() for each in gateway.settings.allowed_origins.split(",") if each.strip()]
    if origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=["*"]
        )
    if "*" not in hosts:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return _Paths(app)


class _Paths:
    """Encoded slashes stay encoded until a path has been matched: a group may be called `a/b`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            scope = dict(scope)
            path = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("latin-1").partition("?")[0]
            scope["path"] = path.rstrip("/") or "/"
        await self._app(scope, receive, send)


async def _refuse(request: Request, error: Exception) -> Response:
    """Paths and methods that there are none of."""
    del request
    assert isinstance(error, HTTPException), "it is handled for these alone"
    headers = dict(error.headers) if error.headers else None
    return refusal(
        GatewayError(error.status_code, error.status_code, f"HTTP {error.status_code} {error.detail}", headers=headers)
    )

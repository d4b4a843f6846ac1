"""The console as a web application, and the server that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from tailrace.apps.console.balancing import Balancing
from tailrace.apps.console.doors.oidc import Oidc, OidcOptions
from tailrace.apps.console.doors.visitors import COOKIE, OpenRegistry, Visitors, watcher_security
from tailrace.apps.console.pages import (
    access,
    alerts,
    balance,
    cluster,
    groups,
    letters,
    login,
    messages,
    mirrors,
    nodes,
    pipelines,
    schemas,
    tier,
    topics,
    transactions,
)
from tailrace.apps.console.watcher import Watcher
from tailrace.apps.console.web import Console, Options
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Security

_PING_S = 15.0
_EXIT_ORPHANED = 3


def make_app(
    open_cluster: Callable[[Security], Cluster],
    security: Security,
    options: Options,
    *,
    bootstrap: str,
    hosts: Collection[str] = ("*",),
    open_registry: OpenRegistry | None = None,
    oidc_options: OidcOptions | None = None,
    parent: int | None = None,
) -> Starlette:
    """`hosts` are the names by which a browser may ask: a page of another name that leads here is refused. When the
    pipe `parent` ends, so does this process. `app.state.stop` ends what goes on as long as somebody looks."""
    own = watcher_security(security)
    shared = open_cluster(own or Security(tls=security.tls))
    watcher = Watcher(
        open_cluster(own or Security(tls=security.tls)),
        interval_s=options.interval_s,
        groups_max=options.groups_max,
        series_max=options.series_max,
    )

    def now_s() -> float:
        return shared.ports.clock.monotonic_ms() / 1000

    oidc = None if oidc_options is None else Oidc(oidc_options, shared.ports, now_s=now_s)
    visitors = Visitors(
        shared,
        security,
        open_cluster,
        now_s=now_s,
        open_registry=open_registry,
        renew=None if oidc is None else oidc.renew,
        readers_max=options.readers_max,
    )
    console = Console(watcher, visitors, options, bootstrap=bootstrap, oidc=oidc, balancing=Balancing(open_cluster))

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        if parent is not None:
            asyncio.get_running_loop().add_reader(parent, os._exit, _EXIT_ORPHANED)
        watching = asyncio.create_task(watcher.run()) if own is not None else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
            await asyncio.to_thread(console.balancing.close)
            await console.choosers.aclose()
            visitors.close()
            watcher.close()
            shared.close()

    async def stop() -> None:
        visitors.stop()
        await watcher.stop()

    app = Starlette(
        routes=_routes(console),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
        exception_handlers={404: lambda request, _: _not_found(console, request)},
        lifespan=life,
    )
    app.state.stop = stop
    return app


def _routes(console: Console) -> list[BaseRoute]:
    rooms = (
        cluster,
        nodes,
        topics,
        messages,
        groups,
        schemas,
        transactions,
        pipelines,
        access,
        alerts,
        balance,
        tier,
        mirrors,
        letters,
        login,
    )
    return [
        *(route for room in rooms for route in room.routes(console)),
        Route("/live", partial(_live, console)),
        Route("/health", lambda _: PlainTextResponse("ok\n")),
        Mount("/static", StaticFiles(packages=[("tailrace.apps.console", "static")])),
    ]


async def _live(console: Console, request: Request) -> Response:
    """Tells a page each time that there is something new to show."""
    if console.visitors.find(request.cookies.get(COOKIE)) is None:
        return PlainTextResponse("log in first\n", 403)

    async def events() -> AsyncIterator[str]:
        yield "retry: 3000\n\n"
        rounds = console.watcher.rounds()
        coming: asyncio.Future[Any] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(rounds))
                done, _ = await asyncio.wait((coming,), timeout=_PING_S)
                if done and isinstance(coming.exception(), StopAsyncIteration):
                    return
                yield f"data: {coming.result()}\n\n" if done else ": still here\n\n"
                coming = None if done else coming
        finally:
            if coming is not None:
                coming.cancel()

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _not_found(console: Console, request: Request) -> Response:
    return console.failed(request, "There is no such page", f"Nothing is at {request.url.path}.", 404)

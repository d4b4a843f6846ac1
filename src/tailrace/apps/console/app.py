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
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tailrace.apps.console.doors.visitors import COOKIE, Visitors, watcher_security
from tailrace.apps.console.pages import access, cluster, groups, messages, topics, transactions
from tailrace.apps.console.watcher import Watcher
from tailrace.apps.console.web import Console, Options, read_form
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Security
from tailrace.model.errors import KafkaError

_PING_S = 15.0
_EXIT_ORPHANED = 3


def make_app(
    open_cluster: Callable[[Security], Cluster],
    security: Security,
    options: Options,
    *,
    bootstrap: str,
    hosts: Collection[str] = ("*",),
    parent: int | None = None,
) -> Starlette:
    """`hosts` are the names by which a browser may ask: a page of another name that leads here is refused. When the
    pipe `parent` ends, so does this process."""
    own = watcher_security(security)
    shared = open_cluster(own or Security(tls=security.tls))
    watcher = Watcher(
        shared, interval_s=options.interval_s, groups_max=options.groups_max, series_max=options.series_max
    )
    visitors = Visitors(shared, security, open_cluster, now_s=lambda: shared.ports.clock.monotonic_ms() / 1000)
    console = Console(watcher, visitors, options, bootstrap=bootstrap)

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
            visitors.close()
            shared.close()

    rooms = (cluster, topics, messages, groups, transactions, access)
    return Starlette(
        routes=[
            *(route for room in rooms for route in room.routes(console)),
            Route("/live", partial(_live, console)),
            Route("/login", partial(_login, console), methods=["GET", "POST"]),
            Route("/logout", partial(_logout, console), methods=["POST"]),
            Route("/health", lambda _: PlainTextResponse("ok\n")),
            Mount("/static", StaticFiles(packages=[("tailrace.apps.console", "static")])),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
        exception_handlers={404: lambda request, _: _not_found(console, request)},
        lifespan=life,
    )


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
                yield f"data: {coming.result()}\n\n" if done else ": still here\n\n"
                coming = None if done else coming
        finally:
            if coming is not None:
                coming.cancel()

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _login(console: Console, request: Request) -> Response:
    if not console.visitors.must_log_in:
        return RedirectResponse("/", 303)
    problem = None
    if request.method == "POST":
        form = await read_form(request) or {}
        if console.visitors.is_token_good(request.cookies.get(COOKIE), form.get("token", "")):
            try:
                cookie = await console.visitors.log_in(form.get("user", ""), form.get("password", ""))
            except KafkaError as error:
                problem = error.message or error.code.name
            else:
                to = form.get("to", "/")
                response = RedirectResponse(to if to.startswith("/") and not to.startswith("//") else "/", 303)
                console.set_cookie(response, cookie)
                return response
        else:
            problem = "The page was too old: try again."
    return console.html(
        request,
        "login.html",
        status=403 if problem else 200,
        user=None,
        problem=problem,
        to=request.query_params.get("to", "/"),
    )


async def _logout(console: Console, request: Request) -> Response:
    form = await read_form(request) or {}
    cookie = request.cookies.get(COOKIE)
    if console.visitors.is_token_good(cookie, form.get("token", "")):
        console.visitors.log_out(cookie)
    return RedirectResponse("/login", 303)


def _not_found(console: Console, request: Request) -> Response:
    return console.failed(request, "There is no such page", f"Nothing is at {request.url.path}.", 404)

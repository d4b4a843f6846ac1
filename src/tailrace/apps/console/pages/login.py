"""Coming in and going out: by name and password, or by an issuer of OpenID Connect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tailrace.apps.console.doors.oidc import LOGIN_COOKIE
from tailrace.apps.console.doors.visitors import COOKIE
from tailrace.apps.console.web import HEADERS, Console, read_form
from tailrace.model.errors import KafkaError

_CALLBACK = "/login/oidc/callback"


def routes(console: Console) -> Sequence[BaseRoute]:
    own = [
        Route("/login", partial(_login, console), methods=["GET", "POST"]),
        Route("/logout", partial(_logout, console), methods=["POST"]),
    ]
    if console.oidc is None:
        return own
    return [
        *own,
        Route("/login/oidc", partial(_begin, console), methods=["GET"]),
        Route(_CALLBACK, partial(_end, console), methods=["GET"]),
    ]


async def _login(console: Console, request: Request) -> Response:
    if not console.visitors.must_log_in:
        return RedirectResponse("/", 303)
    if request.method == "GET":
        return _page(console, request, None)
    form = await read_form(request) or {}
    if not console.visitors.is_token_good(request.cookies.get(COOKIE), form.get("token", "")):
        return _page(console, request, "The page was too old: try again.")
    try:
        cookie = await console.visitors.log_in(form.get("user", ""), form.get("password", ""))
    except KafkaError as error:
        return _page(console, request, error.message or error.code.name)
    response = RedirectResponse(_own_path(form.get("to", "/")), 303)
    console.set_cookie(response, cookie)
    return response


async def _logout(console: Console, request: Request) -> Response:
    form = await read_form(request) or {}
    cookie = request.cookies.get(COOKIE)
    if console.visitors.is_token_good(cookie, form.get("token", "")):
        console.visitors.log_out(cookie)
    return RedirectResponse("/login", 303)


async def _begin(console: Console, request: Request) -> Response:
    assert console.oidc is not None, "there is no such route without"
    here = console.oidc.options.address or f"{request.url.scheme}://{request.url.netloc}"
    to = _own_path(request.query_params.get("to", "/"))
    try:
        where, cookie = await console.oidc.begin(callback=here.rstrip("/") + _CALLBACK, to=to)
    except KafkaError as error:
        return _page(console, request, error.message or error.code.name)
    response = RedirectResponse(where, 303)
    is_behind_tls = console.options.is_behind_tls
    response.set_cookie(
        LOGIN_COOKIE, cookie, max_age=600, path="/login/oidc", httponly=True, samesite="lax", secure=is_behind_tls
    )
    return response


async def _end(console: Console, request: Request) -> Response:
    assert console.oidc is not None, "there is no such route without"
    try:
        tokens, to = await console.oidc.end(request.query_params, request.cookies.get(LOGIN_COOKIE, ""))
        cookie = await console.visitors.log_in_by(tokens)
    except KafkaError as error:
        return _page(console, request, error.message or error.code.name)
    # Not a redirect: a browser that comes from another site would not show the cookie of the visit at its end.
    response = HTMLResponse(console.template("entered.html").render(to=to), headers=HEADERS)
    response.delete_cookie(LOGIN_COOKIE, path="/login/oidc")
    console.set_cookie(response, cookie)
    return response


def _page(console: Console, request: Request, problem: str | None) -> Response:
    return console.html(
        request,
        "login.html",
        status=403 if problem else 200,
        user=None,
        problem=problem,
        issuer=None if console.oidc is None else console.oidc.name,
        to=request.query_params.get("to", "/"),
    )


def _own_path(text: str) -> str:
    """Nobody is led to another site: browsers take a backslash for a slash, and two slashes for a host."""
    is_own = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return quote(text, safe="/?&=%+-_.~:,;@!$'()*") if is_own else "/"

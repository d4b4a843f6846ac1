"""Paths before they are matched: encoded slashes stay encoded, and `/contexts/{context}/...` becomes the path without
it.

A subject may be called `a/b`, which a client sends as `a%2Fb`: matched after decoding it would be two parts of a path.
A path below a context is the same path with the context written into the subject, as Confluent's filter does it.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.state.names import EVERY_CONTEXT, normalize_context
from tailrace.apps.registry.web.http import refusal

_PARENTS_OF_SUBJECTS = ("subjects",)
_SETTINGS = ("config", "mode")


class Paths:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = dict(scope)
            path = (scope.get("raw_path") or quote(scope["path"]).encode()).decode("latin-1").partition("?")[0]
            if path != "/":
                path = path.rstrip("/")
            if path.startswith("/contexts/"):
                try:
                    path, scope["query_string"] = leave_context(path, scope["query_string"].decode("latin-1"))
                except ValueError as error:
                    await refusal(RegistryError(400, 400, str(error)))(scope, receive, send)
                    return
            scope["path"] = path or "/"
        await self._app(scope, receive, send)


def leave_context(path: str, query: str) -> tuple[str, bytes]:
    """Raises ValueError for a context that is none."""
    _, _, encoded, *rest = path.split("/")
    if not rest:
        return path, query.encode()
    prefix = normalize_context(unquote(encoded))
    parts: list[str] = []
    for index, part in enumerate(rest):
        is_subject = index > 0 and (rest[index - 1] in _PARENTS_OF_SUBJECTS or (index == 1 and rest[0] in _SETTINGS))
        parts.append(_qualified(prefix, part) if is_subject else part)
    if rest in (["config"], ["mode"]):
        parts.append(quote(prefix, safe=""))
    options = parse_qsl(query, keep_blank_values=True)
    if rest[:2] == ["schemas", "ids"]:
        options = _with_prefix(options, "subject", prefix)
    elif rest in (["schemas"], ["subjects"]):
        options = _with_prefix(options, "subjectPrefix", prefix)
    return "/" + "/".join(parts), urlencode(options).encode()


def _qualified(prefix: str, part: str) -> str:
    name = unquote(part)
    return part if _has_context(name) else quote(prefix + name, safe="")


def _with_prefix(options: list[tuple[str, str]], name: str, prefix: str) -> list[tuple[str, str]]:
    given = dict(options).get(name, "")
    others = [(key, text) for key, text in options if key != name]
    return [*others, (name, given if _has_context(given) else prefix + given)]


def _has_context(name: str) -> bool:
    return name.startswith((":.", EVERY_CONTEXT))

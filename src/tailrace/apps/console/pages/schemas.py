"""Schemas: subjects of the registry, their versions, and what differs between two of them."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console, show
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.registry.client import RegistryClient, RegistryError, Version
from tailrace.schemas import check

T = TypeVar("T")

_SUBJECTS_MAX = 1000
_LEVELS = ("BACKWARD", "FORWARD")


class Difference(NamedTuple):
    old: int
    lines: tuple[tuple[str, str], ...]  # Of a diff: "+", "-", "@" or " ", and the text.
    verdicts: tuple[tuple[str, tuple[str, ...]], ...]  # By level: why not, if it is not compatible.


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/schemas", subjects, console),
        show("/schemas/{name:path}", subject, console),
        show("/schema-ids/{number:int}", by_id, console),
    )


async def subjects(console: Console, visit: Visit, request: Request) -> Response:
    if visit.schemas is None:
        return console.html(request, "schemas.html", user=visit.user, names=[], count=0, find="")
    client = visit.schemas.client
    wanted = request.query_params.get("find", "").lower()
    found = [each for each in await _asked(client.subjects) if wanted in each.lower()]
    picture = await console.picture(visit)
    names = [(name, topic if (topic := _topic_of(name)) in picture.topics else None) for name in found[:_SUBJECTS_MAX]]
    find = request.query_params.get("find", "")
    return console.html(request, "schemas.html", user=visit.user, names=names, count=len(found), find=find)


async def subject(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    client = _client(visit)
    versions, level = await _asked(lambda: (client.versions(name), client.level(name)))
    wanted = _whole(request, "version") or versions[-1]
    old = _whole(request, "against") or max((each for each in versions if each < wanted), default=None)
    shown = await _asked(lambda: client.version(name, wanted))
    before = None if old is None else await _asked(lambda: client.version(name, old))
    return console.html(
        request,
        "subject.html",
        user=visit.user,
        name=name,
        level=level,
        versions=versions,
        shown=shown,
        text=_pretty(shown.schema.text),
        references=list(shown.schema.referenced),
        difference=None if before is None else await asyncio.to_thread(_difference, before, shown),
    )


async def by_id(console: Console, visit: Visit, request: Request) -> Response:
    number = request.path_params["number"]
    client = _client(visit)
    uses = await _asked(lambda: client.uses(number))
    if not uses:
        return console.failed(request, "There is no such schema", f"No subject has the schema {number}.", 404)
    name, version = uses[-1]
    return RedirectResponse(f"/schemas/{quote(name, safe='')}?version={version}", 303)


def _client(visit: Visit) -> RegistryClient:
    if visit.schemas is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "this console was started without --schema-registry URL")
    return visit.schemas.client


async def _asked(question: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(question)
    except RegistryError as error:
        code = ErrorCode.NETWORK_EXCEPTION if error.is_away else ErrorCode.RESOURCE_NOT_FOUND
        raise KafkaError(code, str(error)) from None


def _whole(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is {text!r}, which is no version")
    return int(text)


def _pretty(text: str) -> str:
    """Protobuf's is as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _topic_of(name: str) -> str:
    """As serializers name subjects, unless they are told otherwise."""
    return name.removesuffix("-value").removesuffix("-key")


def _difference(before: Version, after: Version) -> Difference:
    lines = difflib.unified_diff(
        _pretty(before.schema.text).splitlines(), _pretty(after.schema.text).splitlines(), n=3, lineterm=""
    )
    verdicts = tuple(
        (level, tuple(each.message for each in check(level, after.schema, [(before.version, before.schema)])))
        for level in _LEVELS
    )
    return Difference(before.version, tuple((line[:1], line[1:]) for line in list(lines)[2:]), verdicts)

"""Requests and answers as Confluent's registry has them: flags, numbers, content types, and errors as JSON."""

from __future__ import annotations

import json
from typing import Any, cast
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from tailrace.apps.registry.errors import RegistryError, invalid_version
from tailrace.apps.registry.state.store import LATEST

V1_JSON = "application/vnd.schemaregistry.v1+json"
_JSONS = (V1_JSON, "application/vnd.schemaregistry+json", "application/json")
_CONSUMED = (*_JSONS, "application/octet-stream")
_NUMBER_MAX = (1 << 31) - 1
# Of a request that is too large so much is read and thrown away: a client that is still sending when the connection is
# closed sees a broken connection, and not the answer.
_PASSED_OVER_TIMES = 8
# Where the body of a request is kept.
_BODY = "tailrace.body"


def flag(request: Request, name: str) -> bool:
    """As Java reads it: everything but `true` is false. Python's clients send `True` and `False`."""
    return request.query_params.get(name, "").lower() == "true"


def number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise RegistryError(404, 404, "HTTP 404 Not Found") from None


def query(request: Request, name: str, default: str = "") -> str:
    return request.query_params.get(name, default)


def path_text(request: Request, name: str) -> str:
    """A part of the path, which may hold an encoded slash."""
    return unquote(cast(str, request.path_params[name]))


def path_id(request: Request) -> int:
    text = path_text(request, "id")
    if not text.isascii() or not text.removeprefix("-").isdigit() or int(text) > _NUMBER_MAX:
        raise RegistryError(404, 404, "HTTP 404 Not Found")
    return int(text)


def path_version(request: Request) -> int:
    return parse_version(path_text(request, "version"))


def parse_version(text: str) -> int:
    word = text.strip()
    if word.lower() == "latest":
        return LATEST
    try:
        found = int(word)
    except ValueError:
        raise invalid_version(text) from None
    if found != LATEST and not 1 <= found <= _NUMBER_MAX:
        raise invalid_version(word)
    return found


def page(found: list[Any], request: Request, limit_max: int | None = None) -> list[Any]:
    """By `offset` and `limit`; a limit below one is none."""
    offset, limit = max(0, number(request, "offset", 0)), number(request, "limit", -1)
    if limit_max is not None and not 0 < limit <= limit_max:
        limit = limit_max
    return found[offset : offset + limit] if limit > 0 else found[offset:]


async def body(request: Request, max_bytes: int) -> bytes:
    """Kept with the request: it may have to be sent on."""
    kept: bytes | None = request.scope.get(_BODY)
    if kept is not None:
        return kept
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= max_bytes:
            chunks.append(chunk)
        elif size > max_bytes * _PASSED_OVER_TIMES:
            break
        else:
            chunks.clear()
    if size > max_bytes:
        raise RegistryError(
            413, 413, f"the request has more than {max_bytes} bytes: send less, or raise request.max.bytes"
        )
    data = request.scope[_BODY] = b"".join(chunks)
    return data


async def json_body(request: Request, max_bytes: int) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type and content_type not in _CONSUMED:
        raise RegistryError(
            415, 415, f"HTTP 415 Unsupported Media Type: {content_type}; send one of {', '.join(_JSONS)}"
        )
    data = await body(request, max_bytes)
    if not data.strip():
        raise RegistryError(422, 422, "the request must not be null: its body is empty, and it needs a JSON object")
    try:
        document = json.loads(data)
    except RecursionError:
        raise RegistryError(400, 400, "the body is nested too deeply") from None
    except ValueError as error:
        raise RegistryError(400, 400, f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise RegistryError(422, 422, "the body is not a JSON object")
    return document


def content_type_of(request: Request) -> str:
    """What the client accepts, of what there is. Raises RegistryError 406."""
    accepted = request.headers.get("accept")
    if not accepted:
        return V1_JSON
    best, best_weight = "", 0.0
    for item in accepted.split(","):
        name, *options = (part.strip().lower() for part in item.split(";"))
        weight = _weight(options)
        for candidate in _JSONS:
            is_fit = name in (candidate, "*/*") or (name == "application/*")
            if is_fit and weight > best_weight:
                best, best_weight = candidate, weight
                break
    if not best:
        raise RegistryError(406, 406, "HTTP 406 Not Acceptable")
    return best


def _weight(options: list[str]) -> float:
    for option in options:
        if option.startswith("q="):
            try:
                return float(option[2:])
            except ValueError:
                return 0.0
    return 1.0


def answer(request: Request, content: Any, status: int = 200) -> Response:
    return raw_answer(request, to_json(content), status)


def raw_answer(request: Request, data: bytes, status: int = 200) -> Response:
    return Response(data, status, media_type=content_type_of(request))


def to_json(content: Any) -> bytes:
    # A lone surrogate in a schema's text is escaped, as no UTF-8 can hold it.
    try:
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(content, separators=(",", ":")).encode()


def refusal(error: RegistryError) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="tailrace"'} if error.status == 401 else None
    content = to_json({"error_code": error.code, "message": error.message})
    return Response(content, error.status, headers=headers, media_type=V1_JSON)

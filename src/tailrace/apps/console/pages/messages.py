"""The messages of a topic: read, followed, downloaded, produced."""

from __future__ import annotations

import json
import shlex
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.reading.content import in_words
from tailrace.apps.console.reading.content import show as show_content
from tailrace.apps.console.reading.filters import FilterError, parse_filter
from tailrace.apps.console.reading.records import Found, Page, Query, follow, read_page
from tailrace.apps.console.reading.views import NO_NOTES, View
from tailrace.apps.console.web import Console, change, confirmed, done, field, number, show
from tailrace.client.producer import Producer
from tailrace.model.errors import ErrorCode, KafkaError

_LIMIT, _LIMIT_MAX = 50, 1000
_SHOWN_BYTES = 1024
_WHOLE_BYTES = 1 << 20
_DOWNLOAD_MAX = 10_000
_TROUBLES_MAX = 5
# The field that leaves schemas out.
_RAW = "raw"


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/topics/{name}/messages", messages, console),
        show("/topics/{name}/messages/tail", tail, console),
        show("/topics/{name}/messages/download", download, console),
        show("/topics/{name}/messages/{partition:int}/{offset:int}", message, console),
        change("/topics/{name}/messages", produce, console),
    )


async def messages(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    page, problem = Page((), 0, True), None
    topic = (await visit.cluster.refresh([name]))[name]
    try:
        query = _query(name, request, await _view(console, visit, request))
        page = await read_page(visit.cluster, query)
    except FilterError as error:
        problem = f"The filter is not understood: {error}"
    return console.html(
        request,
        "messages.html",
        user=visit.user,
        name=name,
        partitions=list(topic.partitions),
        rows=[_row(name, found) for found in page.found],
        page=page,
        problem=problem,
        asked=dict(request.query_params),
        query_text=request.url.query,
        is_committed="committed" in request.query_params,
        is_raw=_RAW in request.query_params,
        troubles=sorted({each for found in page.found for each in found.notes.problems})[:_TROUBLES_MAX],
        command=_command(console.bootstrap, name, request),
    )


async def message(console: Console, visit: Visit, request: Request) -> Response:
    """One record as a whole, up to a bound."""
    name, partition, offset = (request.path_params[each] for each in ("name", "partition", "offset"))
    view = await _view(console, visit, request)
    query = Query(name, (partition,), lambda _, record: record.offset == offset, view, limit=1, from_offset=offset)
    page = await read_page(visit.cluster, query)
    if not page.found:
        reason = f"Offset {offset} of {name}-{partition} is not there: it was compacted or deleted, or is a marker."
        return console.failed(request, "There is no such message", reason, 404)
    found = page.found[0]
    return console.html(
        request,
        "message.html",
        user=visit.user,
        name=name,
        partition=partition,
        row=_row(name, found, limit_bytes=_WHOLE_BYTES),
        notes=found.notes,
        # What was opened or masked is not what would be written again.
        is_as_written=found.notes == NO_NOTES,
        raw_key=_text_of(found.record.key),
        raw_value=_text_of(found.record.value),
    )


async def tail(console: Console, visit: Visit, request: Request) -> Response:
    """New messages as they arrive, as server-sent events that hold a row of the table each."""
    name = request.path_params["name"]
    try:
        query = _query(name, request, await _view(console, visit, request))
    except FilterError as error:
        return console.failed(request, "The filter is not understood", str(error), 400)
    template = console.template("message_row.html")

    async def events() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        try:
            async for found in follow(visit.cluster, query):
                html = template.render(row=_row(name, found), name=name)
                yield "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"
        except KafkaError as error:
            yield f"event: failed\ndata: {json.dumps(error.message or error.code.name)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def download(console: Console, visit: Visit, request: Request) -> Response:
    """What the page shows, as JSON lines in the form that `tailrace produce --input json` reads: so as it was written,
    or opened where something of it is masked."""
    name = request.path_params["name"]
    try:
        query = _query(name, request, await console.view(visit, name, is_raw=True), limit_max=_DOWNLOAD_MAX)
    except FilterError as error:
        return console.failed(request, "The filter is not understood", str(error), 400)
    page = await read_page(visit.cluster, query)
    lines = "".join(json.dumps(_json(name, found)) + "\n" for found in page.found)
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.jsonl",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(lines, media_type="application/x-ndjson", headers=headers)


async def produce(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    form = request.state.form
    key = None if "no_key" in form else form.get("key", "").encode()
    value = None if "no_value" in form else form.get("value", "").replace("\r\n", "\n").encode()
    partition = number(request, "partition")
    headers = tuple(_headers(field(request, "headers")))
    where = "a partition by its key" if partition is None else f"partition {partition}"
    size = "no value: a tombstone" if value is None else f"a value of {len(value)} bytes"
    words = [f"One record with {size} is written to topic {name}, {where}. Whoever reads the topic gets it."]
    page = confirmed(console, visit, request, title=f"Write to {name}", words=words)
    if page is not None:
        return page
    async with Producer(visit.cluster) as producer:
        written = await (await producer.send(name, value, key=key, headers=headers, partition=partition))
    said = f"Written to partition {written.partition.partition} at offset {written.offset}."
    return done(f"/topics/{quote(name, safe='')}/messages", said)


async def _view(console: Console, visit: Visit, request: Request) -> View:
    return await console.view(visit, request.path_params["name"], is_raw=_RAW in request.query_params)


def _query(name: str, request: Request, view: View, *, limit_max: int = _LIMIT_MAX) -> Query:
    asked = request.query_params
    partition = _whole(asked.get("partition"), "partition")
    start = asked.get("start", "newest")
    offset = _whole(asked.get("offset"), "offset") if start == "offset" else None
    return Query(
        topic=name,
        partitions=() if partition is None else (partition,),
        test=parse_filter(wanted) if (wanted := asked.get("filter", "").strip()) else None,
        view=view,
        limit=max(1, min(_whole(asked.get("limit"), "limit") or _LIMIT, limit_max)),
        is_committed_only="committed" in asked,
        from_offset=(offset or 0) if start == "offset" else None,
        from_time_ms=_time_ms(asked.get("time", "")) if start == "time" else None,
        is_from_start=start == "oldest",
    )


def _whole(text: str | None, name: str) -> int | None:
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise FilterError(f"{name} is {text!r}, which is no whole number") from None


def _time_ms(text: str) -> int:
    """Milliseconds, or a date and time in UTC as a browser's field writes it."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise FilterError(f"{text!r} is no time: write 2026-11-18T09:30 (UTC) or milliseconds") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _row(name: str, found: Found, *, limit_bytes: int = _SHOWN_BYTES) -> dict[str, Any]:
    record = found.record
    words = in_words(name, record)
    return {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": show_content(record.key, limit_bytes=limit_bytes),
        "value": show_content(record.value, limit_bytes=limit_bytes),
        "words": words,
        "notes": found.notes,
        "headers": [
            (header.encode("utf-8", "replace").decode(), show_content(content, limit_bytes=limit_bytes))
            for header, content in record.headers
        ],
    }


def _json(name: str, found: Found) -> dict[str, Any]:
    record = found.record
    line: dict[str, Any] = {
        "topic": name,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    line |= _json_content("key", record.key) | _json_content("value", record.value)
    if record.headers:
        line["headers"] = [{"name": header} | _json_content("value", each) for header, each in record.headers]
    return line


def _json_content(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes that are no text stand in base64 under another name, so that nothing is lost."""
    text = _text_of(data)
    return {name: text} if data is None or text is not None else {f"{name}_base64": b64encode(data).decode("ascii")}


def _text_of(data: bytes | None) -> str | None:
    """For a form that sends the record again; None if it is no text, which a form cannot carry."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def _headers(text: str) -> list[tuple[str, bytes]]:
    found = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the header {line!r} is not name=value")
        found.append((name.strip(), value.strip().encode()))
    return found


def _command(bootstrap: str, name: str, request: Request) -> str:
    """The same in a terminal."""
    asked = request.query_params
    words = ["tailrace", "consume", shlex.quote(name), "--bootstrap", bootstrap, "--until-end"]
    if asked.get("partition"):
        words += ["--partition", shlex.quote(asked["partition"])]
    start = asked.get("start", "newest")
    if start == "offset" and asked.get("offset"):
        words += ["--from", shlex.quote(asked["offset"])]
    elif start == "time" and asked.get("time"):
        words += ["--from-time", shlex.quote(asked["time"])]
    if "committed" in asked:
        words += ["--isolation", "read_committed"]
    return " ".join(words)

"""The messages of a topic: a page of them, one as a whole, those that arrive, those that are taken away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.pages.messages.commands import command_for, command_for_one, program_for
from tailrace.apps.console.pages.messages.rows import line_of, row_of, text_of
from tailrace.apps.console.reading.batches import Facts, describe_batches, facts_of
from tailrace.apps.console.reading.choosing import Filter, FilterCostError
from tailrace.apps.console.reading.filters import FilterError
from tailrace.apps.console.reading.records import Found, Page, Query, follow, read_page
from tailrace.apps.console.reading.views import NO_NOTES, View
from tailrace.apps.console.web import Console, whole_number
from tailrace.client.metadata import Cluster
from tailrace.model.errors import KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.settings import INT_MAX, LONG_MAX

_LIMIT, _LIMIT_MAX = 50, 1000
_WHOLE_BYTES = 1 << 20
_DOWNLOAD_MAX = 10_000
_TROUBLES_MAX = 5
# So many polls without a message, half a second each, and a browser that has left is noticed by a sign of life.
_PING_POLLS = 30
# The field that leaves schemas out.
_RAW = "raw"


async def messages(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    page, problem = Page((), 0, True), None
    facts: dict[tuple[int, int], Facts | None] = {}
    topic = (await visit.cluster.refresh([name]))[name]
    try:
        query = _query(console, request, await _view(console, visit, request))
        page, facts = await _read_with_facts(console, visit, query)
        if query.filter is not None and query.filter.too_large:
            problem = f"{query.filter.too_large} records were too large for the filter, and are left out."
    except FilterError as error:
        problem = f"The filter is not understood: {error}"
    except FilterCostError as error:
        problem = f"The filter was stopped: {error}"
    return console.html(
        request,
        "messages.html",
        user=visit.user,
        name=name,
        partitions=list(topic.partitions),
        rows=[row_of(name, found, facts.get((found.partition, found.record.offset))) for found in page.found],
        page=page,
        problem=problem,
        asked=dict(request.query_params),
        query_text=request.url.query,
        is_committed="committed" in request.query_params,
        is_raw=_RAW in request.query_params,
        troubles=sorted({each for found in page.found for each in found.notes.problems})[:_TROUBLES_MAX],
        command=command_for(console.bootstrap, name, request.query_params),
        program=_program(console, name, page),
    )


async def message(console: Console, visit: Visit, request: Request) -> Response:
    """One record as a whole, up to a bound."""
    name, partition, offset = (request.path_params[each] for each in ("name", "partition", "offset"))
    where = TopicPartition(name, PartitionIndex(partition))
    found = await read_one(console, visit, where, offset, await _view(console, visit, request))
    if found is None:
        reason = f"Offset {offset} of {name}-{partition} is not there: it was compacted or deleted, or is a marker."
        return console.failed(request, "There is no such message", reason, 404)
    facts = (await _facts(visit.cluster, name, (found,))).get((partition, offset))
    return console.html(
        request,
        "message.html",
        user=visit.user,
        name=name,
        partition=partition,
        offset=offset,
        row=row_of(name, found, facts, limit_bytes=_WHOLE_BYTES),
        notes=found.notes,
        # What was opened or masked is not what would be written again.
        is_as_written=found.notes == NO_NOTES,
        raw_key=text_of(found.record.key),
        raw_value=text_of(found.record.value),
        raw_headers=_headers_text(found),
        command=command_for_one(console.bootstrap, name, partition, offset),
        program=program_for(console.bootstrap, name, partition, offset, 1),
    )


async def tail(console: Console, visit: Visit, request: Request) -> Response:
    """New messages as they arrive, as server-sent events that hold a row of the table each."""
    name = request.path_params["name"]
    try:
        query = _query(console, request, await _view(console, visit, request))
    except FilterError as error:
        return console.failed(request, "The filter is not understood", str(error), 400)
    template = console.template("message_row.html")

    async def events() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        quiet = 0
        try:
            with console.visitors.reading(visit) as reading:
                async for found in follow(reading.cluster, query, lambda: reading.is_over):
                    quiet = quiet + 1 if found is None else 0
                    if found is not None:
                        html = template.render(row=row_of(name, found), name=name)
                        yield "".join(f"data: {line}\n" for line in html.splitlines()) + "\n"
                    elif quiet % _PING_POLLS == 0:
                        yield ": still here\n\n"
        except (KafkaError, FilterCostError) as error:
            yield f"event: failed\ndata: {json.dumps(_reason(error))}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def download(console: Console, visit: Visit, request: Request) -> Response:
    """What the page shows, as JSON lines in the form that `tailrace produce --input json` reads: so as it was written,
    or opened where something of it is masked."""
    name = request.path_params["name"]
    try:
        query = _query(console, request, await console.view(visit, name, is_raw=True), limit_max=_DOWNLOAD_MAX)
    except FilterError as error:
        return console.failed(request, "The filter is not understood", str(error), 400)
    try:
        page = await _read(console, visit, query)
    except FilterCostError as error:
        return console.failed(request, "The filter was stopped", str(error), 400)
    lines = "".join(json.dumps(line_of(name, found)) + "\n" for found in page.found)
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.jsonl",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(lines, media_type="application/x-ndjson", headers=headers)


async def _read(console: Console, visit: Visit, query: Query) -> Page:
    with console.visitors.reading(visit) as reading:
        return await read_page(reading.cluster, query)


async def read_one(console: Console, visit: Visit, where: TopicPartition, offset: int, view: View) -> Found | None:
    page = await _read(console, visit, Query(where.topic, (where.partition,), view=view, limit=1, from_offset=offset))
    return page.found[0] if page.found and page.found[0].record.offset == offset else None


async def _read_with_facts(
    console: Console, visit: Visit, query: Query
) -> tuple[Page, dict[tuple[int, int], Facts | None]]:
    with console.visitors.reading(visit) as reading:
        page = await read_page(reading.cluster, query)
        return page, await _facts(reading.cluster, query.topic, page.found)


async def _facts(cluster: Cluster, topic: str, found: Sequence[Found]) -> dict[tuple[int, int], Facts | None]:
    """By partition and offset. A page is shown without them where a broker does not answer now."""
    offsets: dict[TopicPartition, list[int]] = {}
    for each in found:
        offsets.setdefault(TopicPartition(topic, PartitionIndex(each.partition)), []).append(each.record.offset)
    try:
        known = await describe_batches(cluster, {each: range(min(has), max(has) + 1) for each, has in offsets.items()})
    except KafkaError:
        return {}
    return {
        (partition.partition, offset): facts_of(known.get(partition, ()), offset)
        for partition, has in offsets.items()
        for offset in has
    }


def _program(console: Console, topic: str, page: Page) -> str:
    """From the first that is shown on."""
    first = min(page.found, key=lambda each: each.record.offset, default=None)
    partition, offset = (0, 0) if first is None else (first.partition, first.record.offset)
    return program_for(console.bootstrap, topic, partition, offset, max(1, len(page.found)))


def _headers_text(found: Found) -> str:
    """As the form takes them; without those that are no text."""
    lines = [(name, text_of(content)) for name, content in found.record.headers]
    return "\n".join(f"{name}={text}" for name, text in lines if text is not None and "\n" not in text)


async def _view(console: Console, visit: Visit, request: Request) -> View:
    return await console.view(visit, request.path_params["name"], is_raw=_RAW in request.query_params)


def _reason(error: KafkaError | FilterCostError) -> str:
    return (error.message or error.code.name) if isinstance(error, KafkaError) else f"The filter was stopped: {error}"


def _query(console: Console, request: Request, view: View, *, limit_max: int = _LIMIT_MAX) -> Query:
    asked = request.query_params
    partition = _whole(asked.get("partition"), "partition")
    start = asked.get("start", "newest")
    offset = _whole(asked.get("offset"), "offset") if start == "offset" else None
    return Query(
        topic=request.path_params["name"],
        partitions=() if partition is None else (partition,),
        filter=Filter(wanted, console.choosers) if (wanted := asked.get("filter", "").strip()) else None,
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
    found = whole_number(text, LONG_MAX if name == "offset" else INT_MAX)
    if found is None:
        raise FilterError(f"{name} is {text[:50]!r}, which is no whole number that it can be")
    return found


def _time_ms(text: str) -> int:
    """Milliseconds, or a date and time in UTC as a browser's field writes it."""
    found = whole_number(text, LONG_MAX)
    if found is not None:
        return found
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise FilterError(f"{text[:50]!r} is no time: write 2026-11-18T09:30 (UTC) or milliseconds") from None
    return max(0, int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))

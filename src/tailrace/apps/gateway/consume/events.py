"""A topic as server-sent events: one event a record, whose id says where to go on after it.

Memory stays flat however slow the reader is: what a poll has given is written in pieces, each when the one before has
left, and nothing is fetched beyond the next fetch. A reader that takes nothing for `reader.stall.ms` is let go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tailrace.apps.gateway.callers import Caller
from tailrace.apps.gateway.consume.asking import QUERY, read_shown, read_wanted
from tailrace.apps.gateway.consume.places import write_places
from tailrace.apps.gateway.consume.reading import Reader, Records, Wanted, open_reader
from tailrace.apps.gateway.consume.shown import Shown, show
from tailrace.apps.gateway.errors import GatewayError, of_kafka
from tailrace.apps.gateway.web import Call, Gateway, Operation, refusal_of
from tailrace.model.errors import KafkaError

EVENT_STREAM = "text/event-stream"
_PIECE_BYTES = 32 * 1024
# With more partitions than this an id is too long to be written beside each record: the last of a poll has it.
_PLACES_IN_EACH_MAX = 8
_RETRY_MS = 2000


async def _events(call: Call) -> Response:
    assert isinstance(call.request, Request), "it is a route of HTTP"
    wanted = read_wanted(call.request, call.text("topic_name"))
    shown = read_shown(call.request, lambda: call.gateway.schemas(call.caller).opener)
    return EventStream(call.gateway, call.caller, wanted, shown)


class EventStream(Response):
    def __init__(self, gateway: Gateway, caller: Caller, wanted: Wanted, shown: Shown) -> None:
        super().__init__()
        self._gateway = gateway
        self._caller = caller
        self._wanted = wanted
        self._shown = shown
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._gateway.readers.place(self._caller):
                reader = await open_reader(self._caller.open_cluster, self._wanted, self._gateway.settings)
                await self._serve(reader, receive, send)
        except (GatewayError, KafkaError) as error:
            await refusal_of(self._gateway, error, self._caller)(scope, receive, send)

    async def _serve(self, reader: Reader, receive: Receive, send: Send) -> None:
        writing = asyncio.ensure_future(self._write(reader, send))
        ends = [
            asyncio.ensure_future(_wait_disconnect(receive)),
            asyncio.ensure_future(self._gateway.readers.stopping.wait()),
        ]
        try:
            await asyncio.wait([writing, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_gone = ends[0].done()
            for each in (writing, *ends):
                each.cancel()
            await asyncio.wait([writing, *ends])
            # The last poll counts as done only where all of it could be written.
            await asyncio.shield(reader.close(is_done=False))
        if not is_gone and self._has_begun:
            await send({"type": "http.response.body", "body": _failure_of(writing), "more_body": False})

    async def _write(self, reader: Reader, send: Send) -> None:
        settings = self._gateway.settings
        await self._send(send, _START)
        self._has_begun = True
        await self._send(send, _body(f"retry: {_RETRY_MS}\n\n".encode()))
        while True:
            records = await reader.poll(settings.ping_ms)
            if not records:
                await self._send(send, _body(b": still here\n\n"))
                continue
            await self._shown.prepare(records)
            for piece in pieces(self._shown, reader, records):
                await self._send(send, _body(piece))

    async def _send(self, send: Send, message: Message) -> None:
        async with asyncio.timeout(self._gateway.settings.reader_stall_ms / 1000):
            await send(message)


_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        (b"x-content-type-options", b"nosniff"),
    ],
}


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


def pieces(shown: Shown, reader: Reader, records: Records) -> Iterator[bytes]:
    """The events of one poll, some at a time. The id of each is the place behind it and behind everything before."""
    places = dict(reader.places)
    for where, found in records.items():
        places[where.partition] = found[0].offset
    is_short = len(places) <= _PLACES_IN_EACH_MAX
    parts: list[bytes] = []
    size = 0
    for where, found in records.items():
        last = found[-1].offset
        for record in found:
            data = show(where, record, shown)
            if is_short or record.offset == last:
                places[where.partition] = record.offset + 1
                data = f"id: {write_places(places)}\ndata: {data}\n\n"
            else:
                data = f"data: {data}\n\n"
            part = data.encode("utf-8", "backslashreplace")
            parts.append(part)
            size += len(part)
            if size >= _PIECE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)


def _failure_of(writing: asyncio.Future[None]) -> bytes:
    """What ended it, as an event: what is going on is known by now, and no status can tell any more."""
    error = None if writing.cancelled() else writing.exception()
    if isinstance(error, KafkaError | GatewayError):
        document = (of_kafka(error) if isinstance(error, KafkaError) else error).document()
    elif isinstance(error, TimeoutError) or error is None:
        return b""  # It reads nothing, or the gateway ends: the client comes back.
    else:
        document = {"error_code": 500, "message": f"Internal Server Error: {type(error).__name__}"}
    return f"event: error\ndata: {json.dumps(document)}\n\n".encode()


async def _wait_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


OPERATIONS = (
    Operation(
        "GET",
        "/topics/{topic_name}/events",
        _events,
        "Records as they come, as server-sent events",
        query=QUERY,
        gives=EVENT_STREAM,
    ),
)

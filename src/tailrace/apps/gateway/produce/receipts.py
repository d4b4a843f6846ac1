"""A stream of records answered by a stream of receipts, in the same order, while both are open.

Two tasks: one reads records and hands them over, the other tells what became of them. Between them stands a short
queue: who does not read receipts is not read from either. The status of the answer waits for the first receipt, so
that a request with which nothing can be begun is refused by it; after that it is 200, and each receipt has a code.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tailrace.apps.gateway.errors import GatewayError, bad_field
from tailrace.apps.gateway.produce.json_stream import JsonStream
from tailrace.apps.gateway.produce.records import NewRecord, Part, ReadV3
from tailrace.apps.gateway.produce.sending import Sending, Sent, iso_time, outcome_of
from tailrace.apps.gateway.web import refusal
from tailrace.client.producer import Delivered
from tailrace.model import events

_log = events.logger("gateway")
# Each is what one piece of the body had, up to 64 KB as servers hand them on.
_PIECES_MAX = 16
# With which each receipt ends, as Confluent's proxy writes it.
_END = b"\r\n"

Entry = tuple[Sent, NewRecord | None]


class ReceiptStream(Response):
    def __init__(self, sending: Sending, read: ReadV3, cluster_id: str, record_max_bytes: int) -> None:
        super().__init__()
        self._sending = sending
        self._read_record = read
        self._record_max_bytes = record_max_bytes
        self._writer = ReceiptWriter(cluster_id, sending.topic)
        # None: that was all. A GatewayError: the stream cannot be read any further.
        self._queue: asyncio.Queue[list[Entry] | GatewayError | None] = asyncio.Queue(_PIECES_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._sending.caller.in_use():
            reading = asyncio.ensure_future(self._supervise(receive))
            try:
                await self._answer(scope, receive, send)
            finally:
                reading.cancel()
                await asyncio.wait([reading])

    async def _supervise(self, receive: Receive) -> None:
        try:
            await self._read(receive)
        except Exception as error:  # A bug must end the answer, not leave it open for ever.
            _log.error("a stream of records has failed", topic=self._sending.topic, trace=error)
            await self._queue.put(GatewayError(500, 500, "Internal Server Error: see the log of the gateway"))

    async def _read(self, receive: Receive) -> None:
        objects = JsonStream(self._record_max_bytes)
        while True:
            message = await receive()
            # Without the other side, what was handed over is on its way all the same, and nobody has to be told.
            is_last = message["type"] == "http.disconnect" or not message.get("more_body", False)
            documents = objects.feed(message.get("body", b""), is_last=is_last)
            if documents:
                await self._queue.put([await self._send(each) for each in documents])
            if is_last or objects.failure is not None:
                await self._queue.put(objects.failure)
                return

    async def _send(self, document: dict[str, Any]) -> Entry:
        try:
            record = await self._read_record(document)
        except GatewayError as error:
            return error, None
        return await self._sending.send(record), record

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        entries = await self._queue.get()
        if entries is None:
            entries = bad_field("Request body is empty. Data is required.")
        if isinstance(entries, GatewayError):
            await refusal(entries)(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"x-content-type-options", b"nosniff")]
        started = False
        while isinstance(entries, list):
            parts: list[bytes] = []
            for sent, record in entries:
                if parts and isinstance(sent, asyncio.Future) and not sent.done():
                    started = await _pass_on(send, parts, None if started else headers)
                parts.append(self._writer.receipt(await outcome_of(sent), record))
            started = await _pass_on(send, parts, None if started else headers)
            entries = await self._queue.get()
        last = b"" if entries is None else json.dumps(entries.document()).encode() + _END
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def _pass_on(send: Send, parts: list[bytes], headers: Any) -> bool:
    if headers is not None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})
    parts.clear()
    return True


class ReceiptWriter:
    """Receipts as JSON, written by hand: there is one for each record."""

    def __init__(self, cluster_id: str, topic: str) -> None:
        where = json.dumps({"cluster_id": cluster_id, "topic_name": topic}, separators=(",", ":"))[1:-1]
        self._middle = f'{where},"partition_id":'

    def receipt(self, outcome: Delivered | dict[str, Any], record: NewRecord | None) -> bytes:
        if isinstance(outcome, dict):
            return json.dumps(outcome, separators=(",", ":")).encode() + _END
        assert record is not None, "it was sent"
        return f'{{"error_code":200,{self.fields(outcome, record)}}}\r\n'.encode()

    def fields(self, place: Delivered, record: NewRecord) -> str:
        text = f'{self._middle}{place.partition.partition},"offset":{place.offset}'
        text += f',"timestamp":"{iso_time(place.timestamp)}"'
        if record.key_part is not None:
            text += f',"key":{_part(record.key_part)}'
        if record.value_part is not None:
            text += f',"value":{_part(record.value_part)}'
        return text


def _part(part: Part) -> str:
    if part.subject is None and part.schema_id is None:
        return f'{{"type":"{part.type}","size":{part.size}}}'
    return json.dumps({name: found for name, found in part._asdict().items() if found is not None})

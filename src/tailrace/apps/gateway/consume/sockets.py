"""A topic over a WebSocket: one text a record, `{"id": ..., "topic": ..., ...}`.

In a group a record is done when the other side says so: `{"ack": {"partition": 0, "offset": 15}}`, which counts for
everything before it in that partition too. With `reader.unacknowledged.max` records not acknowledged nothing more is
sent. Alone there is nothing to acknowledge. A failure is told as `{"error_code": ..., "message": ...}` before the
close.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tailrace.apps.gateway.consume.asking import read_shown, read_wanted
from tailrace.apps.gateway.consume.places import write_places
from tailrace.apps.gateway.consume.reading import Member, Reader, open_reader
from tailrace.apps.gateway.consume.shown import Shown, show
from tailrace.apps.gateway.errors import GatewayError, of_kafka
from tailrace.apps.gateway.web import Gateway, check_origin
from tailrace.model import events
from tailrace.model.errors import KafkaError

_log = events.logger("gateway")
SOCKET_PATH = "/topics/{topic_name}/socket"
# RFC 6455: what was asked is refused; the server is going; the server has failed.
_REFUSED, _GOING, _FAILED = 1008, 1001, 1011


def socket_route(gateway: Gateway) -> WebSocketRoute:
    async def endpoint(socket: WebSocket) -> None:
        try:
            check_origin(socket, gateway.settings)
            caller = await gateway.callers.enter(socket.headers)
            from urllib.parse import unquote

            wanted = read_wanted(socket, unquote(socket.path_params["topic_name"]), acknowledges=True)
            shown = read_shown(socket, lambda: gateway.schemas(caller).opener)
            with gateway.readers.place(caller):
                reader = await open_reader(caller.open_cluster, wanted, gateway.settings)
                await _Session(gateway, socket, reader, shown).run()
        except (GatewayError, KafkaError) as error:
            await _refuse(socket, of_kafka(error) if isinstance(error, KafkaError) else error)

    return WebSocketRoute(SOCKET_PATH, endpoint)


async def _refuse(socket: WebSocket, error: GatewayError) -> None:
    """Before it is accepted, with an HTTP status; some servers can say no more than 403 then."""
    from starlette.responses import Response

    body = json.dumps(error.document())
    await socket.send_denial_response(
        Response(body, error.status, headers=error.headers, media_type="application/json")
    )


class _Session:
    def __init__(self, gateway: Gateway, socket: WebSocket, reader: Reader, shown: Shown) -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._socket = socket
        self._reader = reader
        self._shown = shown
        self._acknowledged = asyncio.Event()

    async def run(self) -> None:
        tasks: list[asyncio.Future[Any]] = []
        try:
            await self._socket.accept()
            tasks = [
                asyncio.ensure_future(self._write()),
                asyncio.ensure_future(self._listen()),
                asyncio.ensure_future(self._gateway.readers.stopping.wait()),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended = [each for each in tasks if each.done()]
            for each in tasks:
                each.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await asyncio.shield(self._reader.close(is_done=False))
        await self._say_why(ended[0])

    async def _write(self) -> None:
        while True:
            if isinstance(self._reader, Member):
                await self._wait_acknowledged(self._reader)
            records = await self._reader.poll(self._settings.commit_interval_ms)
            await self._shown.prepare(records)
            places = dict(self._reader.places)
            for where, found in records.items():
                places[where.partition] = found[0].offset
            for where, found in records.items():
                for record in found:
                    places[where.partition] = record.offset + 1
                    text = f'{{"id":"{write_places(places)}",{show(where, record, self._shown)[1:]}'
                    async with asyncio.timeout(self._settings.reader_stall_ms / 1000):
                        await self._socket.send_text(text)

    async def _wait_acknowledged(self, member: Member) -> None:
        """Whoever acknowledges nothing for long is not at work: others get its partitions."""
        async with asyncio.timeout(self._settings.reader_stall_ms / 1000):
            while member.unacknowledged >= self._settings.reader_unacknowledged_max:
                self._acknowledged.clear()
                await self._acknowledged.wait()

    async def _listen(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            partition, offset = _read_acknowledgement(message.get("text"))
            if not isinstance(self._reader, Member):
                raise GatewayError(400, 400, "there is nothing to acknowledge: this reader is in no group")
            try:
                self._reader.acknowledge(partition, offset)
            except ValueError as error:
                raise GatewayError(400, 400, str(error)) from None
            self._acknowledged.set()

    async def _say_why(self, ended: asyncio.Future[Any]) -> None:
        error = ended.exception() if not ended.cancelled() else None
        code = _GOING
        document: dict[str, Any] | None = None
        if isinstance(error, GatewayError | KafkaError):
            refusal = of_kafka(error) if isinstance(error, KafkaError) else error
            document = refusal.document()
            code = _REFUSED if isinstance(error, GatewayError) and refusal.status < 500 else _FAILED
        elif isinstance(error, TimeoutError):
            document = {"error_code": 408, "message": "Nothing was taken or acknowledged for reader.stall.ms"}
            code = _REFUSED
        elif error is not None and not isinstance(error, WebSocketDisconnect):
            _log.error("a socket has failed", trace=error)
            document, code = (
                {"error_code": 500, "message": "Internal Server Error: see the log of the gateway"},
                _FAILED,
            )
        try:
            async with asyncio.timeout(1):
                if document is not None:
                    await self._socket.send_text(json.dumps(document))
                await self._socket.close(code)
        except (RuntimeError, TimeoutError, WebSocketDisconnect):
            pass  # It has gone already.


def _read_acknowledgement(text: str | None) -> tuple[int, int]:
    try:
        found = json.loads(text or "")["ack"]
        partition, offset = found["partition"], found["offset"]
    except (ValueError, KeyError, TypeError, RecursionError):
        partition = offset = None
    if not isinstance(partition, int) or not isinstance(offset, int):
        raise GatewayError(400, 400, 'a message is {"ack": {"partition": 0, "offset": 15}}')
    return partition, offset

"""How an application is, by HTTP, for whoever watches over its process.

    GET /health/live     503 while a handler runs for too long: only a restart ends a thread that hangs
    GET /health/ready    503 until every handler has been taken into its group, and again at a stop
    GET /status          numbers and lag, as JSON

It answers one request on a connection, and nothing but GET.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

Answer = Callable[[], Awaitable[tuple[bool, Any]]]

_REQUEST_BYTES_MAX = 8192
_REQUEST_S = 5.0
_CONNECTIONS_MAX = 32


class ProbeServer:
    """`start` it, and `close` it at the end."""

    def __init__(self, answers: Mapping[str, Answer], *, host: str, port: int) -> None:
        self._answers = answers
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=_REQUEST_BYTES_MAX)

    @property
    def port(self) -> int:
        assert self._server is not None, "it was started"
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_REQUEST_S):
                    await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_REQUEST_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(await self._answer(head.split(b"\r\n", 1)[0]))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # Whoever asks so is not answered.
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        words = line.decode("latin-1").split(" ")
        path = words[1].partition("?")[0] if len(words) == 3 else ""
        if words[0] != "GET" or path not in self._answers:
            known = ", ".join(self._answers)
            return _response("404 Not Found", {"error": f"ask for GET {known}"})
        is_well, content = await self._answers[path]()
        return _response("200 OK" if is_well else "503 Service Unavailable", content)


def _response(status: str, content: Any) -> bytes:
    body = json.dumps(content).encode() + b"\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"{head}\r\n\r\n".encode() + body

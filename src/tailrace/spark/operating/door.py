"""A port that tells how the pipelines of this process do: GET and HEAD, one request a connection.

At most PLACES_MAX ask at a time, and each has a few seconds for all of it; where all places are taken the oldest gives
way, so that nobody who holds connections shuts a scheduler's probe out. Who may ask is decided by the address alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple

from tailrace.model.metrics.text import PROMETHEUS_TYPE
from tailrace.real.runs.status import RunStatus, as_table
from tailrace.spark.operating.metrics import is_ready, metrics_text

PLACES_MAX = 64
_REQUEST_S = 5.0
_HEAD_MAX_BYTES = 8 * 1024
_PLAIN = "text/plain; charset=utf-8"
_PATHS = "/metrics  /health/live  /health/ready  /status\n"


class Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    text: str


def answer(path: str, runs: Sequence[RunStatus]) -> Answer:
    match path:
        case "/metrics":
            return Answer(HTTPStatus.OK, PROMETHEUS_TYPE, metrics_text(runs))
        case "/health/live":
            return Answer(HTTPStatus.OK, _PLAIN, "alive\n")
        case "/health/ready":
            status = HTTPStatus.OK if is_ready(runs) else HTTPStatus.SERVICE_UNAVAILABLE
            return Answer(status, _PLAIN, "".join(f"{run.name}: {_state_text(run)}\n" for run in runs))
        case "/status":
            return Answer(HTTPStatus.OK, "application/json", json.dumps([as_table(run) for run in runs]) + "\n")
        case "/":
            return Answer(HTTPStatus.OK, _PLAIN, _PATHS)
    return Answer(HTTPStatus.NOT_FOUND, _PLAIN, f"there is {_PATHS}")


def _state_text(run: RunStatus) -> str:
    return f"{run.state.value} ({run.problem})" if run.problem else run.state.value


class Door:
    """Of one event loop."""

    def __init__(self, runs: Callable[[], Sequence[RunStatus]]) -> None:
        self._runs = runs
        self._asking: dict[asyncio.Task[None], None] = {}
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> str:
        """Gives the URL. Raises OSError."""
        self._server = await asyncio.start_server(self._take, host, port, limit=_HEAD_MAX_BYTES)
        found = self._server.sockets[0].getsockname()
        return f"http://{f'[{found[0]}]' if ':' in found[0] else found[0]}:{found[1]}"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for each in self._asking:
            each.cancel()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._asking) >= PLACES_MAX:
            next(iter(self._asking)).cancel()
        self._asking[task] = None
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answered(head))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except asyncio.CancelledError:
            pass  # It gave way.
        finally:
            self._asking.pop(task, None)
            with suppress(OSError):
                writer.close()

    def _answered(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        if method in ("GET", "HEAD"):
            found = answer(rest.partition(" ")[0].partition("?")[0], self._runs())
        else:
            found = Answer(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, "only GET and HEAD are answered here\n")
        body = found.text.encode()
        lines = [
            f"HTTP/1.1 {found.status.value} {found.status.phrase}",
            f"Content-Type: {found.content_type}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if method == "HEAD" else body)

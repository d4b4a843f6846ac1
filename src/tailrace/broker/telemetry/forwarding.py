"""Metrics of clients handed on to a collector, by OTLP over HTTP: as they came, and with who the client is.

What clients push (MetricsData) has the same bytes as what a collector takes (ExportMetricsServiceRequest). Who the
client is becomes part of each resource: a second resource behind the first, which every reader of protobuf merges.
One request at a time, in a helper thread. What waits is bounded in bytes; what a collector does not take is not sent
again, since the next push of that client tells more than it did.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from tailrace.controller.telemetry.subscriptions import Client
from tailrace.model import events
from tailrace.model.ports import WebQuestion

if TYPE_CHECKING:
    from tailrace.model.ports import Background, Clock, Web

_log = events.logger("telemetry")

_TIMEOUT_MS = 10_000
_ANSWER_MAX_BYTES = 1 << 16
_TELL_EVERY_MS = 60_000.0
_CONTENT_TYPE = "application/x-protobuf"


class OtlpForwarding:
    def __init__(self, endpoint: str, web: Web, background: Background, clock: Clock, *, queued_max_bytes: int) -> None:
        self._endpoint = endpoint
        self._web = web
        self._background = background
        self._clock = clock
        self._queued_max_bytes = queued_max_bytes
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._told_ms = float("-inf")
        self.sent = 0
        self.failed = 0
        self.left_out = 0

    def put(self, data: bytes, client: Client) -> None:
        """`data` has been read once: it is what it should be."""
        if self._queued_bytes + len(data) > self._queued_max_bytes:
            self.left_out += 1
            return
        body = _with_client(data, client)
        self._queue.append(body)
        self._queued_bytes += len(body)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        while self._queue:
            body = self._queue.popleft()
            question = WebQuestion(
                self._endpoint, _TIMEOUT_MS, _ANSWER_MAX_BYTES, form=body, content_type=_CONTENT_TYPE
            )
            try:
                await self._background.run(lambda asked=question: self._web.ask(asked))  # type: ignore[misc]
                self.sent += 1
            except OSError as error:
                self.failed += 1
                self._tell(error)
            self._queued_bytes -= len(body)

    def _tell(self, error: OSError) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms >= _TELL_EVERY_MS:
            self._told_ms = now_ms
            _log.warning("a collector did not take clients' metrics", endpoint=self._endpoint, cause=error)


def _with_client(data: bytes, client: Client) -> bytes:
    from tailrace.broker.telemetry.otlp import each_message

    attributes = b"".join(
        _message(1, _message(1, f"{key}".encode()) + _message(2, _message(1, value.encode(errors="replace"))))
        for key, value in client._asdict().items()
        if value
    )
    resource = _message(1, attributes)
    return b"".join(_message(1, bytes(each) + resource) for each in each_message(data, 1))


def _message(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))

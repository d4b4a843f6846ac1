"""The request log `tailrace.requests`: single requests with what they took, one line each (INFO).

    request.log.client.ids      every request of these clients
    request.log.sample.every    one request in so many, of all clients
    request.log.slow.ms         every request that took so long, of all clients

All three are off unless they are set, and may change while the broker runs; then small produces take the long way, so
that they are seen. A second has at most `request.log.max.lines.per.second` lines. No keys, no values, no secrets.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tailrace.broker.logs.gate import Gate
from tailrace.broker.serving.measuring import Measurement, Timer
from tailrace.controller.effective import broker_config
from tailrace.model import events
from tailrace.model.errors import ErrorCode
from tailrace.wire import apis

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.broker.context import RequestContext
    from tailrace.controller.image import MetadataImage
    from tailrace.model.config import BrokerConfig
    from tailrace.model.ports import Clock

_log = events.logger("requests")


class RequestLog:
    def __init__(self, config: BrokerConfig, clock: Clock, on_change: Callable[[], None]) -> None:
        self._static = config
        self._clock = clock
        self._on_change = on_change
        self._gate = Gate(clock, _log)
        self._seen = 0
        self._take(config)

    def follow_image(self, old: MetadataImage, new: MetadataImage) -> None:
        if old.configs is not new.configs:
            self._take(broker_config(self._static, new))

    def _take(self, config: BrokerConfig) -> None:
        was_on = getattr(self, "is_on", False)
        self._client_ids = frozenset(config.request_log_client_ids)
        self._sample_every = config.request_log_sample_every
        self._slow_ms = config.request_log_slow_ms
        self._lines_max = config.request_log_max_lines_per_second
        self.is_on = bool(self._client_ids or self._sample_every or self._slow_ms)
        if was_on != self.is_on:
            self._on_change()

    def follow(self, context: RequestContext, timer: Timer | None, received_bytes: int) -> None:
        """Once the request is over it is told, if it is one of those; then the meters have its time as well."""
        self._seen += 1
        is_wanted = context.client_id in self._client_ids or (
            self._sample_every > 0 and self._seen % self._sample_every == 0
        )
        if is_wanted or self._slow_ms:
            tell = partial(self._tell, context, received_bytes, is_wanted)
            context.measurement = Measurement(self._clock, timer, tell)

    def _tell(self, context: RequestContext, received_bytes: int, is_wanted: bool, taken: Measurement) -> None:
        # Of a request that was answered at once only that is noted.
        handled_ms = taken.answered_ms if taken.handled_ms is None else taken.handled_ms
        total_ms = taken.sent_ms - taken.began_ms
        is_slow = bool(self._slow_ms) and total_ms >= self._slow_ms
        if not (is_wanted or is_slow) or not self._gate.is_open(self._lines_max):
            return
        errors = ",".join(f"{ErrorCode(code).name} x{count}" for code, count in sorted(taken.errors.items()))
        _log.info(
            "slow request" if is_slow else "request",
            api=apis.api_name(context.api_key),
            version=context.api_version,
            client=context.client_id,
            principal=context.principal,
            peer=context.peer,
            listener=context.listener.name,
            received_bytes=received_bytes,
            sent_bytes=taken.sent_bytes,
            total_ms=round(total_ms, 3),
            handling_ms=round(handled_ms - taken.began_ms, 3),
            parked_ms=round(taken.answered_ms - handled_ms, 3),
            sending_ms=round(taken.sent_ms - taken.answered_ms, 3),
            errors=errors or "NONE",
        )

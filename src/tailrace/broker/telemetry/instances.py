"""One client as it is known between its requests: what is wanted of it, and how often it may come.

Kafka's rules: a client asks for its subscription at most once an interval, unless it was just told that what it has is
out of date. It pushes at most once an interval; the first push after it asked is free, since clients wait for a random
part of the first interval. A last push comes at any time, and none after it.
"""

from __future__ import annotations

from tailrace.controller.telemetry.subscriptions import Client, Wanted
from tailrace.model.errors import ErrorCode

# Whoever was refused so may ask again at once.
_MAY_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_EXPIRY_MIN_MS = 60_000.0
_EXPIRY_INTERVALS = 3
_NEVER_MS = float("-inf")


class Instance:
    def __init__(self, client: Client, wanted: Wanted, version: int, now_ms: float) -> None:
        self.client = client
        self.wanted = wanted
        self.version = version  # Of the subscriptions that `wanted` was decided by.
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.seen_ms = now_ms
        self._asked_ms = _NEVER_MS
        self._pushed_ms = _NEVER_MS

    def expires_ms(self) -> float:
        return self.seen_ms + max(_EXPIRY_MIN_MS, _EXPIRY_INTERVALS * self.wanted.interval_ms)

    def may_ask(self, now_ms: float) -> bool:
        if now_ms - max(self._asked_ms, self._pushed_ms) >= self.wanted.interval_ms:
            self._asked_ms = now_ms
            return True
        return self.last_error in _MAY_ASK_AGAIN

    def may_push(self, now_ms: float) -> bool:
        if self._asked_ms > self._pushed_ms or now_ms - self._pushed_ms >= self.wanted.interval_ms:
            self._pushed_ms = now_ms
            return True
        return False

"""Whether it is worth asking a store at all. Pure: told of outcomes, asked before each call.

    closed     calls go through; `failures_max` failures in a row open it
    open       calls fail at once, for `pause_ms`, which doubles up to `pause_max_ms`
    half open  after the pause one call goes through: its success closes the circuit, its failure opens it again

A refusal (a wrong key) opens it as silence does: it too makes all calls futile, and somebody has to be told.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CircuitLimits:
    failures_max: int = 5
    pause_ms: float = 1_000.0
    pause_max_ms: float = 30_000.0


class Circuit:
    def __init__(self, limits: CircuitLimits) -> None:
        self.cause = ""  # Of the last failure; empty after a success.
        self.opened_at_ms: float | None = None  # When calls began to fail for good; None while it is closed.
        self._limits = limits
        self._failures = 0
        self._pause_ms = limits.pause_ms
        self._next_try_ms = 0.0
        self._is_trying = False

    @property
    def is_open(self) -> bool:
        return self.opened_at_ms is not None

    def may_call(self, now_ms: float) -> bool:
        """Whether a call may go out now; if it may, `succeed`, `fail` or `give_back` has to follow."""
        if self.opened_at_ms is None:
            return True
        if self._is_trying or now_ms < self._next_try_ms:
            return False
        self._is_trying = True
        return True

    def succeed(self) -> bool:
        """Whether it was open."""
        was_open = self.is_open
        self.opened_at_ms, self.cause, self._failures = None, "", 0
        self._pause_ms, self._is_trying = self._limits.pause_ms, False
        return was_open

    def fail(self, now_ms: float, cause: str) -> bool:
        """Whether it has opened by this."""
        self.cause = cause
        self._failures += 1
        if self.opened_at_ms is None:
            if self._failures < self._limits.failures_max:
                return False
            self.opened_at_ms = now_ms
            self._next_try_ms = now_ms + self._pause_ms
            return True
        if self._is_trying:
            self._is_trying = False
            self._pause_ms = min(self._pause_ms * 2, self._limits.pause_max_ms)
            self._next_try_ms = now_ms + self._pause_ms
        return False

    def give_back(self) -> None:
        """The call was cancelled, and has told nothing."""
        self._is_trying = False

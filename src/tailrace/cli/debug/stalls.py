"""Stalls of the loop, told while they last: what held it, and for which request.

A timer of the loop sets an alarm for later, again and again. If the loop does not come back in time the alarm's signal
is handled between two instructions of whatever holds it. A loop that waits in the selector has not been given time by
the machine: that is nobody's stack. Afterwards `broker.loop_lag` tells how long it was.
"""

from __future__ import annotations

import asyncio
import signal
from types import FrameType
from typing import Any

from tailrace.broker.context import RequestContext
from tailrace.cli.debug.sampling import frames, is_idle, place
from tailrace.model import events
from tailrace.wire import apis

_log = events.logger("stalls")

_STACK_SHOWN = 12


class StallWatch:
    def __init__(self, warning_ms: int) -> None:
        self._warning_seconds = warning_ms / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._before: Any = None

    def start(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._tell)
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)

    def _look(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._warning_seconds)
        self._timer = asyncio.get_running_loop().call_later(self._warning_seconds / 2, self._look)

    def _tell(self, _number: int, frame: FrameType | None) -> None:
        if is_idle(frame):
            return
        stack = list(frames(frame))
        _log.warning(
            "the event loop is held up",
            since_ms=int(self._warning_seconds * 1000),
            stack=" < ".join(place(each) for each in stack[:_STACK_SHOWN]),
            **_request(stack),
        )


def _request(stack: list[FrameType]) -> dict[str, Any]:
    """The request that is being handled, by the context that some function of the stack was given."""
    for frame in stack:
        context = frame.f_locals.get("context")
        if isinstance(context, RequestContext):
            return {"api": apis.api_name(context.api_key), "client": context.client_id, "peer": context.peer}
    return {}

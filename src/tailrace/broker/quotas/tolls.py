"""What one request has used of its client's quotas, and the time for which its connection is not read then (KIP-219).

Made only while some quota is set. Charged once, most of it when the answer is about to go out:

    time      for which it has held the loop: decoded and handled, in all steps of a task, and read again while it was
              parked. Its throttle is at most one window
    Produce   the bytes of the request, as soon as it has come: a client that hangs up before its answer has used them.
              What was pipelined behind the one that is too much is not taken before the throttle is over
    Fetch     the bytes of its answer. One that is too much is not sent, and not counted: the client gets an empty one,
              and its session stays as it was. But an answer goes out if nothing else was sent lately: it may be one
              batch that is larger than all that the quota lets pass in its windows, and would never be sent else

The longest of all throttles is told in the answer. What the active controller has told in its own counts as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tailrace.columns import Throttled

if TYPE_CHECKING:
    from tailrace.broker.context import BoundListener, RequestContext
    from tailrace.broker.quotas.meters import ClientMeters, Meters
    from tailrace.model.security import Principal

Answer = TypeVar("Answer")

# How many percent of a second a millisecond is.
_PERCENT_PER_MS = 0.1
# What each partition of an answer to Fetch takes beside its records, about.
FETCHED_PARTITION_BYTES = 60


class Toll:
    __slots__ = (
        "_began_ms",
        "_is_charged",
        "_meters",
        "_of",
        "_throttled",
        "_work_ms",
        "throttle_ms",
    )

    def __init__(self, meters: Meters, context: RequestContext, throttled: Throttled, received_bytes: int) -> None:
        self._meters = meters
        self._of: ClientMeters = meters.of(context.principal.name, context.client_id or "")
        self._throttled = throttled
        self._is_charged = False
        self._work_ms = 0.0
        self._began_ms = meters.clock.monotonic_ms()
        self.throttle_ms = 0
        if throttled is Throttled.BY_PRODUCED and self._of.produced is not None:
            self._of.produced.rate.note(received_bytes, self._began_ms)

    # ---- time

    def begin_work(self) -> None:
        self._began_ms = self._meters.clock.monotonic_ms()

    def end_work(self) -> None:
        self._work_ms += self._meters.clock.monotonic_ms() - self._began_ms

    def time(self, handling: Coroutine[Any, Any, Answer]) -> Awaitable[Answer]:
        """A handler that goes on as a task, with the time of each of its steps."""
        return _Timed(handling, self)

    # ---- Fetch

    @property
    def fetch_max_bytes(self) -> float:
        """More would be too much even if nothing else was sent in all windows."""
        if self._of.fetched is None:
            return float("inf")
        samples, size_ms = self._meters.windows
        return self._of.fetched.bound * max(1, samples - 1) * size_ms / 1000

    def admits_fetched(self, size_bytes: int) -> bool:
        """Charges an answer of that size; False if it is not to be sent."""
        now_ms = self._meters.clock.monotonic_ms()
        self._charge_time(now_ms)
        fetched = self._of.fetched
        if fetched is None or not size_bytes:
            return not self.throttle_ms
        is_first = not fetched.rate.used(now_ms)
        fetched_ms = fetched.charge(size_bytes, now_ms)
        self.throttle_ms = max(self.throttle_ms, fetched_ms)
        if not self.throttle_ms or is_first:
            return True
        fetched.rate.note(-size_bytes, now_ms)
        return False

    def may_fetch(self) -> bool:
        """Whether the quota of bytes lets anything pass now. For those whose answers cannot be taken back: they ask
        before, and are charged after."""
        fetched = self._of.fetched
        if fetched is not None:
            throttle_ms = fetched.rate.throttle_ms(fetched.bound, self._meters.clock.monotonic_ms())
            self.throttle_ms = max(self.throttle_ms, throttle_ms)
        return not self.throttle_ms

    def charge_fetched(self, size_bytes: int) -> None:
        now_ms = self._meters.clock.monotonic_ms()
        self._charge_time(now_ms)
        if self._of.fetched is not None and size_bytes:
            self.throttle_ms = max(self.throttle_ms, self._of.fetched.charge(size_bytes, now_ms))

    # ---- all

    def taken_ms(self) -> int:
        """For how long nothing more is to be taken, of a request that will be answered later."""
        produced = self._of.produced if self._throttled is Throttled.BY_PRODUCED else None
        return 0 if produced is None else produced.rate.throttle_ms(produced.bound, self._meters.clock.monotonic_ms())

    def settle(self, answer: Any = None) -> int:
        """Charges what is not charged yet. Tells the answer, if there is one, and the caller for how long the client is
        throttled."""
        now_ms = self._meters.clock.monotonic_ms()
        self._charge_time(now_ms)
        if self._throttled is Throttled.BY_PRODUCED and self._of.produced is not None:
            produced, bound = self._of.produced
            self.throttle_ms = max(self.throttle_ms, produced.throttle_ms(bound, now_ms))
        if hasattr(answer, "throttle_time_ms"):
            self.throttle_ms = answer.throttle_time_ms = max(self.throttle_ms, answer.throttle_time_ms)
        return self.throttle_ms

    def _charge_time(self, now_ms: float) -> None:
        if not self._is_charged:
            self._is_charged = True
            self.throttle_ms = max(self.throttle_ms, _charge_time(self._meters, self._of, self._work_ms, now_ms))


class ThrottledClient(Protocol):
    """The connection of a client."""

    @property
    def peer(self) -> str: ...

    @property
    def listener(self) -> BoundListener: ...

    @property
    def principal(self) -> Principal: ...

    @property
    def is_muted(self) -> bool: ...

    def mute(self, throttle_ms: int) -> None: ...


class RunToll:
    """Of produces that are taken together. Only their sum is charged."""

    __slots__ = ("_began_ms", "_client", "_meters", "_of", "received_bytes")

    def __init__(self, meters: Meters, client: ThrottledClient, client_id: str) -> None:
        self._meters = meters
        self._client = client
        is_exempt = client.listener.name == meters.exempt_listener
        self._of = None if is_exempt else meters.of(client.principal.name, client_id)
        self._began_ms = meters.clock.monotonic_ms()
        self.received_bytes = 0

    @property
    def takes_several(self) -> bool:
        """One at a time where there is a quota: the next may have to wait."""
        return self._of is None or (self._of.produced is None and self._of.time is None)

    def settle(self) -> int:
        """Mutes the connection; tells what is to be told in the answers."""
        meters, used = self._meters, self._of
        if used is None:
            return 0
        now_ms = meters.clock.monotonic_ms()
        throttle_ms = _charge_time(meters, used, now_ms - self._began_ms, now_ms)
        if used.produced is not None:
            throttle_ms = max(throttle_ms, used.produced.charge(self.received_bytes, now_ms))
        self._client.mute(throttle_ms)
        return throttle_ms


def _charge_time(meters: Meters, client: ClientMeters, work_ms: float, now_ms: float) -> int:
    if client.time is None:
        return 0
    return min(client.time.charge(work_ms * _PERCENT_PER_MS, now_ms), int(meters.windows.size_ms))


class _Timed(Generic[Answer]):
    """Awaits a coroutine step by step."""

    def __init__(self, handling: Coroutine[Any, Any, Answer], toll: Toll) -> None:
        self._handling = handling
        self._toll = toll

    def __await__(self) -> Generator[Any, Any, Answer]:
        handling, toll = self._handling, self._toll
        send: Callable[[Any], Any] = handling.send
        value: Any = None
        while True:
            toll.begin_work()
            try:
                waits_for = send(value)
            except StopIteration as stop:
                answer: Answer = stop.value
                return answer
            finally:
                toll.end_work()
            send = handling.send
            try:
                value = yield waits_for
            except BaseException as error:  # Cancelled, most often: it is the handler's to see.
                send, value = handling.throw, error

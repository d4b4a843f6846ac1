"""What requests have taken, by API and version. Raised on their way, so all of it is integers and fixed lists.

A request is counted when its answer is known, one of the express lane when it is written. Times are a sample: of one
request in about `metrics.request.sample.every`, and one run of the express lane in `metrics.express.sample.every`. Such
a time stands for all since the one before, and the last for those after it once somebody asks: so histograms have as
many times as there were requests, but for answers that are being sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.broker.serving.measuring import Errors, Measurement
from tailrace.model.metrics.instruments import Histogram, Window
from tailrace.model.ports import Clock

# Quantiles are those of the last minute, to a quarter of it.
WINDOW_TICKS = 4
WINDOW_TICK_SECONDS = 15.0
# Of each API and version the first so many between two ticks have their time taken, all of them.
TIMED_EACH_TICK = 1000


class ApiTimes:
    """Of one API, all versions together."""

    def __init__(self) -> None:
        self.total, self.handling, self.parked, self.sending = (Histogram() for _ in range(4))
        self.windows = {
            name: Window(histogram, WINDOW_TICKS)
            for name, histogram in (
                ("total", self.total),
                ("handling", self.handling),
                ("parked", self.parked),
                ("sending", self.sending),
            )
        }
        self.errors: dict[int, int] = {}  # By code. Bounded by those that there are.
        self.faultless = 0  # Requests without any.
        self.received_bytes = 0
        self.sent_bytes = 0

    def add_errors(self, errors: Errors) -> None:
        for code, count in errors.items():
            self.errors[code] = self.errors.get(code, 0) + count


class Gaps:
    """How many requests there are from one whose time is taken to the next: one, for the first few of each tick, so
    that rare requests are all seen; then by chance, so that no client's pattern is always met at the same place."""

    __slots__ = ("_every", "_left", "_state")

    def __init__(self, every: int) -> None:
        self._every = every
        self._state = every  # Of a generator of our own: a run that is repeated chooses the same.
        self._left = 0
        self.refill()

    def refill(self) -> None:
        self._left = TIMED_EACH_TICK

    def next(self) -> int:
        if self._left:
            self._left -= 1
            return 1
        self._state = (self._state * 1103515245 + 12345) & 0x7FFFFFFF
        return 1 + (self._state >> 8) % (2 * self._every - 1)


class Meter:
    """Of one API in one version."""

    __slots__ = (
        "_gaps",
        "_last",
        "_run_gaps",
        "_timed",
        "_until_timed_run",
        "requests",
        "times",
        "until_timed",
    )

    def __init__(self, times: ApiTimes, sample_every: int, express_sample_every: int) -> None:
        self.times = times
        self.requests = 0
        self._gaps, self._run_gaps = Gaps(sample_every), Gaps(express_sample_every)
        self.until_timed = self._until_timed_run = 1  # The first one's time is taken.
        self._timed = 0  # Requests for which a time stands, or is expected.
        self._last: Measurement | None = None

    def count(self, received_bytes: int, sent_bytes: int, errors: Errors) -> None:
        times = self.times
        self.requests += 1
        times.received_bytes += received_bytes
        times.sent_bytes += sent_bytes
        if errors:
            times.add_errors(errors)
        else:
            times.faultless += 1

    # ---- times

    def begin(self, clock: Clock) -> Measurement:
        """Of the request that is taken now; called when `until_timed` has come to 0."""
        self.until_timed = self._gaps.next()
        return Measurement(clock, self)

    def expect(self) -> None:
        self._timed += 1

    def give_up(self) -> None:
        self._timed -= 1

    def measure(self, measured: Measurement) -> None:
        """It stands for itself, and for those since the one before."""
        self._last = measured
        self._add(measured, 1 + self.requests - self._timed)
        self._timed = self.requests

    def settle(self) -> None:
        """The last time stands for those since then, too: now all requests that were answered have one."""
        if self._last is not None and self.requests > self._timed:
            self._add(self._last, self.requests - self._timed)
            self._timed = self.requests

    def refill(self) -> None:
        self._gaps.refill()
        self._run_gaps.refill()

    def _add(self, measured: Measurement, weight: int) -> None:
        times, handled = self.times, measured.answered_ms if measured.handled_ms is None else measured.handled_ms
        times.handling.add(handled - measured.began_ms, weight)
        times.parked.add(measured.answered_ms - handled, weight)
        times.sending.add(measured.sent_ms - measured.answered_ms, weight)
        times.total.add(measured.sent_ms - measured.began_ms, weight)

    # ---- runs of the express lane

    def sample(self, clock: Clock) -> Measurement | None:
        self._until_timed_run -= 1
        if self._until_timed_run:
            return None
        self._until_timed_run = self._run_gaps.next()
        return Measurement(clock, None, self._measure_run)

    def _measure_run(self, measured: Measurement) -> None:
        self._last = measured
        self.settle()

    def note_run(self, count: int, received_bytes: int) -> None:
        self.requests += count
        self.times.faultless += count
        self.times.received_bytes += received_bytes

    def note_answers(self, sent_bytes: int, codes: list[int]) -> None:
        self.times.sent_bytes += sent_bytes
        if codes:
            self.note_errors(codes)

    def note_answer(self, sent_bytes: int, errors: Errors) -> None:
        self.times.sent_bytes += sent_bytes
        if errors:
            self.times.faultless -= 1
            self.times.add_errors(errors)

    def note_errors(self, codes: Iterable[int]) -> None:
        errors = self.times.errors
        for code in codes:
            errors[code] = errors.get(code, 0) + 1
            self.times.faultless -= 1


class RequestMeters:
    def __init__(self, *, sample_every: int, express_sample_every: int) -> None:
        self.sample_every = sample_every
        self.express_sample_every = express_sample_every
        # Bounded by the catalogue: made for what is served alone.
        self.by_version: dict[tuple[int, int], Meter] = {}
        self.by_api: dict[int, ApiTimes] = {}

    def of(self, api_key: int, version: int) -> Meter:
        meter = self.by_version.get((api_key, version))
        if meter is None:
            times = self.by_api.setdefault(api_key, ApiTimes())
            meter = self.by_version[api_key, version] = Meter(times, self.sample_every, self.express_sample_every)
        return meter

    def requests_of(self, api_key: int) -> int:
        return sum(meter.requests for (key, _version), meter in self.by_version.items() if key == api_key)

    def settle(self) -> None:
        for meter in self.by_version.values():
            meter.settle()

    def tick(self) -> None:
        """Every WINDOW_TICK_SECONDS."""
        self.settle()
        for meter in self.by_version.values():
            meter.refill()
        for times in self.by_api.values():
            for window in times.windows.values():
                window.tick()

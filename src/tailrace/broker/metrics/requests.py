"""What requests have taken, by API and version. Raised on their way, so all of it is integers and fixed lists.

A request is counted when its answer has left, one of the express lane when it is written. There only one run in
`metrics.express.sample.every` has its time taken, which then stands for all since the one before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from tailrace.broker.serving.measuring import Errors, Measurement
from tailrace.model.metrics.instruments import TIME_BOUNDS_MS, Histogram, Window
from tailrace.model.ports import Clock

# Quantiles are those of the last minute, to a quarter of it.
WINDOW_TICKS = 4
WINDOW_TICK_SECONDS = 15.0


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


class Meter:
    """Of one API in one version."""

    __slots__ = ("_every", "_handling", "_parked", "_runs", "_sending", "_timed", "_total", "requests", "times")

    def __init__(self, times: ApiTimes, sample_every: int) -> None:
        self.times = times
        self.requests = 0
        self._every = sample_every
        self._runs = sample_every - 1  # Since the last one whose time was taken: the first one's is.
        self._timed = 0  # Requests of the express lane for which a time stands.
        self._handling, self._parked = times.handling.cells, times.parked.cells
        self._sending, self._total = times.sending.cells, times.total.cells

    def measure(self, measured: Measurement) -> None:
        """Without the calls of `Histogram.add`: they would take as long as all the rest."""
        times = self.times
        self.requests += 1
        self._timed += 1
        times.received_bytes += measured.received_bytes
        times.sent_bytes += measured.sent_bytes
        if measured.errors:
            times.add_errors(measured.errors)
        else:
            times.faultless += 1
        began, handled, answered, sent = measured.began_ms, measured.handled_ms, measured.answered_ms, measured.sent_ms
        if handled is None:
            handled = answered
            self._parked[0] += 1
        else:
            times.parked.add(answered - handled)
        cells = self._handling
        cells[bisect_left(TIME_BOUNDS_MS, handled - began)] += 1
        cells[-1] += handled - began
        cells = self._sending
        cells[bisect_left(TIME_BOUNDS_MS, sent - answered)] += 1
        cells[-1] += sent - answered
        cells = self._total
        cells[bisect_left(TIME_BOUNDS_MS, sent - began)] += 1
        cells[-1] += sent - began

    # ---- runs of the express lane

    def sample(self, clock: Clock) -> Measurement | None:
        self._runs += 1
        if self._runs < self._every:
            return None
        self._runs = 0
        return Measurement(self._measure_run, clock)

    def _measure_run(self, measured: Measurement) -> None:
        weight, self._timed = self.requests - self._timed, self.requests
        times, handled = self.times, measured.answered_ms if measured.handled_ms is None else measured.handled_ms
        times.handling.add(handled - measured.began_ms, weight)
        times.parked.add(measured.answered_ms - handled, weight)
        times.sending.add(measured.sent_ms - measured.answered_ms, weight)
        times.total.add(measured.sent_ms - measured.began_ms, weight)

    def note_run(self, count: int, received_bytes: int) -> None:
        self.requests += count
        self.times.faultless += count
        self.times.received_bytes += received_bytes

    def note_answers(self, sent_bytes: int, codes: list[int]) -> None:
        self.times.sent_bytes += sent_bytes
        if codes:
            self.note_errors(codes)

    def note_errors(self, codes: Iterable[int]) -> None:
        errors = self.times.errors
        for code in codes:
            errors[code] = errors.get(code, 0) + 1
            self.times.faultless -= 1


class RequestMeters:
    def __init__(self, *, express_sample_every: int) -> None:
        self.express_sample_every = express_sample_every
        # Bounded by the catalogue: made for what is served alone.
        self.by_version: dict[tuple[int, int], Meter] = {}
        self.by_api: dict[int, ApiTimes] = {}

    def of(self, api_key: int, version: int) -> Meter:
        meter = self.by_version.get((api_key, version))
        if meter is None:
            times = self.by_api.setdefault(api_key, ApiTimes())
            meter = self.by_version[api_key, version] = Meter(times, self.express_sample_every)
        return meter

    def requests_of(self, api_key: int) -> int:
        return sum(meter.requests for (key, _version), meter in self.by_version.items() if key == api_key)

    def tick(self) -> None:
        """Every WINDOW_TICK_SECONDS."""
        for times in self.by_api.values():
            for window in times.windows.values():
                window.tick()

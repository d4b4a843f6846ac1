"""What requests have taken, by API and version. Raised on their way, so all of it is integers and fixed lists.

A request is counted when its answer has left, one of the express lane when it is written. There only one run in
`metrics.express.sample.every` has its time taken, which then stands for all since the one before.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.broker.serving.measuring import Measurement
from tailrace.model.metrics.instruments import Histogram, Window
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


class Meter:
    """Of one API in one version."""

    __slots__ = ("_every", "_runs", "_timed", "requests", "times")

    def __init__(self, times: ApiTimes, sample_every: int) -> None:
        self.times = times
        self.requests = 0
        self._every = sample_every
        self._runs = sample_every - 1  # Since the last one whose time was taken: the first one's is.
        self._timed = 0  # Requests of the express lane for which a time stands.

    def measure(self, measured: Measurement) -> None:
        times = self.times
        self.requests += 1
        self._timed += 1
        times.received_bytes += measured.received_bytes
        times.sent_bytes += measured.sent_bytes
        if measured.errors:
            for code, count in measured.errors.items():
                times.errors[code] = times.errors.get(code, 0) + count
        else:
            times.faultless += 1
        self._add_times(measured, 1)

    def _add_times(self, measured: Measurement, weight: int) -> None:
        times = self.times
        began, handled, answered, sent = measured.began_ms, measured.handled_ms, measured.answered_ms, measured.sent_ms
        times.handling.add(handled - began, weight)
        times.parked.add(answered - handled, weight)
        times.sending.add(sent - answered, weight)
        times.total.add(sent - began, weight)

    # ---- runs of the express lane

    def sample(self, clock: Clock) -> Measurement | None:
        self._runs += 1
        if self._runs < self._every:
            return None
        self._runs = 0
        return Measurement(self._measure_run, clock)

    def _measure_run(self, measured: Measurement) -> None:
        weight, self._timed = self.requests - self._timed, self.requests
        self._add_times(measured, weight)

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

"""What was used lately, and how long to wait until that is within a quota. Pure: told the time, in milliseconds.

The arithmetic is that of Kafka's own classes, to the millisecond, so that the same use is throttled for the same time.

    Rate     a sum over windows. The time that it is divided by is at least that of all windows but one, so that a burst
             of as much as a quota lets pass in that time is free
    Bucket   tokens, refilled at the rate of the quota up to what all windows let pass. It may be overdrawn, and then
             nothing is given until it is paid back
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple

# Told in an int32: 24 days. A quota of a byte a second and a batch of 3 MB would be more, and the answer could not be
# written.
THROTTLE_MAX_MS = 2**31 - 1


class Windows(NamedTuple):
    samples: int
    size_ms: float


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: float) -> None:
        self.start(now_ms)

    def start(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """One sample more than there are windows is kept: the oldest of them overlaps the first window."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def note(self, value: float, now_ms: float) -> None:
        """A negative value takes back what was noted."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._windows.size_ms:
            self._current = (self._current + 1) % (self._windows.samples + 1)
            if self._current == len(samples):
                samples.append(_Sample(now_ms))
            sample = samples[self._current]
            sample.start(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: float) -> int:
        """How long to use nothing until the rate is within the bound, in units a second; 0 if it is."""
        used, window_ms = self._measure(now_ms)
        rate = used / window_ms * 1000.0
        return _throttle_ms((rate - bound) / bound * window_ms) if rate > bound else 0

    def used(self, now_ms: float) -> float:
        return self._measure(now_ms)[0]

    def _measure(self, now_ms: float) -> tuple[float, float]:
        """What was used, and in which time."""
        samples, size_ms = self._windows
        used, oldest_ms = 0.0, now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= samples * size_ms:
                sample.start(now_ms)
            used += sample.value
            oldest_ms = min(oldest_ms, sample.start_ms)
        window_ms = now_ms - oldest_ms
        missing = samples - 1 - int(window_ms / size_ms)
        if missing > 0:
            window_ms += missing * size_ms
        return used, max(window_ms, 1.0)


class Bucket:
    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = float("inf")  # It begins full, whatever its size.
        self._last_ms = 0.0

    def take(self, value: float, bound: float, now_ms: float) -> int:
        """Gives them, and tells how long to wait until what was overdrawn is paid back."""
        self._refill(bound, now_ms)
        self._tokens -= value
        return self._debt_ms(bound)

    def ask(self, value: float, bound: float, now_ms: float) -> int:
        """Gives them unless it is overdrawn already: then it tells for how long. Less than half a millisecond is no
        debt: Kafka refuses then, and says that there is nothing to wait for."""
        self._refill(bound, now_ms)
        debt_ms = self._debt_ms(bound)
        if not debt_ms:
            self._tokens -= value
        return debt_ms

    def _refill(self, bound: float, now_ms: float) -> None:
        burst = self._windows.samples * self._windows.size_ms / 1000.0 * bound
        self._tokens = min(burst, self._tokens + bound * (now_ms - self._last_ms) / 1000.0)
        self._last_ms = now_ms

    def _debt_ms(self, bound: float) -> int:
        return _throttle_ms(-self._tokens / bound * 1000.0) if self._tokens < 0 else 0


def _throttle_ms(value: float) -> int:
    """Rounded as Java does."""
    return floor(min(value, THROTTLE_MAX_MS) + 0.5)

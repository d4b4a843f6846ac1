"""From readings to alerts that begin, hold and end. Pure: it is told the time, and keeps what it needs of the past.

An alert is a rule and the labels that it was found for. It begins when the rule has held for `for_seconds`, and is over
when it has not held for `resolve_seconds`. Each is told once, and again after `repeat_seconds`. While a node cannot be
read nothing is decided about the alerts that name it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.apps.alerts.rules import Combine, Rule, Sending, Take
from tailrace.apps.scrape import Labels, Reading, Sample

UP = "up"  # Prometheus has such a series of its own.
# Of windows. What is above it has no past, and so neither increase nor trend.
_SERIES_MAX = 50_000
_POINTS_MAX = 512
_WITH_PAST = (Take.INCREASE, Take.HOURS_UNTIL_ZERO)

_Key = tuple[str, str, Labels]  # Metric, instance, labels.


@dataclass(slots=True)
class Alert:
    rule: Rule
    labels: Labels
    value: float
    since: float  # When the rule began to hold.
    held_at: float  # When it held last.
    fired_at: float | None = None
    told_at: float | None = None  # When last; None if it is still to be told.
    is_known: bool = False  # Somebody was told that it holds, and is to be told when it is over.

    @property
    def key(self) -> str:
        """The same for as long as it is the same alert, whoever tells it."""
        return ",".join((self.rule.name, *(f"{key}={value}" for key, value in sorted(self.labels))))

    @property
    def summary(self) -> str:
        values = _Lenient({"value": f"{self.value:g}", **dict(self.labels)})
        return self.rule.summary.format_map(values)


class _Lenient(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


class Notice(NamedTuple):
    alert: Alert
    is_firing: bool  # Else it is over.


class Engine:
    def __init__(self, rules: Sequence[Rule], sending: Sending) -> None:
        self.rules = rules
        self.sending = sending
        self.alerts: dict[tuple[str, Labels], Alert] = {}
        self._past: dict[_Key, deque[tuple[float, float]]] = {}
        self._windows: dict[str, float] = {}
        for rule in rules:
            if rule.take in _WITH_PAST:
                self._windows[rule.metric] = max(rule.window_seconds, self._windows.get(rule.metric, 0.0))

    @property
    def firing(self) -> list[Alert]:
        return [alert for alert in self.alerts.values() if alert.fired_at is not None]

    def step(self, now: float, readings: Sequence[Reading]) -> list[Notice]:
        """What has to be told."""
        by_name = self._samples(readings)
        missing = {each.instance for each in readings if each.samples is None}
        for rule in self.rules:
            for labels, value in self._evaluate(rule, by_name, now).items():
                if rule.holds(value):
                    alert = self.alerts.setdefault((rule.name, labels), Alert(rule, labels, value, now, now))
                    alert.value, alert.held_at = value, now
        notices = []
        for key, alert in list(self.alerts.items()):
            if dict(alert.labels).get("instance") in missing and alert.rule.metric != UP:
                alert.held_at = now  # Nobody knows: it stays as it is.
            if alert.held_at < now:
                if alert.fired_at is None or now - alert.held_at >= self.sending.resolve_seconds:
                    del self.alerts[key]
                    if alert.fired_at is not None:
                        notices.append(Notice(alert, is_firing=False))
            elif self._is_due(alert, now):
                alert.fired_at = alert.fired_at or now
                alert.told_at = now
                notices.append(Notice(alert, is_firing=True))
        return notices

    def _is_due(self, alert: Alert, now: float) -> bool:
        if alert.told_at is None:
            return now - alert.since >= alert.rule.for_seconds
        return now - alert.told_at >= self.sending.repeat_seconds

    # ---- numbers

    def _samples(self, readings: Iterable[Reading]) -> dict[str, list[tuple[Reading, Sample]]]:
        wanted = {rule.metric for rule in self.rules} | {rule.divide_by for rule in self.rules}
        found: dict[str, list[tuple[Reading, Sample]]] = {name: [] for name in wanted}
        kept = set()
        for reading in readings:
            is_up = Sample(UP, frozenset(), float(reading.samples is not None))
            for sample in (is_up, *(reading.samples or ())):
                if sample.name in wanted:
                    found[sample.name].append((reading, sample))
                if sample.name in self._windows:
                    kept.add(self._remember(reading, sample))
        missing = {each.instance for each in readings if each.samples is None}
        for key in [each for each in self._past if each not in kept and each[1] not in missing]:
            del self._past[key]
        return found

    def _remember(self, reading: Reading, sample: Sample) -> _Key:
        key = (sample.name, reading.instance, sample.labels)
        past = self._past.get(key)
        if past is None:
            if len(self._past) >= _SERIES_MAX:
                return key
            past = self._past[key] = deque()
        window = self._windows[sample.name]
        if not past or reading.at - past[-1][0] >= window / _POINTS_MAX:
            past.append((reading.at, sample.value))
        else:
            past[-1] = (past[-1][0], sample.value)
        while past[0][0] < reading.at - window:
            past.popleft()
        return key

    def _evaluate(
        self, rule: Rule, by_name: dict[str, list[tuple[Reading, Sample]]], now: float
    ) -> dict[Labels, float]:
        divisors = {
            (reading.instance, sample.labels): sample.value for reading, sample in by_name.get(rule.divide_by, ())
        }
        groups: dict[Labels, list[float]] = {} if rule.by else {frozenset(): []}
        for reading, sample in by_name[rule.metric]:
            if not rule.labels.items() <= dict(sample.labels).items():
                continue
            value = self._take(rule, reading, sample, now)
            if value is None:
                continue
            if rule.divide_by:
                divisor = divisors.get((reading.instance, sample.labels))
                if not divisor:
                    continue
                value /= divisor
            labels = {**dict(sample.labels), "instance": reading.instance}
            group = frozenset((key, labels[key]) for key in rule.by if key in labels)
            groups.setdefault(group, []).append(value)
        found = ((group, _combine(rule.combine, values)) for group, values in groups.items())
        return {group: value for group, value in found if value is not None}

    def _take(self, rule: Rule, reading: Reading, sample: Sample, now: float) -> float | None:
        match rule.take:
            case Take.VALUE:
                return sample.value
            case Take.SECONDS_UNTIL:
                return sample.value - now
            case Take.SKEW:
                return sample.value - reading.at
        past = self._past.get((sample.name, reading.instance, sample.labels))
        if not past or reading.at - past[0][0] <= 0:
            return None
        since = next((point for point in past if point[0] >= reading.at - rule.window_seconds), past[0])
        if rule.take is Take.INCREASE:
            return _increase([value for at, value in past if at >= since[0]], sample.value)
        fall = (since[1] - sample.value) / (reading.at - since[0]) if reading.at > since[0] else 0.0
        return sample.value / fall / 3600 if fall > 0 else float("inf")


def _increase(values: Sequence[float], last: float) -> float:
    """Of a counter that may have begun anew with its node."""
    total = 0.0
    for before, after in zip(values, [*values[1:], last], strict=True):
        total += after - before if after >= before else after
    return total


def _combine(combine: Combine, values: Sequence[float]) -> float | None:
    """A sum of nothing is 0; there is no largest of nothing."""
    match combine:
        case Combine.SUM:
            return sum(values)
        case Combine.MAX if values:
            return max(values)
        case Combine.MIN if values:
            return min(values)
        case Combine.SPREAD if values:
            return max(values) - min(values)
    return None

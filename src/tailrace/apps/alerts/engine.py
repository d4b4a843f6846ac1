"""From readings to alerts that begin, hold and end. Pure: it is told the time, and keeps what it needs of the past.

An alert is a rule and the labels that it was found for. It begins when the rule has held for `for_seconds`, and is over
when it has not held for `resolve_seconds`. Each is told once, and again after `repeat_seconds`. While a node cannot be
read nothing is decided about the alerts that name it, and nothing either about what no other node tells of. How long
something lasts is told by the steady clock alone: the other one may be set at any time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.apps.alerts.rules import Combine, Rule, Sending, Take
from tailrace.apps.scrape import Labels, Moment, Reading, Sample

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
    since: Moment  # When the rule began to hold.
    held: Moment  # When it held last.
    fired: Moment | None = None
    told_at: float | None = None  # When last, by the steady clock; None if it is still to be told.
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
    def metrics(self) -> frozenset[str]:
        """What has to be read of a node."""
        return frozenset(name for rule in self.rules for name in (rule.metric, rule.divide_by) if name)

    @property
    def firing(self) -> list[Alert]:
        return [alert for alert in self.alerts.values() if alert.fired is not None]

    def recall(self, alerts: Iterable[Alert]) -> None:
        """Of these somebody was told before: they are told once more if they hold, and else are over after a while."""
        self.alerts |= {(each.rule.name, each.labels): each for each in alerts}

    def step(self, now: Moment, readings: Sequence[Reading]) -> list[Notice]:
        """What has to be told."""
        by_name = self._samples(readings)
        missing = {each.instance for each in readings if each.samples is None}
        for rule in self.rules:
            for labels, value in self._evaluate(rule, by_name, now).items():
                if rule.holds(value):
                    alert = self.alerts.setdefault((rule.name, labels), Alert(rule, labels, value, now, now))
                    alert.value, alert.held = value, now
        notices = []
        for key, alert in list(self.alerts.items()):
            if missing and self._is_unknown(alert, missing, by_name):
                alert.held = now  # It stays as it is.
                if alert.fired is None:
                    continue
            if alert.held is not now:
                if alert.fired is None or now.steady - alert.held.steady >= self.sending.resolve_seconds:
                    del self.alerts[key]
                    if alert.fired is not None:
                        notices.append(Notice(alert, is_firing=False))
            elif self._is_due(alert, now.steady):
                alert.fired = alert.fired or now
                alert.told_at = now.steady
                notices.append(Notice(alert, is_firing=True))
        return notices

    def _is_unknown(self, alert: Alert, missing: set[str], by_name: dict[str, list[tuple[Reading, Sample]]]) -> bool:
        instance = dict(alert.labels).get("instance")
        if instance is None:
            return not by_name[alert.rule.metric]
        return instance in missing and alert.rule.metric != UP

    def _is_due(self, alert: Alert, now: float) -> bool:
        if alert.told_at is None:
            return now - alert.since.steady >= alert.rule.for_seconds
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
        window, at = self._windows[sample.name], reading.at.steady
        if not past or at - past[-1][0] >= window / _POINTS_MAX:
            past.append((at, sample.value))
        else:
            past[-1] = (past[-1][0], sample.value)
        while past[0][0] < at - window:
            past.popleft()
        return key

    def _evaluate(
        self, rule: Rule, by_name: dict[str, list[tuple[Reading, Sample]]], now: Moment
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

    def _take(self, rule: Rule, reading: Reading, sample: Sample, now: Moment) -> float | None:
        match rule.take:
            case Take.VALUE:
                return sample.value
            case Take.SECONDS_UNTIL:
                return sample.value - now.wall
            case Take.SKEW:
                return sample.value - reading.at.wall
        past, at = self._past.get((sample.name, reading.instance, sample.labels)), reading.at.steady
        if not past or at - past[0][0] <= 0:
            return None
        since = next((point for point in past if point[0] >= at - rule.window_seconds), past[0])
        if rule.take is Take.INCREASE:
            return _increase([value for when, value in past if when >= since[0]], sample.value)
        fall = (since[1] - sample.value) / (at - since[0]) if at > since[0] else 0.0
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

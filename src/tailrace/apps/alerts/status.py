"""What holds now, as a file that others read: JSON, replaced as a whole after each reading of the nodes.

It has `at`, `interval_seconds`, a `problem` (why alerts cannot be judged, or nothing), the `rules`, the `alerts` (those
that wait for their time too; `is_told` says which are told), what has `ended` a moment ago, and the `nodes` with their
open connections. A process that is started again reads in it what the one before had told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tailrace.apps.alerts.engine import Alert
from tailrace.apps.alerts.prometheus import promql
from tailrace.apps.alerts.rules import Rule
from tailrace.apps.scrape import Moment, Reading

_CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
_INFO = "tailrace_build_info"
_ANSWERS, _OURS = "tailrace_tier_store_answers", "tailrace_tier_store_is_ours"
SHOWN = frozenset({_CONNECTIONS, _INFO, _ANSWERS, _OURS})


def status_of(
    *,
    at: float,
    interval_seconds: float,
    problem: str,
    rules: Iterable[Rule],
    alerts: Iterable[Alert],
    ended: Iterable[Alert],
    readings: Iterable[Reading],
    is_silenced: Callable[[Alert], bool],
) -> dict[str, Any]:
    return {
        "at": at,
        "interval_seconds": interval_seconds,
        "problem": problem,
        "rules": [
            {
                "name": rule.name,
                "severity": rule.severity,
                "for_seconds": rule.for_seconds,
                "holds_while": promql(rule),
                "runbook": rule.runbook,
            }
            for rule in rules
        ],
        "alerts": [
            {
                **_facts(alert),
                "severity": alert.rule.severity,
                "summary": alert.summary,
                "is_told": alert.fired is not None,
                "is_known": alert.is_known,
                "is_silenced": is_silenced(alert),
                "runbook": alert.rule.runbook,
            }
            for alert in alerts
        ],
        "ended": [_facts(alert) for alert in ended],
        "nodes": [_node(reading) for reading in readings],
    }


def _facts(alert: Alert) -> dict[str, Any]:
    return {
        "rule": alert.rule.name,
        "labels": dict(alert.labels),
        "value": alert.value,
        "since": alert.since.wall,
        "fired": None if alert.fired is None else alert.fired.wall,
        "held": alert.held.wall,
    }


def _node(reading: Reading) -> dict[str, Any]:
    samples = reading.samples or ()
    info: Mapping[str, str] = next((dict(each.labels) for each in samples if each.name == _INFO), {})
    return {
        "instance": reading.instance,
        "node": info.get("node", ""),
        "is_up": reading.samples is not None,
        "problem": reading.problem,
        "store": _store({each.name: each.value for each in samples if each.name in (_ANSWERS, _OURS)}),
        "connections": {
            dict(each.labels).get("listener", ""): each.value for each in samples if each.name == _CONNECTIONS
        },
    }


def _store(found: Mapping[str, float]) -> str:
    """Of a broker with remote storage, whether it can use the store; empty for others."""
    if not found:
        return ""
    if not found.get(_ANSWERS):
        return "does not answer"
    return "answers" if found.get(_OURS) else "is not this cluster's"


def write_status(path: str, status: Mapping[str, Any]) -> None:
    """Readers see the old one or the new one. Raises OSError."""
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump(status, file)
    os.replace(f"{path}.tmp", path)


class Past(NamedTuple):
    """What the process before had told, as far as it is known."""

    known: list[Alert]  # Somebody was told that it holds.
    ended: list[Alert]  # Somebody may not have been told that it is over.


def read_past(path: str, rules: Iterable[Rule], now: Moment) -> Past:
    """Nothing, where there is no such file or where it cannot be understood."""
    by_name = {rule.name: rule for rule in rules}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        known = [_alert(each, by_name, now) for each in found["alerts"] if each["is_known"] and each["rule"] in by_name]
        ended = [_alert(each, by_name, now) for each in found["ended"] if each["rule"] in by_name]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Past([], [])
    return Past(known, ended)


def _alert(facts: Mapping[str, Any], by_name: Mapping[str, Rule], now: Moment) -> Alert:
    rule = by_name[facts["rule"]]
    labels = frozenset((str(key), str(value)) for key, value in facts["labels"].items())
    # For long enough, or nobody would have been told.
    since = Moment(now.steady - rule.for_seconds, float(facts["since"]))
    held, fired = (Moment(now.steady, float(facts[key])) for key in ("held", "fired"))
    return Alert(rule, labels, float(facts["value"]), since, held, fired, is_known=True)


def sorted_alerts(alerts: Iterable[Alert]) -> Sequence[Alert]:
    """What is told first, and of that what is critical."""
    return sorted(alerts, key=lambda each: (each.fired is None, each.rule.severity != "critical", each.key))

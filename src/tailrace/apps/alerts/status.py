"""What holds now, as a file that others read: JSON, replaced as a whole after each reading of the nodes.

It has `at`, `interval_seconds`, a `problem` (why alerts cannot be judged, or nothing), the `rules`, the `alerts` (those
that wait for their time too; `is_told` says which are told) and the `nodes` with their open connections.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tailrace.apps.alerts.engine import Alert
from tailrace.apps.alerts.prometheus import promql
from tailrace.apps.alerts.rules import Rule
from tailrace.apps.scrape import Reading

_CONNECTIONS = "kafka_server_socket_server_metrics_connection_count"
_INFO = "tailrace_build_info"


def status_of(
    *,
    at: float,
    interval_seconds: float,
    problem: str,
    rules: Iterable[Rule],
    alerts: Iterable[Alert],
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
                "rule": alert.rule.name,
                "severity": alert.rule.severity,
                "summary": alert.summary,
                "labels": dict(alert.labels),
                "since": alert.since,
                "is_told": alert.fired_at is not None,
                "is_silenced": is_silenced(alert),
                "runbook": alert.rule.runbook,
            }
            for alert in alerts
        ],
        "nodes": [_node(reading) for reading in readings],
    }


def _node(reading: Reading) -> dict[str, Any]:
    samples = reading.samples or ()
    info: Mapping[str, str] = next((dict(each.labels) for each in samples if each.name == _INFO), {})
    return {
        "instance": reading.instance,
        "node": info.get("node", ""),
        "is_up": reading.samples is not None,
        "problem": reading.problem,
        "connections": {
            dict(each.labels).get("listener", ""): each.value for each in samples if each.name == _CONNECTIONS
        },
    }


def write_status(path: str, status: Mapping[str, Any]) -> None:
    """Readers see the old one or the new one. Raises OSError."""
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        json.dump(status, file)
    os.replace(f"{path}.tmp", path)


def sorted_alerts(alerts: Iterable[Alert]) -> Sequence[Alert]:
    """What is told first, and of that what is critical."""
    return sorted(alerts, key=lambda each: (each.fired_at is None, each.rule.severity != "critical", each.key))

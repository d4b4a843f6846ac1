"""The same rules for Prometheus, and a dashboard for Grafana. Pure.

YAML is written as JSON, which it is as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tailrace.apps.alerts.rules import Combine, Rule, Take


def prometheus_rules(rules: Iterable[Rule], *, job: str) -> str:
    """Of the nodes that Prometheus scrapes as this job: it may watch other clusters, and much else that has an `up`."""
    alerts = [
        {
            "alert": rule.name,
            "expr": promql(rule, job=job),
            "for": f"{rule.for_seconds:g}s",
            "labels": {"severity": rule.severity},
            "annotations": {"summary": _template(rule), "runbook_url": rule.runbook},
        }
        for rule in rules
    ]
    return json.dumps({"groups": [{"name": job, "rules": alerts}]}, indent=2) + "\n"


def promql(rule: Rule, *, job: str = "") -> str:
    labels = {"job": job, **rule.labels} if job else rule.labels
    chosen = ", ".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
    series = f"{rule.metric}{{{chosen}}}" if chosen else rule.metric
    window = f"[{rule.window_seconds:g}s]"
    match rule.take:
        case Take.VALUE:
            taken = series
        case Take.INCREASE:
            taken = f"increase({series}{window})"
        case Take.SECONDS_UNTIL:
            taken = f"{series} - time()"
        case Take.SKEW:
            taken = f"{series} - timestamp({series})"
        case Take.HOURS_UNTIL_ZERO:
            taken = f"{series} / (-deriv({series}{window}) > 0) / 3600"
    if rule.divide_by:
        taken = f"{taken} / {rule.divide_by}"
    by = f" by ({', '.join(rule.by)})" if rule.by else ""
    if rule.combine is Combine.SPREAD:
        combined = f"max{by} ({taken}) - min{by} ({taken})"
    else:
        combined = f"{rule.combine.value}{by} ({taken})"
    if rule.combine is Combine.SUM and rule.below is not None and not rule.by:
        combined = f"({combined} or vector(0))"  # A sum of nothing.
    return f"{combined} > {rule.above:g}" if rule.above is not None else f"{combined} < {rule.below:g}"


def _template(rule: Rule) -> str:
    text = rule.summary.replace("{value}", "{{ $value }}")
    for key in rule.by:
        text = text.replace(f"{{{key}}}", f"{{{{ $labels.{key} }}}}")
    return text


# Which nodes: the dashboard has a variable for it.
_OF = 'job=~"$job"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Title, unit, and series by name.
_PANELS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (
        "Records in",
        "cps",
        {"records": f'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{{topic="", {_OF}}}[1m]))'},
    ),
    (
        "Bytes in and out",
        "Bps",
        {
            "in": f'sum(rate(kafka_server_brokertopicmetrics_bytesin_total{{topic="", {_OF}}}[1m]))',
            "out": f'sum(rate(kafka_server_brokertopicmetrics_bytesout_total{{topic="", {_OF}}}[1m]))',
        },
    ),
    (
        "Partitions in trouble",
        "short",
        {
            "without leader": f"max(kafka_controller_kafkacontroller_offlinepartitionscount{{{_OF}}})",
            "under-replicated": f"sum(kafka_server_replicamanager_underreplicatedpartitions{{{_OF}}})",
            "under min ISR": f"sum(kafka_server_replicamanager_underminisrpartitioncount{{{_OF}}})",
        },
    ),
    (
        "Request time, p99",
        "s",
        {
            "{{request}}": "histogram_quantile(0.99, sum by (le, request) "
            f'(rate(tailrace_request_duration_seconds_bucket{{request=~"Produce|Fetch", {_OF}}}[5m])))'
        },
    ),
    ("Loop lag", "s", {"{{instance}}": f"tailrace_loop_lag_seconds{{{_OF}}}"}),
    ("Group lag", "short", {"{{consumergroup}}": f"sum by (consumergroup) (kafka_consumergroup_lag{{{_OF}}})"}),
    (
        "Connections",
        "short",
        {"{{instance}}": f"sum by (instance) (kafka_server_socket_server_metrics_connection_count{{{_OF}}})"},
    ),
    ("Free on disk", "bytes", {"{{instance}} {{logDirectory}}": f"tailrace_log_dir_usable_bytes{{{_OF}}}"}),
)
_COLUMNS, _WIDTH, _HEIGHT = 2, 12, 8


def grafana_dashboard() -> str:
    panels: list[dict[str, Any]] = []
    for number, (title, unit, queries) in enumerate(_PANELS):
        panels.append(
            {
                "id": number + 1,
                "title": title,
                "type": "timeseries",
                "datasource": _SOURCE,
                "gridPos": {
                    "h": _HEIGHT,
                    "w": _WIDTH,
                    "x": number % _COLUMNS * _WIDTH,
                    "y": number // _COLUMNS * _HEIGHT,
                },
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
                    for index, (legend, query) in enumerate(queries.items())
                ],
            }
        )
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    job = {
        "name": "job",
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": "label_values(tailrace_build_info, job)", "refId": "job"},
        "refresh": 2,  # Whenever the range of time changes.
    }
    dashboard = {
        "title": "Tailrace",
        "uid": "tailrace",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source, job]},
        "panels": panels,
    }
    return json.dumps(dashboard, indent=2) + "\n"

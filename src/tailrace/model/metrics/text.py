"""Samples as text: Prometheus' format, or OpenMetrics where it was asked for. Kafka's counters in one of two spellings.

A metric begins with what it is and means, and all its samples follow; whoever calls keeps to that.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    name: str  # Without the `_total` of a counter.
    kind: Kind
    help: str
    # How rules without `_total` call a meter of Kafka, such as `..._messagesinpersec_count`.
    plain_name: str = ""


class Text:
    def __init__(self, *, is_open_metrics: bool = False, has_plain_names: bool = False) -> None:
        self._is_open_metrics = is_open_metrics
        self._has_plain_names = has_plain_names

    def begin(self, metric: Metric) -> tuple[str, str]:
        """The lines before its samples, and the name that they have."""
        name, kind = metric.name, metric.kind.value
        sample_name = f"{name}_total" if metric.kind is Kind.COUNTER else name
        if metric.plain_name and self._has_plain_names:
            # A counter of OpenMetrics ends with `_total`.
            name = sample_name = metric.plain_name
            kind = "unknown" if self._is_open_metrics else kind
        elif not self._is_open_metrics:
            name = sample_name
        return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n", sample_name

    def write(self, metric: Metric, samples: Iterable[tuple[str, float]]) -> str:
        """All of a metric with few samples: each has its labels, as `label` writes them, and a value. Nothing if there
        are none."""
        head, name = self.begin(metric)
        lines = [f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n" for labels, value in samples]
        return head + "".join(lines) if lines else ""

    def end(self) -> str:
        return "# EOF\n" if self._is_open_metrics else ""


def label(**labels: object) -> str:
    """`name="value"`, with commas between them."""
    return ",".join(f'{name}="{_escape(str(value))}"' for name, value in labels.items())


def _escape(value: str) -> str:
    """A name from outside may hold anything; half of a surrogate pair could not be encoded."""
    value = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value if value.isascii() else value.encode("utf-8", "replace").decode()

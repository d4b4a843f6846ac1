"""What the planner counts with: the costs of a broker, as they were measured, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# All of one machine: 2 virtual cores (AMD EPYC), Linux 6.18, CPython 3.11.
_CALIBRATED = "tailrace plan --calibrate on a quiet machine"
_COMPARED = "docs/benchmarks.md: the base case with three replicas above one, for each copy"
_GROWN = "docs/benchmarks.md: how cost grows"


class Figure(NamedTuple):
    value: float
    unit: str
    meaning: str
    source: str


class Figures(NamedTuple):
    """CPU seconds are those of the broker's process, the kernel's work for it included, since a broker's loop does
    its own reads and writes."""

    produce_s_per_gb: Figure
    produce_us_per_request: Figure
    fetch_s_per_gb: Figure
    fetch_us_per_request: Figure
    replicate_s_per_gb: Figure
    broker_mb: Figure
    partition_kb: Figure
    connection_kb: Figure
    disk_mb_per_s: Figure

    def to_json(self) -> dict[str, Any]:
        return {name: figure._asdict() for name, figure in self._asdict().items()}

    def measured(self, values: Mapping[str, float], source: str) -> Figures:
        """With these values instead. Raises ValueError if one is not known, or is no number of its kind."""
        for name, value in values.items():
            if name not in self._fields:
                raise ValueError(f"{name} is no figure of a plan: there are {', '.join(self._fields)}")
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
                raise ValueError(f"{name} is {value!r}, which is not a number of 0 or more")
        return self._replace(
            **{name: getattr(self, name)._replace(value=float(value), source=source) for name, value in values.items()}
        )


DEFAULT_FIGURES = Figures(
    produce_s_per_gb=Figure(0.54, "CPU s/GB", "Taking large batches", _CALIBRATED),
    produce_us_per_request=Figure(47.0, "us", "A Produce of an idempotent producer, beside its bytes", _CALIBRATED),
    fetch_s_per_gb=Figure(0.2, "CPU s/GB", "Giving large ranges that are in memory", _CALIBRATED),
    fetch_us_per_request=Figure(64.0, "us", "A Fetch, beside its bytes", _CALIBRATED),
    replicate_s_per_gb=Figure(2.2, "CPU s/GB", "A copy on one more broker, both sides together", _COMPARED),
    broker_mb=Figure(29.0, "MB", "A broker that has nothing to do", _CALIBRATED),
    partition_kb=Figure(9.7, "KB", "A replica of a partition, in memory", _GROWN),
    connection_kb=Figure(2.3, "KB", "A client's connection, in memory", _GROWN),
    disk_mb_per_s=Figure(1860.0, "MB/s", "Written and synced by one disk", _CALIBRATED),
)

"""What an audit has found: figures of both sides, differences by kind with samples, and the verdict.

Plain data, known to nothing of Spark: as text for a terminal, as JSON for programs; `page` makes HTML of it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from tailrace.spark.audit.declaration import KINDS
from tailrace.spark.audit.profile import Gap, PartitionFigures, Point

_PARTITIONS_SHOWN = 20


class Place(NamedTuple):
    partition: str
    offset: int

    def __str__(self) -> str:
        return f"offset {self.offset:,} of {self.partition}"


class Difference(NamedTuple):
    """One sample. For a history the expected place is a process and the number of its event."""

    kind: str
    records: int
    label: str
    expected_at: Place | None = None
    actual_at: Place | None = None
    actual_last_at: Place | None = None
    before_at: Place | None = None
    before_label: str | None = None

    @property
    def sentence(self) -> str:
        what = f'"{self.label}"'
        expected = f" (expected: {_at(self.expected_at)})" if self.expected_at else ""
        found = f" at {_at(self.actual_at)}" if self.actual_at else ""
        match self.kind:
            case "lost":
                times = "" if self.records == 1 else f"{self.records:,} times "
                return f"{what} is missing {times}".rstrip() + expected
            case "duplicate":
                again = f" and again at {_at(self.actual_last_at)}" if self.actual_last_at else ""
                times = "once" if self.records == 1 else f"{self.records:,} times"
                return f"{what} stands {times} too often" + (f",{found}{again}" if found else "") + expected
            case "reordered":
                before = f'"{self.before_label}" at {_at(self.before_at)}'
                return f"{what}{found} stands before {before}, which it should follow{expected}"
            case "unexpected":
                stands = found or " there"
                if self.records > 1:
                    stands = f" {self.records:,} times" + (f", first{found}" if found else "")
                return f"{what} stands{stands}, and was not expected"
            case "withdrawn":
                return f"{what} stands{found}, though it was refused or aborted{expected}"
            case _:
                return f"{what}{found} is not as expected{expected}"

    def to_json(self) -> dict[str, Any]:
        places = ("expected_at", "actual_at", "actual_last_at", "before_at")
        found = {name: place._asdict() for name in places if (place := getattr(self, name)) is not None}
        before = {} if self.before_label is None else {"before": self.before_label}
        return {"label": self.label, "records": self.records, **found, **before, "sentence": self.sentence}


class Check(NamedTuple):
    """One kind of difference. `records` counts records, or offsets for gaps."""

    kind: str
    records: int
    is_allowed: bool
    samples: tuple[str, ...]
    evidence: tuple[dict[str, Any], ...]


class SideFigures(NamedTuple):
    name: str  # such as "topic orders"
    records: int
    partitions: tuple[PartitionFigures, ...]
    timeline: tuple[Point, ...]
    # In a history only: how many sends were acknowledged, are unknown, were withdrawn.
    outcomes: dict[str, int]


class Report(NamedTuple):
    name: str
    expected: SideFigures
    actual: SideFigures
    checks: tuple[Check, ...]  # One for every kind that was looked for, found or not.
    unchecked: dict[str, str]  # Kinds that could not be looked for, and why.
    step_s: int  # the step of the timelines
    finished: float  # seconds since 1970
    duration_s: float
    # What was compared with what: (by, compare or order_by, the expression of either side).
    compared: tuple[tuple[str, str, str], ...] = ()

    @property
    def is_clean(self) -> bool:
        return not any(check.records and not check.is_allowed for check in self.checks)

    @property
    def verdict(self) -> str:
        if self.is_clean:
            what = ", ".join(check.kind for check in self.checks if not check.is_allowed)
            return f"clean: {self.actual.records:,} records, no difference ({what})"
        found = [f"{check.records:,} {check.kind}" for check in self.checks if check.records and not check.is_allowed]
        return f"differences: {', '.join(found)}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "clean": self.is_clean,
            "verdict": self.verdict,
            "expected": _side_json(self.expected),
            "actual": _side_json(self.actual),
            "checks": [
                {
                    "kind": check.kind,
                    "records": check.records,
                    "allowed": check.is_allowed,
                    "meaning": KINDS[check.kind],
                    "samples": [dict(found) for found in check.evidence],
                }
                for check in self.checks
            ],
            "unchecked": self.unchecked,
            "compared": [{"as": role, "expected": ours, "actual": theirs} for role, ours, theirs in self.compared],
            "timeline_step_s": self.step_s,
            "finished": time_text(int(self.finished * 1000)),
            "duration_s": round(self.duration_s, 3),
        }

    def text(self) -> str:
        """For a terminal; no line depends on its width."""
        lines = [f"{self.name}: {self.verdict}", ""]
        for role, side in (("expected", self.expected), ("actual", self.actual)):
            lines.append(f"{role:<9} {side.name}: {side.records:,} records{_outcomes_text(side.outcomes)}")
            lines += [f"  {partition_text(each)}" for each in side.partitions[:_PARTITIONS_SHOWN] if each.partition]
            if len(side.partitions) > _PARTITIONS_SHOWN:
                lines.append(f"  and {len(side.partitions) - _PARTITIONS_SHOWN:,} more partitions")
        for role, ours, theirs in self.compared:
            lines.append(f"{role:<9} {ours}" + (f" = {theirs}" if theirs not in ("", ours) else ""))
        for check in self.checks:
            if not check.records:
                continue
            allowed = ", allowed" if check.is_allowed else ""
            lines += ["", f"{check.kind}: {check.records:,}{allowed} ({KINDS[check.kind]})"]
            lines += [f"  {sentence}" for sentence in check.samples]
        if self.unchecked:
            lines += ["", *(f"not checked: {kind} ({why})" for kind, why in self.unchecked.items())]
        return "\n".join(lines) + "\n"


def partition_text(figures: PartitionFigures) -> str:
    offsets = ""
    if figures.first_offset is not None and figures.last_offset is not None:
        offsets = f", offsets {figures.first_offset:,} to {figures.last_offset:,}"
    return f"{figures.partition}: {figures.records:,} records{offsets}"


def gap_text(gap: Gap) -> str:
    if gap.end - gap.start == 1:
        return f"{gap.partition} has no record at offset {gap.start:,}"
    return f"{gap.partition} has no records from offset {gap.start:,} to {gap.end - 1:,}"


def time_text(timestamp: int | None) -> str | None:
    return (
        None if timestamp is None else datetime.fromtimestamp(timestamp / 1000, UTC).isoformat(timespec="milliseconds")
    )


def _at(place: Place | None) -> str:
    return "an unknown place" if place is None else str(place)


def _outcomes_text(outcomes: dict[str, int]) -> str:
    return f" ({', '.join(f'{number:,} {name}' for name, number in outcomes.items())})" if outcomes else ""


def _side_json(side: SideFigures) -> dict[str, Any]:
    return {
        "name": side.name,
        "records": side.records,
        **({"outcomes": side.outcomes} if side.outcomes else {}),
        "partitions": [
            {
                **each._asdict(),
                "first_timestamp": time_text(each.first_timestamp),
                "last_timestamp": time_text(each.last_timestamp),
            }
            for each in side.partitions
        ],
        "timeline": [{"time": time_text(point.second * 1000), "records": point.records} for point in side.timeline],
    }

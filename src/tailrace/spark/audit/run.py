"""An audit from its declaration to its report: profiles each side, compares them, gathers the evidence.

A side is read twice: once for its figures (positions and times only), once to be compared; a third time, in part, if
there are gaps to be shown. What is kept between Spark's jobs is the profile, which is small, and the differences, of
which there should be none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from tailrace.spark.audit.compare import differences
from tailrace.spark.audit.declaration import KINDS, Audit, HistorySide
from tailrace.spark.audit.page import page
from tailrace.spark.audit.profile import (
    Gap,
    PartitionFigures,
    choose_step_s,
    gaps,
    partition_figures,
    profile,
    timeline,
)
from tailrace.spark.audit.report import Check, Difference, Place, Report, SideFigures, gap_text
from tailrace.spark.audit.sides import OpenSide, open_sides
from tailrace.spark.session import session

_POINTS_MAX = 60

OnStep = Callable[[str], None]


def run_audit(audit: Audit, spark: SparkSession | None = None, on_step: OnStep = lambda _: None) -> Report:
    """Raises AuditError, DeclarationError, OptionError and KafkaError if a side cannot be read."""
    started = time.monotonic()
    spark = spark or session(f"tailrace audit {audit.name}", settings=audit.spark)
    on_step("looking at both sides")
    sides = open_sides(spark, audit)
    on_step(f"counting {sides[0].name} and {sides[1].name}")
    profiles = [_Profile(side, audit.samples) for side in sides]
    try:
        step_s = choose_step_s([each for one in profiles for each in one.partitions], points_max=_POINTS_MAX)
        expected, actual = (one.figures(step_s) for one in profiles)
        on_step(f"comparing {expected.records:,} with {actual.records:,} records")
        unchecked = _reasons_not_to_check(audit, sides)
        checks = _compared(audit, sides, unchecked)
        if "gap" not in unchecked:
            on_step("looking for gaps")
            checks = (*checks, _gap_check(profiles, is_allowed="gap" in audit.allow))
    finally:
        for one in profiles:
            one.close()
    report = Report(audit.name, expected, actual, checks, unchecked, step_s, time.time(), time.monotonic() - started)
    _save(audit, report)
    return report


class _Profile:
    """The counts of one side, kept by Spark until `close`."""

    def __init__(self, side: OpenSide, samples: int) -> None:
        self._side = side
        self._samples = samples
        self._counts: DataFrame | None = None
        self.partitions: list[PartitionFigures] = []
        if side.records is not None:
            self._counts = profile(side.records).persist()
            self.partitions = partition_figures(self._counts)

    def figures(self, step_s: int) -> SideFigures:
        if self._counts is None:
            outcomes = _outcomes(self._side.rows)
            return SideFigures(self._side.name, sum(outcomes.values()), (), (), outcomes)
        return SideFigures(
            self._side.name,
            sum(each.records for each in self.partitions),
            tuple(self.partitions),
            tuple(timeline(self._counts, step_s)),
            {},
        )

    def gaps(self) -> tuple[int, list[Gap]]:
        """How many offsets have no record, and the first gaps."""
        if self._counts is None or self._side.records is None or not self._side.has_gaps:
            return 0, []
        found = _gaps_at_the_ends(self._side, self.partitions)
        inside = sum(each.missing for each in self.partitions)
        missing = inside + sum(gap.end - gap.start for gap in found)
        if inside > 0 and self._samples:
            found += gaps(self._side.records, self._counts, limit=self._samples)
        return missing, sorted(found)[: self._samples]

    def close(self) -> None:
        if self._counts is not None:
            self._counts.unpersist()


def _gaps_at_the_ends(side: OpenSide, partitions: Sequence[PartitionFigures]) -> list[Gap]:
    """Where a topic has offsets before its first record, behind its last one, or no record at all."""
    by_name = {each.partition: each for each in partitions}
    found = []
    for each in side.ranges:
        figures = by_name.get(name := str(each.partition))
        if figures is None or figures.first_offset is None or figures.last_offset is None:
            found.append(Gap(name, each.start, each.end))
        else:
            found.append(Gap(name, each.start, figures.first_offset))
            found.append(Gap(name, figures.last_offset + 1, each.end))
    return [gap for gap in found if gap.start < gap.end]


def _outcomes(rows: DataFrame) -> dict[str, int]:
    least, most = sf.col("least"), sf.col("most")
    counted = rows.agg(
        sf.count_if(least > 0).alias("acknowledged"),
        sf.count_if((least == 0) & (most > 0)).alias("unknown"),
        sf.count_if(most == 0).alias("withdrawn"),
    ).first()
    assert counted is not None
    return {str(name): int(number) for name, number in counted.asDict().items()}


def _reasons_not_to_check(audit: Audit, sides: tuple[OpenSide, OpenSide]) -> dict[str, str]:
    reasons = {}
    if not isinstance(audit.expected, HistorySide):
        reasons["withdrawn"] = "only a history knows what was refused or aborted"
        if not audit.expected.compare:
            reasons["changed"] = "`compare` names nothing"
        if not audit.expected.order_by:
            reasons["reordered"] = "`order_by` names nothing"
    if not all(side.has_positions for side in sides):
        reasons["reordered"] = "a table has no order, unless columns say partition and offset"
    if not any(side.has_gaps for side in sides):
        reasons["gap"] = "a condition leaves records out, or nothing says their offsets"
    return reasons


def _compared(audit: Audit, sides: tuple[OpenSide, OpenSide], unchecked: dict[str, str]) -> tuple[Check, ...]:
    with_order = "reordered" not in unchecked
    found = differences(sides[0].rows, sides[1].rows, is_distinct=audit.distinct, with_order=with_order).persist()
    try:
        counts = {
            row.kind: row.records for row in found.groupBy("kind").agg(sf.sum("records").alias("records")).collect()
        }
        checks = []
        for kind in KINDS:
            if kind == "gap" or kind in unchecked:
                continue
            samples = _samples(found, kind, audit.samples) if counts.get(kind) else []
            checks.append(
                Check(
                    kind,
                    counts.get(kind, 0),
                    kind in audit.allow,
                    tuple(each.sentence for each in samples),
                    tuple(each.to_json() for each in samples),
                )
            )
        return tuple(checks)
    finally:
        found.unpersist()


def _samples(found: DataFrame, kind: str, limit: int) -> list[Difference]:
    rows = found.where(sf.col("kind") == kind).orderBy("expected_at", "actual_at", "label").limit(limit).collect()
    return [
        Difference(
            kind,
            row.records,
            row.label,
            _place(row.expected_at),
            _place(row.actual_at),
            _place(row.actual_last_at),
            _place(row.before),
            row.before.label if row.before is not None else None,
        )
        for row in rows
    ]


def _place(found: Row | None) -> Place | None:
    return None if found is None else Place(found.partition, found.offset)


def _gap_check(profiles: Sequence[_Profile], *, is_allowed: bool) -> Check:
    found = [one.gaps() for one in profiles]
    shown = [gap for _, some in found for gap in some]
    return Check(
        "gap",
        sum(missing for missing, _ in found),
        is_allowed,
        tuple(map(gap_text, shown)),
        tuple(gap._asdict() for gap in shown),
    )


def _save(audit: Audit, report: Report) -> None:
    if audit.html is not None:
        Path(audit.html).write_text(page(report), encoding="utf-8")
    if audit.json is not None:
        Path(audit.json).write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")

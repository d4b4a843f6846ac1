"""An audit from its declaration to its report: profiles each side, compares them, gathers the evidence.

A side is read twice: once for its figures (positions and times only), once to be compared; a third time, in part, if
there are gaps to be shown. What is kept between Spark's jobs is the profile, which is small.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from tailrace.spark.audit.compare import differences
from tailrace.spark.audit.declaration import KINDS, Audit, HistorySide
from tailrace.spark.audit.page import page
from tailrace.spark.audit.profile import (
    Gap,
    PartitionFigures,
    Point,
    choose_step_s,
    gaps,
    partition_figures,
    profile,
    timelines,
)
from tailrace.spark.audit.report import Check, Difference, Place, Report, SideFigures, gap_text
from tailrace.spark.audit.sides import OpenSide, open_sides
from tailrace.spark.session import session, use_in_this_thread

_POINTS_MAX = 60

OnStep = Callable[[str], None]


def run_audit(audit: Audit, spark: SparkSession | None = None, on_step: OnStep = lambda _: None) -> Report:
    """Raises AuditError, DeclarationError, OptionError and KafkaError if a side cannot be read."""
    started = time.monotonic()
    spark = spark or session(f"tailrace audit {audit.name}", settings=audit.spark)
    use_in_this_thread(spark)
    on_step("looking at both sides")
    sides = dict(zip(("expected", "actual"), open_sides(spark, audit), strict=True))
    unchecked = _reasons_not_to_check(audit, sides)
    on_step(f"counting {audit.expected} and {audit.actual}")
    counts = profile({role: side.records for role, side in sides.items() if side.records is not None}).persist()
    try:
        partitions = partition_figures(counts)
        step_s = choose_step_s([each for some in partitions.values() for each in some], points_max=_POINTS_MAX)
        points = timelines(counts, step_s)
        figures = {role: _figures(side, partitions.get(role, []), points.get(role, [])) for role, side in sides.items()}
        on_step(f"comparing {figures['expected'].records:,} with {figures['actual'].records:,} records")
        checks = _compared(audit, sides, unchecked)
        if "gap" not in unchecked:
            found = [_gaps(role, side, figures[role], counts, audit.samples) for role, side in sides.items()]
            checks = (*checks, _gap_check(found, is_allowed="gap" in audit.allow))
    finally:
        counts.unpersist()
    took_s = time.monotonic() - started
    report = Report(
        audit.name,
        **figures,
        checks=checks,
        unchecked=unchecked,
        step_s=step_s,
        finished=time.time(),
        duration_s=took_s,
        compared=_compared_expressions(audit),
    )
    _save(audit, report)
    return report


def _compared_expressions(audit: Audit) -> tuple[tuple[str, str, str], ...]:
    expected, actual = audit.expected, audit.actual
    if isinstance(expected, HistorySide):
        return (("by", "value", "value"), ("compare", "the place that was told", "partition and offset"))
    pairs = [("by", *each) for each in zip(expected.by, actual.by, strict=True)]
    pairs += [("compare", *each) for each in zip(expected.compare, actual.compare, strict=True)]
    return (*pairs, *(("order by", each, "") for each in expected.order_by))


def _figures(side: OpenSide, partitions: Sequence[PartitionFigures], points: Sequence[Point]) -> SideFigures:
    if side.records is None:
        outcomes = _outcomes(side.rows)
        return SideFigures(side.name, sum(outcomes.values()), (), (), outcomes)
    return SideFigures(side.name, sum(each.records for each in partitions), tuple(partitions), tuple(points), {})


def _gaps(role: str, side: OpenSide, figures: SideFigures, counts: DataFrame, limit: int) -> tuple[int, list[Gap]]:
    """How many offsets have no record, and the first gaps."""
    if side.records is None or not side.has_gaps:
        return 0, []
    found = _gaps_at_the_ends(side, figures.partitions)
    inside = sum(each.missing for each in figures.partitions)
    missing = inside + sum(gap.end - gap.start for gap in found)
    if inside and limit:
        found += gaps(side.records, counts, role, limit=limit)
    return missing, sorted(found)[:limit]


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


def _reasons_not_to_check(audit: Audit, sides: Mapping[str, OpenSide]) -> dict[str, str]:
    reasons = {}
    if not isinstance(audit.expected, HistorySide):
        reasons["withdrawn"] = "only a history knows what was refused or aborted"
        if not audit.expected.compare:
            reasons["changed"] = "`compare` names nothing"
        if not audit.expected.order_by:
            reasons["reordered"] = "`order_by` names nothing"
    if not all(side.has_positions for side in sides.values()):
        reasons["reordered"] = "a table has no order, unless columns say partition and offset"
    if not any(side.has_gaps for side in sides.values()):
        reasons["gap"] = "a condition leaves records out, or nothing says their offsets"
    return reasons


def _compared(audit: Audit, sides: Mapping[str, OpenSide], unchecked: Mapping[str, str]) -> tuple[Check, ...]:
    """One job: of each kind as many samples are kept along the way as are shown."""
    found = differences(
        sides["expected"].rows,
        sides["actual"].rows,
        is_distinct=audit.distinct,
        with_order="reordered" not in unchecked,
    )
    evidence = sf.struct("expected_at", "actual_at", "label", "records", "actual_last_at", "before")
    counted = found.groupBy("kind").agg(
        sf.sum("records").alias("records"), sf.min_by(evidence, evidence, max(1, audit.samples)).alias("samples")
    )
    rows = {row.kind: row for row in counted.collect()}
    checks = []
    for kind in KINDS:
        if kind == "gap" or kind in unchecked:
            continue
        samples = [_difference(kind, sample) for sample in rows[kind].samples[: audit.samples]] if kind in rows else []
        checks.append(
            Check(
                kind,
                rows[kind].records if kind in rows else 0,
                kind in audit.allow,
                tuple(each.sentence for each in samples),
                tuple(each.to_json() for each in samples),
            )
        )
    return tuple(checks)


def _difference(kind: str, sample: Row) -> Difference:
    return Difference(
        kind,
        sample.records,
        sample.label,
        _place(sample.expected_at),
        _place(sample.actual_at),
        _place(sample.actual_last_at),
        _place(sample.before),
        sample.before.label if sample.before is not None else None,
    )


def _place(found: Row | None) -> Place | None:
    return None if found is None else Place(found.partition, found.offset)


def _gap_check(found: Sequence[tuple[int, list[Gap]]], *, is_allowed: bool) -> Check:
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

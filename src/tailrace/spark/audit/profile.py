"""What each side looks like by itself: how many records each partition has, from where to where, which offsets are
missing between them, and how many there were at which time.

One pass over the sides counts by partition, stretch of offsets and second; everything else is derived from those
counts, which are few. Nothing that grows with the number of records is collected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from tailrace.spark.audit.errors import AuditError

_PARTITIONS_MAX = 100_000
_PIECES = 16
# Offsets that are looked at together for gaps: a gap is first found in a stretch, then in its records.
_STRETCH_OFFSETS = 100_000
# A chart takes the shortest of these that needs at most `points_max` points.
_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    21600,
    43200,
    86400,
    604800,
    2592000,
    31536000,
)


class PartitionFigures(NamedTuple):
    partition: str | None  # None: the side has no positions.
    records: int
    first_offset: int | None
    last_offset: int | None
    first_timestamp: int | None  # in milliseconds, as Kafka has them
    last_timestamp: int | None

    @property
    def missing(self) -> int:
        """How many offsets between the first and the last have no record. A table may have an offset twice, which is
        found by comparing it."""
        if self.first_offset is None or self.last_offset is None:
            return 0
        return max(0, self.last_offset + 1 - self.first_offset - self.records)


class Gap(NamedTuple):
    partition: str
    start: int
    end: int  # exclusive


class Point(NamedTuple):
    second: int  # since 1970
    records: int


def profile(sides: Mapping[str, DataFrame]) -> DataFrame:
    """Counts by side, stretch of offsets and second, of frames with partition, offset and time, any of which may be
    null. To be persisted: Spark would keep it in as many pieces as a shuffle of everything has, and it is small."""
    timestamp = sf.unix_millis("time")
    records = reduce(DataFrame.unionByName, (frame.withColumn("side", sf.lit(name)) for name, frame in sides.items()))
    counts = records.groupBy(
        "side",
        "partition",
        _stretch(),
        sf.floor(timestamp / 1000).alias("second"),
    ).agg(
        sf.count(sf.lit(1)).alias("records"),
        sf.min("offset").alias("first_offset"),
        sf.max("offset").alias("last_offset"),
        sf.min(timestamp).alias("first_timestamp"),
        sf.max(timestamp).alias("last_timestamp"),
    )
    return counts.coalesce(_PIECES)


def partition_figures(profiled: DataFrame) -> dict[str, list[PartitionFigures]]:
    """By side. Raises AuditError if there are more than a cluster has: then a table's partition is something else."""
    found = profiled.groupBy("side", "partition").agg(*_totals()).limit(_PARTITIONS_MAX + 1).collect()
    if len(found) > _PARTITIONS_MAX:
        shown = ", ".join(str(row.partition) for row in found[:3])
        raise AuditError(f"there are more than {_PARTITIONS_MAX:,} partitions ({shown}, ...): name those of a topic")
    figures: dict[str, list[PartitionFigures]] = {}
    for row in found:
        figures.setdefault(row.side, []).append(PartitionFigures(*(row[name] for name in PartitionFigures._fields)))
    return {
        side: sorted(some, key=lambda each: (len(each.partition or ""), each.partition or ""))
        for side, some in figures.items()
    }


def gaps(records: DataFrame, profiled: DataFrame, side: str, *, limit: int) -> list[Gap]:
    """The first of those between the first and the last offset of each partition. Reads the records of the side again,
    of stretches with a gap."""
    stretches = profiled.where((sf.col("side") == side) & sf.col("stretch").isNotNull())
    stretches = stretches.groupBy("partition", "stretch").agg(*_totals())
    before = sf.lag("last_offset").over(Window.partitionBy("partition").orderBy("stretch"))
    between = (
        stretches.withColumn("start", before + 1)
        .where(sf.col("start") < sf.col("first_offset"))
        .select("partition", "start", sf.col("first_offset").alias("end"))
    )
    torn = (
        stretches.where(sf.col("records") <= sf.col("last_offset") - sf.col("first_offset"))
        .orderBy("partition", "stretch")
        .select("partition", "stretch")
        .limit(limit)
    )
    within_stretch = Window.partitionBy("partition", "stretch").orderBy("offset")
    inside = (
        records.select("partition", "offset", _stretch())
        .join(sf.broadcast(torn), ["partition", "stretch"], "left_semi")
        .withColumn("start", sf.lag("offset").over(within_stretch) + 1)
        .where(sf.col("start") < sf.col("offset"))
        .select("partition", "start", sf.col("offset").alias("end"))
    )
    found = between.unionByName(inside).orderBy("partition", "start").limit(limit)
    return [Gap(row.partition, row.start, row.end) for row in found.collect()]


def timelines(profiled: DataFrame, step_s: int) -> dict[str, list[Point]]:
    """By side: how many records each step of time has, of those steps that have any."""
    step = (sf.floor(sf.col("second") / step_s) * step_s).alias("step")
    found = profiled.where("second IS NOT NULL").groupBy("side", step).agg(sf.sum("records").alias("records"))
    points: dict[str, list[Point]] = {}
    for row in found.collect():
        points.setdefault(row.side, []).append(Point(row.step, row.records))
    return {side: sorted(some) for side, some in points.items()}


def choose_step_s(figures: Sequence[PartitionFigures], *, points_max: int) -> int:
    """So that the time from the first to the last record has at most so many points."""
    times = [time for each in figures for time in (each.first_timestamp, each.last_timestamp) if time is not None]
    span_s = (max(times) - min(times)) / 1000 if times else 0
    return next((step for step in _STEPS_S if span_s / step < points_max - 1), _STEPS_S[-1])


def _stretch() -> Column:
    return sf.floor(sf.col("offset") / _STRETCH_OFFSETS).alias("stretch")


def _totals() -> list[Column]:
    return [
        sf.sum("records").alias("records"),
        *(sf.min(name).alias(name) for name in ("first_offset", "first_timestamp")),
        *(sf.max(name).alias(name) for name in ("last_offset", "last_timestamp")),
    ]

"""What differs between two sides: one row for each record that is not where, or as often, as it should be.

Every record of the expected side says how often it must (`least`) and may (`most`) stand on the other: once and once
for a record of a topic or table, never and once for a send whose outcome nobody knows. One group-by over both sides and
one window find everything; rows that agree are dropped where they are found, and nothing is collected here.

| kind | records of one identity |
|---|---|
| lost | fewer than `least` stand on the actual side |
| unexpected | the expected side knows of none |
| withdrawn | it knows of some, and none may stand there: refused, or aborted |
| duplicate | more than `most` stand there |
| changed | as many as expected, but what is compared differs |
| reordered | it stands behind a record that it preceded, of the same sequence and partition |
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf


def differences(
    expected: DataFrame, actual: DataFrame, *, is_distinct: bool = False, with_order: bool = True
) -> DataFrame:
    """Both sides are rows of `rows.record_rows`. With `is_distinct` a record that is expected several times is expected
    once, as behind a deduplication."""
    found = _identities(expected, actual)
    if is_distinct:
        found = found.withColumns({name: sf.least(sf.col(name), sf.lit(1)) for name in ("least", "most")})
    found = found.withColumn("before", _record_before() if with_order else sf.lit(None).cast(_PLACED_LABEL))
    return (
        found.withColumn("kind", _kind())
        .where(sf.col("kind").isNotNull())
        .select("kind", _records().alias("records"), "label", "expected_at", "actual_at", "actual_last_at", "before")
    )


_PLACED_LABEL = "struct<partition: string, offset: bigint, label: string>"


def _identities(expected: DataFrame, actual: DataFrame) -> DataFrame:
    """How often each identity is expected and found, and where first."""
    both = expected.withColumn("is_actual", sf.lit(False)).unionByName(actual.withColumn("is_actual", sf.lit(True)))
    is_actual = sf.col("is_actual")
    place = sf.when(sf.col("partition").isNotNull(), sf.struct("partition", "offset"))
    # A sum, since a set is compared, and the decimal so that it cannot overflow.
    content = sf.xxhash64("content").cast("decimal(20,0)")
    return both.groupBy("identity").agg(
        sf.min("label").alias("label"),
        sf.count_if(~is_actual).alias("expected"),
        sf.count_if(is_actual).alias("found"),
        sf.coalesce(sf.sum(sf.when(~is_actual, sf.col("least"))), sf.lit(0)).alias("least"),
        sf.coalesce(sf.sum(sf.when(~is_actual, sf.col("most"))), sf.lit(0)).alias("most"),
        sf.min(sf.when(~is_actual, sf.col("sequence"))).alias("sequence"),
        sf.min(sf.when(~is_actual, place)).alias("expected_at"),
        sf.min(sf.when(is_actual, place)).alias("actual_at"),
        sf.max(sf.when(is_actual, place)).alias("actual_last_at"),
        sf.count_if(~is_actual & sf.col("content").isNotNull()).alias("expected_contents"),
        sf.sum(sf.when(~is_actual, content)).alias("expected_content"),
        sf.sum(sf.when(is_actual, content)).alias("actual_content"),
    )


def _record_before() -> Column:
    """The record that precedes this one on the expected side, if it stands behind it on the actual one.

    Judged of records that are expected once, by where they stand first: a copy that was repeated after a crash is in
    order, and of two equal records nobody can say which is which. Order is a promise within one partition.
    """
    is_judged = (sf.col("expected") == 1) & (sf.col("found") > 0) & sf.col("sequence").isNotNull()
    window = Window.partitionBy(
        # Those without an order are spread by their identity, so that they do not all meet in one task.
        sf.when(is_judged, sf.col("sequence")).otherwise(sf.col("identity")),
        sf.when(is_judged, sf.col("expected_at.partition")),
        sf.when(is_judged, sf.col("actual_at.partition")),
    ).orderBy("expected_at.offset")
    before = sf.lag(sf.struct("actual_at.partition", "actual_at.offset", "label")).over(window)
    return sf.when(is_judged & (before["offset"] > sf.col("actual_at.offset")), before)


def _kind() -> Column:
    found, least, most = sf.col("found"), sf.col("least"), sf.col("most")
    is_comparable = (sf.col("expected_contents") == sf.col("expected")) & (found == sf.col("expected"))
    return (
        sf.when(found < least, "lost")
        .when((sf.col("expected") == 0) & (found > 0), "unexpected")
        .when((most == 0) & (found > 0), "withdrawn")
        .when(found > most, "duplicate")
        .when(is_comparable & (sf.col("expected_content") != sf.col("actual_content")), "changed")
        .when(sf.col("before").isNotNull(), "reordered")
    )


def _records() -> Column:
    found, least, most = sf.col("found"), sf.col("least"), sf.col("most")
    return sf.when(found < least, least - found).when(found > most, found - most).otherwise(sf.lit(1))

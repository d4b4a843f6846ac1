"""Rows that replace those of their key: a batch is first reduced to the last row of each key, and then merged.

Which row is last is said by a version that the rows carry, or by their offsets. Offsets order a key's records only
within a partition, where batches follow each other anyway: so a later batch wins, and a topic that got partitions, by
which a key may have moved, is refused. With versions a row that comes late loses even against a deletion, so a deleted
key stays as a row of its key and version, and of the time at which it was deleted, `DELETED_AT`.

A batch that has been reduced is collected in the driver; its size is bounded by `batch_records_max` of the source.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.declaration import TableSink
from tailrace.spark.pipelines.landing.batches import DELETED, LandingError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

DELETED_AT = "_deleted_at"
_ROW, _FIRST, _LAST, _KNOWN = "_tailrace_row", "_tailrace_first", "_tailrace_last", "_tailrace_known"


def reduced(rows: DataFrame, sink: TableSink, unavailable: Collection[str] = ()) -> DataFrame:
    """The last row of each key as the table has it, and whether it deletes the key (`DELETED`). A value that is one of
    the texts `unavailable` is the last one of its key that is none, if the batch has one."""
    from pyspark.sql import functions as sf

    _check_columns(rows, sink)
    is_deleted = sf.coalesce(sf.expr(sink.delete_where or "false").cast("boolean"), sf.lit(False))
    rows = rows.withColumn(DELETED, is_deleted)
    order = [name for name in (sink.version, "offset") if name is not None and name in rows.columns]
    place = sf.col("partition") if sink.version is None else sf.lit(0)
    keys = [sf.col(f"`{name}`") for name in sink.merge_on]
    if sink.version is not None:
        # Else it would come before everything, and be lost without a word.
        rows = rows.withColumn(sink.version, _never_null(sink, sink.version))
    for name in sink.merge_on:
        rows = rows.withColumn(name, _never_null(sink, name))
    order_of_rows = sf.struct(*(f"`{name}`" for name in order))
    last_row = sf.max_by(sf.struct(*(f"`{name}`" for name in rows.columns)), order_of_rows)
    fillable = _fillable(rows, sink) if unavailable else []
    known = [
        sf.max_by(
            sf.when(~sf.col(DELETED) & ~_is_unavailable(sf.col(f"`{name}`"), unavailable), sf.struct(f"`{name}`")),
            sf.when(~sf.col(DELETED) & ~_is_unavailable(sf.col(f"`{name}`"), unavailable), order_of_rows),
        ).alias(f"{_KNOWN}{index}")
        for index, name in enumerate(fillable)
    ]
    last = rows.groupBy(*keys).agg(
        last_row.alias(_ROW), sf.min(place).alias(_FIRST), sf.max(place).alias(_LAST), *known
    )
    moved = sf.lit(
        f"a key of the table {sink.table} has records in two partitions, and offsets do not say which is the last: "
        "name a column that does, as version"
    )
    # What is computed from the check cannot be left out by the optimizer.
    last = last.withColumn(
        _ROW, sf.when(sf.col(_FIRST) == sf.col(_LAST), sf.col(_ROW)).otherwise(sf.raise_error(moved))
    )
    values = {name: sf.col(f"{_ROW}.`{name}`") for name in rows.columns if name not in sink.omit}
    for index, name in enumerate(fillable):
        found = sf.col(f"{_KNOWN}{index}")
        is_filled = found.isNotNull() & _is_unavailable(values[name], unavailable)
        values[name] = sf.when(is_filled, found.getField(name)).otherwise(values[name])
    last = last.select(*(value.alias(name) for name, value in values.items()))
    if sink.version is not None:
        last = last.withColumn(DELETED_AT, sf.when(sf.col(DELETED), sf.current_timestamp()))
    return last


def collected(rows: DataFrame, schema: pa.Schema) -> pa.Table:
    """In the driver, with times in UTC; `schema` is that of rows without `DELETED`."""
    import pyarrow as pa

    whole = schema.append(pa.field(DELETED, pa.bool_()))
    return rows.select(*(f"`{name}`" for name in whole.names)).toArrow().cast(whole)


def may_be_unavailable(schema: pa.Schema, sink: TableSink) -> list[str]:
    """Columns in which a text can stand for what was there before."""
    import pyarrow as pa

    kinds = (pa.string(), pa.binary())
    return [field.name for field in schema if field.type in kinds and field.name not in (*sink.merge_on, sink.version)]


def check_partitions_stay(spark: SparkSession, checkpoint: str, number: int) -> None:
    """Spark writes the offsets of a batch before it runs, and keeps those of the batch before."""
    before, now = _offsets(spark, checkpoint, number - 1), _offsets(spark, checkpoint, number)
    for topic, partitions in now.items():
        new = partitions - before.get(topic, partitions)
        if new:
            raise LandingError(
                f"the topic {topic} got the partitions {', '.join(sorted(new))}: keys may have moved to them, and the "
                "offsets of two partitions do not say which record is the last. Name a column that does, as version, "
                "or fill another table from the beginning"
            )


def _fillable(rows: DataFrame, sink: TableSink) -> list[str]:
    fixed = (*sink.merge_on, *sink.omit, sink.version)
    return [name for name, kind in rows.dtypes if kind in ("string", "binary") and name not in fixed]


def _is_unavailable(value: Column, texts: Collection[str]) -> Column:
    from pyspark.sql import functions as sf

    return sf.coalesce(value.cast("string").isin(*texts), sf.lit(False))


def _check_columns(rows: DataFrame, sink: TableSink) -> None:
    wanted = [*sink.merge_on, *sink.omit]
    wanted += [sink.version] if sink.version is not None else ["partition", "offset"]
    missing = [name for name in dict.fromkeys(wanted) if name not in rows.columns]
    if missing:
        raise LandingError(
            f"to merge into the table {sink.table} the rows need the columns {', '.join(missing)}; they have "
            f"{', '.join(rows.columns)}: let the transform select them (`omit` keeps a column out of the table)"
        )


def _never_null(sink: TableSink, name: str) -> Column:
    from pyspark.sql import functions as sf

    message = f"a row for the table {sink.table} has no {name}, by which it would be merged: filter or fill such rows"
    return sf.coalesce(sf.col(f"`{name}`"), sf.raise_error(sf.lit(message)))


def _offsets(spark: SparkSession, checkpoint: str, number: int) -> dict[str, set[str]]:
    """The partitions of each topic that a batch knows of."""
    from pyspark.errors import AnalysisException

    try:
        lines = [row.value for row in spark.read.text(f"{checkpoint}/offsets/{number}").collect()]
    except AnalysisException:  # There is no such batch.
        return {}
    found: dict[str, set[str]] = {}
    for line in lines[2:]:  # Behind the version and the batch's own settings.
        if line.startswith("{"):
            for topic, partitions in json.loads(line).items():
                found.setdefault(topic, set()).update(partitions)
    return found

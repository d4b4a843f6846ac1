"""The sides of an audit as DataFrames: opened, not yet read."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tailrace.spark.audit import history
from tailrace.spark.audit.declaration import Audit, HistorySide, Side, TableSide, TopicSide
from tailrace.spark.audit.rows import record_rows
from tailrace.spark.pipelines.reading import pin, read_table
from tailrace.spark.source.offsets import OffsetRange

_PARTITION = "concat(topic, '-', partition)"
# What a history says of a record is its value and, if it was acknowledged, its place.
_VALUE = "value"
_PLACE = f"concat({_PARTITION}, '@', offset)"


class OpenSide(NamedTuple):
    name: str  # such as "topic orders"
    rows: DataFrame  # as `rows.record_rows` gives them
    # partition, offset and time of each record, to be counted; None for a history, which is no log.
    records: DataFrame | None = None
    has_positions: bool = True
    # Whether offsets without a record mean anything: not where a condition leaves records out.
    has_gaps: bool = False
    # Of a topic: the offsets between which its records stand.
    ranges: tuple[OffsetRange, ...] = ()


def open_sides(spark: SparkSession, audit: Audit) -> tuple[OpenSide, OpenSide]:
    """(expected, actual). Offsets of topics are fixed here."""
    if isinstance(audit.expected, HistorySide):
        assert isinstance(audit.actual, TopicSide)
        return _open_history(spark, audit.expected, audit.actual), _open_topic(
            spark, audit.actual, by=(_VALUE,), compare=(_PLACE,)
        )
    return _open(spark, audit.expected), _open(spark, audit.actual)


def side_name(side: Side) -> str:
    match side:
        case TopicSide():
            return f"topic {side.topic}"
        case TableSide():
            return f"table {side.table}"
        case HistorySide():
            return f"history {side.history}"


def _open(spark: SparkSession, side: TopicSide | TableSide) -> OpenSide:
    if isinstance(side, TopicSide):
        return _open_topic(spark, side, by=side.by, compare=side.compare)
    frame = read_table(spark, side)
    columns = {"partition": side.partition, "offset": side.offset, "time": side.time}
    return OpenSide(
        side_name(side),
        record_rows(
            frame,
            by=side.by,
            compare=side.compare,
            order_by=side.order_by,
            partition=side.partition,
            offset=side.offset,
        ),
        frame.select(*(sf.expr(text or "NULL").alias(name) for name, text in columns.items())).select(
            sf.col("partition").cast("string"), sf.col("offset").cast("bigint"), sf.col("time").cast("timestamp")
        ),
        has_positions=side.partition is not None,
        has_gaps=side.partition is not None and side.where is None,
    )


def _open_topic(spark: SparkSession, side: TopicSide, *, by: tuple[str, ...], compare: tuple[str, ...]) -> OpenSide:
    pinned = pin(side)
    positions = pinned
    if side.where is None and "columns" not in side.options:
        # Keys and values are neither decoded nor handed to the JVM only to be counted.
        positions = pinned._replace(options=pinned.options | {"columns": "topic,partition,offset,timestamp"})
    return OpenSide(
        side_name(side),
        record_rows(
            pinned.read(spark),
            by=by,
            compare=compare,
            order_by=side.order_by,
            partition=_PARTITION,
            offset="offset",
        ),
        positions.read(spark).select(
            sf.expr(_PARTITION).alias("partition"), sf.col("offset"), sf.col("timestamp").alias("time")
        ),
        has_gaps=side.where is None,
        ranges=pinned.ranges,
    )


def _open_history(spark: SparkSession, side: HistorySide, topic: TopicSide) -> OpenSide:
    events = history.read_events(spark, side.history)
    history.check_events(events, side.history)
    rows = history.sent_rows(history.sends(events), topic.topic, at_read_committed=topic.is_read_committed)
    return OpenSide(side_name(side), rows)

"""The sides of an audit as DataFrames: opened, not yet read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tailrace.spark.audit import history
from tailrace.spark.audit.declaration import Audit, HistorySide, TableSide, TopicSide
from tailrace.spark.audit.rows import record_rows
from tailrace.spark.options.names import VALUES
from tailrace.spark.pipelines.reading import pin, read_table
from tailrace.spark.source.offsets import OffsetRange

_PARTITION = "concat(topic, '-', partition)"
# What a history says of a record is its value and, if it was acknowledged, its place.
_VALUE = "value"
_PLACE = f"concat({_PARTITION}, '@', offset)"
_DECODING = frozenset(name.lower() for name in (*VALUES, "columns", "includeHeaders"))


class OpenSide(NamedTuple):
    name: str  # such as "topic orders"
    rows: DataFrame  # as `rows.record_rows` gives them
    # partition, offset and time of each record, to be counted; None for a history, which is no log.
    records: DataFrame | None = None
    has_positions: bool = True
    # Whether offsets without a record mean anything: not where a condition leaves records out.
    has_gaps: bool = False
    # For a topic only: the offsets between which its records stand.
    ranges: tuple[OffsetRange, ...] = ()


def open_sides(spark: SparkSession, audit: Audit) -> tuple[OpenSide, OpenSide]:
    """(expected, actual). Offsets of topics are fixed here. The order to be kept is that of the expected side."""
    expected, actual = audit.expected, audit.actual
    if isinstance(expected, HistorySide):
        assert isinstance(actual, TopicSide)
        by_value = replace(actual, by=(_VALUE,), compare=(_PLACE,), order_by=())
        return _open_history(spark, expected, actual), _open_topic(spark, by_value)
    return _open(spark, expected), _open(spark, replace(actual, order_by=()))


def _open(spark: SparkSession, side: TopicSide | TableSide) -> OpenSide:
    if isinstance(side, TopicSide):
        return _open_topic(spark, side)
    frame = read_table(spark, side)
    columns = {"partition": side.partition, "offset": side.offset, "time": side.time}
    return OpenSide(
        str(side),
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


def _open_topic(spark: SparkSession, side: TopicSide) -> OpenSide:
    if any(re.search(r"\bheaders\b", each) for each in (*side.by, *side.compare, *side.order_by, side.where or "")):
        side = replace(side, options={"includeHeaders": "true", **side.options})
    pinned = pin(side)
    positions = pinned
    if side.where is None:
        # Keys and values are neither decoded nor handed to the JVM only to be counted.
        undecoded = {name: text for name, text in pinned.options.items() if name.lower() not in _DECODING}
        positions = pinned._replace(options=undecoded | {"columns": "topic,partition,offset,timestamp"})
    return OpenSide(
        str(side),
        record_rows(
            pinned.read(spark),
            by=side.by,
            compare=side.compare,
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
    return OpenSide(str(side), rows)

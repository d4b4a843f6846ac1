"""Backfill and replay: a range of a topic, or a table, written to a topic once more.

A range of a topic is a pipeline with an end: it goes through `run` in batches, and a run that was interrupted goes on
from its checkpoint. A table is one write, which under exactly-once happens as a whole or not at all: repeated under the
same name, it is finished or found done. With `only_missing` both are one write of what the target lacks, which can be
repeated for another reason: what it wrote is not missing any more.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as sf

from tailrace.model.errors import KafkaError
from tailrace.spark.audit.rows import digest
from tailrace.spark.pipelines.declaration import DeclarationError, TopicSink, check_name
from tailrace.spark.pipelines.progress import BatchProgress, RunSummary
from tailrace.spark.pipelines.reading import Pinned, TableScan, TopicRange, pin, read_table
from tailrace.spark.pipelines.rows import topic_rows
from tailrace.spark.pipelines.run import run_query
from tailrace.spark.session import session, use_in_this_thread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.readwriter import DataStreamWriter

OnProgress = Callable[[BatchProgress], None]

_COPIED = ("key", "value", "headers")
_IDENTITY = ("key", "value")
# A batch under a rate limit is to be done in about this time, so that progress is seen and a stop does not take long.
_LIMITED_BATCH_S = 5.0
# Rows are let through in steps, ten a second.
_STEPS_PER_SECOND = 10
_PROGRESS_EVERY_S = 1.0


@dataclass(frozen=True)
class Backfill:
    source: TopicRange | TableScan
    # A range of a topic is copied as it is (key, value, headers) unless the sink says otherwise; a table needs a column
    # `value`, or format = "json", which makes one of all its columns.
    sink: TopicSink
    name: str
    bootstrap: str  # the sink's
    # Where a replay remembers how far it came. Needed for a range of a topic.
    checkpoint: str | None = None
    # How many records a second are written at most; they then go through one task, so that the limit holds.
    records_per_second: int | None = None
    batch_records_max: int = 200_000
    # Each record keeps the number of its partition; the target must have as many.
    keep_partitions: bool = False
    # Only what the target does not have, compared by key and value, as often as the source has it.
    only_missing: bool = False
    kafka: Mapping[str, str] = field(default_factory=dict)  # the sink's
    spark: Mapping[str, str] = field(default_factory=dict)  # settings of the session

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.records_per_second is not None and self.records_per_second < 1:
            raise DeclarationError("a limit below 1 record a second would stop it: leave it out", "records_per_second")
        if self.batch_records_max < 1:
            raise DeclarationError(
                f"{self.batch_records_max} records are no batch: give 1 or more", "batch_records_max"
            )
        if isinstance(self.source, TopicRange):
            if self.sink.topic in self.source.topic.split(",") and self.source.bootstrap == self.bootstrap:
                raise DeclarationError("the topic would be copied into itself: name another one", "sink")
            if not self.checkpoint and not self.only_missing:
                raise DeclarationError(
                    "without a checkpoint an interrupted replay would begin anew: give a path", "checkpoint"
                )
        elif self.keep_partitions:
            raise DeclarationError("the rows of a table have no partitions to keep", "keep_partitions")

    def __str__(self) -> str:
        return f"{self.source} -> topic {self.sink.topic}"

    @property
    def is_repeatable(self) -> bool:
        """Whether a run that failed may run again without writing anything twice: all but a table at least once."""
        return isinstance(self.source, TopicRange) or self.only_missing or self.sink.exactly_once

    @property
    def sink_options(self) -> dict[str, str]:
        return {
            **{f"kafka.{name}": value for name, value in self.kafka.items()},
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.sink.topic,
            **self.sink.options,
        }


def run_backfill(
    backfill: Backfill,
    spark: SparkSession | None = None,
    *,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
) -> RunSummary:
    """Returns when all is written; a replay also after the batch in which `stop` is set. Raises DeclarationError,
    OptionError and KafkaError, or what pyspark raises if a task fails."""
    spark = spark or session(backfill.name, settings=backfill.spark)
    use_in_this_thread(spark)
    source = backfill.source
    if isinstance(source, TableScan):
        return _write_once(backfill, read_table(spark, source), spark, on_progress)
    pinned = pin(replace(source, options={"includeHeaders": "true", **source.options}))
    if backfill.only_missing:
        return _write_once(backfill, _copied(backfill, pinned.read(spark)), spark, on_progress)
    writer = _replay(backfill, source, pinned, spark)
    return run_query(
        spark, backfill.name, lambda name: writer.queryName(name).start(), on_progress=on_progress, stop=stop
    )


def _replay(backfill: Backfill, source: TopicRange, pinned: Pinned, spark: SparkSession) -> DataStreamWriter:
    options = pinned.stream_options | {"maxOffsetsPerTrigger": str(batch_records(backfill))}
    rows = spark.readStream.format("tailrace").options(**options).load()
    rows = _copied(backfill, rows if source.where is None else rows.where(source.where))
    written = _limited(topic_rows(rows, backfill.sink), backfill.records_per_second)
    return (
        written.writeStream.format("tailrace")
        .options(**backfill.sink_options, exactlyOnce=str(backfill.sink.exactly_once).lower())
        .option("checkpointLocation", str(backfill.checkpoint))
        .trigger(availableNow=True)
    )


def _write_once(backfill: Backfill, rows: DataFrame, spark: SparkSession, on_progress: OnProgress | None) -> RunSummary:
    rows = topic_rows(rows, backfill.sink)
    options = backfill.sink_options
    if backfill.only_missing:
        rows = missing(rows, _target(backfill, spark))
    elif backfill.sink.exactly_once:
        options |= {"exactlyOnce": "true", "exactlyOnceId": backfill.name}
    started = time.monotonic()
    counted = Observation()
    rows = _limited(rows.observe(counted, sf.count(sf.lit(1)).alias("rows")), backfill.records_per_second)
    with _Watch(backfill, on_progress):
        rows.write.format("tailrace").options(**options).mode("append").save()
    return RunSummary(batches=1, rows=counted.get["rows"], duration_ms=int((time.monotonic() - started) * 1000))


def missing(rows: DataFrame, there: DataFrame) -> DataFrame:
    """The rows that `there` does not have, by key and value. What stands in `rows` twice and there once is missing
    once."""
    wanted = rows.withColumns(_numbered(rows))
    found = there.select(*(column.alias(name) for name, column in _numbered(there).items()))
    return wanted.join(found, ["_identity", "_copy"], "left_anti").select(*rows.columns)


def throttle(records_per_second: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Lets rows pass no faster than this, in one task."""
    step = max(1, records_per_second // _STEPS_PER_SECOND)
    started = time.monotonic()
    passed = 0
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            passed += piece.num_rows
            time.sleep(max(0.0, started + passed / records_per_second - time.monotonic()))
            yield piece


def _limited(rows: DataFrame, records_per_second: int | None) -> DataFrame:
    if records_per_second is None:
        return rows
    # Several tasks would each need to know how many of them run at a time, which Spark does not tell.
    return rows.coalesce(1).mapInArrow(partial(throttle, records_per_second), rows.schema)


def batch_records(backfill: Backfill) -> int:
    if backfill.records_per_second is None:
        return backfill.batch_records_max
    return min(backfill.batch_records_max, math.ceil(backfill.records_per_second * _LIMITED_BATCH_S))


def _copied(backfill: Backfill, rows: DataFrame) -> DataFrame:
    names = (*_COPIED, "partition") if backfill.keep_partitions else _COPIED
    return rows.select(*(name for name in names if name in rows.columns))


def _target(backfill: Backfill, spark: SparkSession) -> DataFrame:
    target = TopicRange(backfill.sink.topic, backfill.bootstrap, kafka=backfill.kafka)
    return pin(target).read(spark).select(*_IDENTITY)


def _numbered(rows: DataFrame) -> dict[str, Column]:
    identity = digest(rows, [name if name in rows.columns else "CAST(NULL AS BINARY)" for name in _IDENTITY])
    return {"_identity": identity, "_copy": sf.row_number().over(Window.partitionBy(identity).orderBy(sf.lit(0)))}


class _Watch:
    """While one write runs, tells every second how much its target has grown: Spark says nothing before the end."""

    def __init__(self, backfill: Backfill, on_progress: OnProgress | None) -> None:
        self._backfill = backfill
        self._on_progress = on_progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="backfill progress", daemon=True)

    def __enter__(self) -> None:
        if self._on_progress is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._on_progress is not None:
            self._thread.join()

    def _tell(self) -> None:
        assert self._on_progress is not None
        seen, seen_at = self._written(), time.monotonic()
        is_done = False
        while not is_done:
            is_done = self._done.wait(_PROGRESS_EVERY_S)
            written, now = self._written(), time.monotonic()
            if written is not None:
                self._on_progress(_progress(self._backfill.name, written - (seen or 0), now - seen_at))
                seen, seen_at = written, now

    def _written(self) -> int | None:
        """All that was ever written to the target, what is not committed yet too. None if nobody can say: whether the
        brokers can be reached is for the write itself to find out."""
        uncommitted = {**self._backfill.kafka, "isolation.level": "read_uncommitted"}
        target = TopicRange(self._backfill.sink.topic, self._backfill.bootstrap, kafka=uncommitted)
        try:
            return sum(each.end for each in pin(target).ranges)
        except KafkaError:
            return None


def _progress(name: str, rows: int, duration_s: float) -> BatchProgress:
    return BatchProgress(
        pipeline=name,
        query_id="",
        batch=0,
        timestamp=datetime.now(UTC).isoformat(timespec="milliseconds"),
        rows=rows,
        rows_per_second=round(rows / max(duration_s, 1e-6), 1),
        duration_ms=int(duration_s * 1000),
        lag=None,
        watermark=None,
        state_rows=0,
        late_rows=0,
    )

"""From a declaration to a query that only has to be started: rows, sink, checkpoint and trigger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.spark.pipelines.beside.attempts import new_run, note_attempt
from tailrace.spark.pipelines.changes.debezium import unavailable_texts
from tailrace.spark.pipelines.checkpoint import read_query_id, remembered_topic_ids, running_query_id
from tailrace.spark.pipelines.declaration import AVAILABLE_NOW, DeclarationError, Pipeline, TableSink, TopicSink
from tailrace.spark.pipelines.landing.batches import Landing
from tailrace.spark.pipelines.landing.evolution import conformed, evolved
from tailrace.spark.pipelines.landing.partitioning import partition_rows
from tailrace.spark.pipelines.rows import pipeline_rows, topic_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def pipeline_writer(spark: SparkSession, pipeline: Pipeline, *, once: bool = False) -> DataStreamWriter:
    """Raises DeclarationError."""
    run = new_run(pipeline)
    rows = pipeline_rows(spark, pipeline, remembered_topic_ids(spark, pipeline), run)
    if not rows.isStreaming:
        raise DeclarationError("the transform gives rows that do not come from a source: a pipeline is a stream")
    if any(source.dead_letters for source in pipeline.sources.values()):
        note_attempt(spark, pipeline, rows, run)
    sink = pipeline.sink
    if isinstance(sink, TopicSink):
        writer = _topic_writer(rows, pipeline, sink)
    elif sink.format == "parquet":
        writer = _parquet_writer(spark, rows, pipeline, sink)
    else:
        unavailable = unavailable_texts(pipeline.sources.values())
        landing = Landing(pipeline.name, pipeline.checkpoint, sink, unavailable=unavailable)
        writer = rows.writeStream.foreachBatch(landing)
    writer = writer.option("checkpointLocation", pipeline.checkpoint)
    if once or pipeline.trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=pipeline.trigger) if pipeline.trigger else writer


def _topic_writer(rows: DataFrame, pipeline: Pipeline, sink: TopicSink) -> DataStreamWriter:
    exactly_once = str(sink.exactly_once).lower()
    options = {**pipeline.kafka_options, "topic": sink.topic, "exactlyOnce": exactly_once, **sink.options}
    writer = topic_rows(rows, sink).writeStream.outputMode(sink.mode)
    if sink.mode == "update":
        return writer.foreachBatch(_TopicUpdates(pipeline.checkpoint, options))
    return writer.format("tailrace").options(**options)


class _TopicUpdates:
    """Spark refuses the mode `update` for every sink in Python, so each batch is a write of its own; that it is the
    query's, and which one, makes it the same exactly-once. It is pickled: see `Landing`."""

    def __init__(self, checkpoint: str, options: Mapping[str, str]) -> None:
        self._checkpoint = checkpoint
        self._options = options

    def __call__(self, rows: DataFrame, number: int) -> None:
        writer = rows.write.format("tailrace").mode("append").options(**self._options)
        if self._options["exactlyOnce"] == "true":
            query_id = running_query_id(rows.sparkSession, self._checkpoint)
            writer = writer.options(exactlyOnceId=query_id, exactlyOnceBatch=str(number))
        writer.save()


def _parquet_writer(spark: SparkSession, rows: DataFrame, pipeline: Pipeline, sink: TableSink) -> DataStreamWriter:
    _check_parquet_checkpoint(spark, pipeline, sink)
    if sink.evolve == "add":
        rows = _grown(spark, rows, sink)
    rows = partition_rows(rows, sink.partitions)
    columns = [partition.name for partition in sink.partitions]
    writer = rows.writeStream.format("parquet").options(**sink.options).option("path", sink.table)
    return writer.partitionBy(*columns) if columns else writer


def _grown(spark: SparkSession, rows: DataFrame, sink: TableSink) -> DataFrame:
    """Each file has its own columns, and readers merge them: only what they could not merge is in the way."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    try:
        found = spark.read.option("mergeSchema", "true").parquet(sink.table).schema
    except AnalysisException:  # There are no files yet.
        return rows
    # What is a part of paths has no type there.
    parts = {partition.name for partition in sink.partitions}
    there = StructType([field for field in found.fields if field.name not in parts])
    given = StructType([field for field in rows.schema.fields if field.name not in parts])
    wanted = evolved(sink.table, there, given)
    own = [field for field in rows.schema.fields if field.name in parts]
    return conformed(rows, StructType([*wanted.fields, *own]))


def _check_parquet_checkpoint(spark: SparkSession, pipeline: Pipeline, sink: TableSink) -> None:
    """Spark's own sink remembers the numbers of batches beside the table. A new checkpoint counts from 0 again, and
    its batches would be skipped in silence: lost."""
    from pyspark.errors import AnalysisException

    if read_query_id(spark, pipeline.checkpoint) is not None:
        return
    try:
        spark.read.text(f"{sink.table}/_spark_metadata").isEmpty()
    except AnalysisException:  # There is no such folder.
        return
    raise DeclarationError(
        f"the table {sink.table} was filled under another checkpoint than {pipeline.checkpoint}, which is new: Spark "
        "would take its first batches for done, and skip them. Give it the old checkpoint, or another table",
        "checkpoint",
    )

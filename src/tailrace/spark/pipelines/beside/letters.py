"""Dead letters as the records that they were: with the columns of their source, and which of them count.

Functions of DataFrames. A letter counts if the attempt that wrote it is the one whose batch is in the sink; those of a
batch that is not committed yet are left for later. Letters without a run (of a bare stream, or of an older version)
count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from tailrace.spark.pipelines.beside.attempts import Verdict
from tailrace.spark.pipelines.declaration import Pipeline, TopicSource
from tailrace.spark.pipelines.reading import Pinned, TopicRange, pin
from tailrace.spark.pipelines.rows import source_options
from tailrace.spark.source.schema import parse_record_format
from tailrace.spark.values.dead_letters import (
    HEADER_BATCH,
    HEADER_OFFSET,
    HEADER_PARTITION,
    HEADER_RUN,
    HEADER_TIMESTAMP,
    HEADER_TOPIC,
)
from tailrace.spark.values.record_format import RecordFormat, decode_batch

if TYPE_CHECKING:
    import pyarrow as pa

ORIGIN = ("topic", "partition", "offset")
# Why the present declaration cannot read it; null if it can.
PROBLEM = "_tailrace_problem"
_RUN, _BATCH = "_tailrace_run", "_tailrace_batch"
_PREFIX = "tailrace.deadletter."
_RECORD = ("key", "value", *ORIGIN, "timestamp", "timestampType", "headers")


def pin_letters(pipeline: Pipeline, source: TopicSource) -> Pinned:
    """The letters that are there now: the topic may grow meanwhile. Raises OptionError and KafkaError."""
    assert source.dead_letters is not None
    return pin(
        TopicRange(source.dead_letters, pipeline.bootstrap, kafka=pipeline.kafka, options={"includeHeaders": "true"})
    )


def records(spark: SparkSession, pinned: Pinned, pipeline: Pipeline, source: TopicSource) -> DataFrame:
    """One row for each letter of this source; several of one record may be there, of different attempts."""
    topics = [topic.strip() for topic in source.topic.split(",")]
    rows = pinned.read(spark).select(
        "key",
        "value",
        _header(HEADER_TOPIC).alias("topic"),
        _header(HEADER_PARTITION).cast("int").alias("partition"),
        _header(HEADER_OFFSET).cast("long").alias("offset"),
        sf.timestamp_millis(_header(HEADER_TIMESTAMP).cast("long")).alias("timestamp"),
        "timestampType",
        sf.filter("headers", lambda each: ~each["key"].startswith(_PREFIX)).alias("headers"),
        _header(HEADER_RUN).alias(_RUN),
        _header(HEADER_BATCH).cast("int").alias(_BATCH),
    )
    is_ours = sf.col(_RUN).isNull() | sf.col(_RUN).startswith(f"{pipeline.name}/")
    return rows.where(sf.col("topic").isin(topics) & sf.col("offset").isNotNull() & is_ours)


def is_waiting(committed: int) -> Column:
    """Of a batch that may run again."""
    return sf.coalesce(sf.col(_BATCH) > committed, sf.lit(False))


def is_in_doubt(verdicts: Mapping[int, Verdict]) -> Column:
    doubtful = [batch for batch, verdict in verdicts.items() if verdict.is_in_doubt]
    return sf.coalesce(sf.col(_BATCH).isin(doubtful), sf.lit(False)) if doubtful else sf.lit(False)


def counts(verdicts: Mapping[int, Verdict]) -> Column:
    """Whether its attempt is the one that is in the sink."""
    found = sf.lit(True)
    for batch, verdict in verdicts.items():
        run = sf.coalesce(sf.col(_RUN), sf.lit(""))
        is_right = run == verdict.counts if verdict.counts is not None else ~run.isin(list(verdict.others))
        found = sf.when(sf.col(_BATCH) == batch, is_right).otherwise(found)
    return found


def once_each(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(list(ORIGIN)).select(*_RECORD)


def decoded(rows: DataFrame, pipeline: Pipeline, source: TopicSource) -> DataFrame:
    """By the present declaration: what cannot be read has a PROBLEM."""
    options = {**pipeline.kafka_options, **source_options(replace(source, dead_letters=None, on_bad_record="null"))}
    record_format = parse_record_format({name.lower(): text for name, text in options.items()})
    assert record_format is not None, "the declaration has seen to it"
    fields = [
        StructField(field.name, record_format.spark_type(field.name) or field.dataType) for field in rows.schema.fields
    ]
    schema = StructType([*fields, StructField(PROBLEM, StringType())])
    return rows.mapInArrow(partial(_decode, record_format), schema)


def _decode(record_format: RecordFormat, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    formats = {"key": record_format.key, "value": record_format.value}
    decoders = {name: found.decoder() for name, found in formats.items() if found is not None}
    for batch in batches:
        found = decode_batch(batch, batch.schema.names, decoders)
        problems = [found.bad[row].reason if row in found.bad else None for row in range(batch.num_rows)]
        columns = [*found.batch.columns, pa.array(problems, pa.string())]
        yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, PROBLEM])


def _header(name: str) -> Column:
    """The last of this name: one that went through twice has it twice."""
    named = sf.filter("headers", lambda each: each["key"] == name)
    return sf.try_element_at(named, sf.lit(-1))["value"].cast("string")

"""DataFrames of a pipeline: from its sources, through its transform, to what its sink takes.

Functions of DataFrames only: nothing is read or written here, and nothing depends on whether Spark is local, a
cluster or a Connect server.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tailrace.spark.pipelines.changes.debezium import envelope_schema, opened_changes
from tailrace.spark.pipelines.declaration import (
    EVENT_TIME,
    DeclarationError,
    Pipeline,
    TopicSink,
    TopicSource,
    Transform,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# What a transaction has aborted is no part of a topic, unless the pipeline's settings say so.
_DEFAULTS = {"kafka.isolation.level": "read_committed"}


def pipeline_rows(
    spark: SparkSession, pipeline: Pipeline, topic_ids: Mapping[str, str], run: str | None = None
) -> DataFrame:
    """`topic_ids` are those of the topics that the checkpoint is about; `run` is what dead letters say of theirs."""
    options = pipeline.kafka_options | {"topicIds": json.dumps(topic_ids)}
    of_run = {} if run is None else {"deadLetterRun": run}
    sources = {
        name: source_rows(spark, source, options | (of_run if source.dead_letters else {}))
        for name, source in pipeline.sources.items()
    }
    if pipeline.transform is None:
        (rows,) = sources.values()
        return rows
    return transformed(spark, pipeline.transform, sources, pipeline.folder)


def source_rows(spark: SparkSession, source: TopicSource, kafka_options: Mapping[str, str]) -> DataFrame:
    from pyspark.sql import functions

    options = {**_DEFAULTS, **kafka_options, **source_options(source)}
    rows = spark.readStream.format("tailrace").options(**options).load()
    if source.envelope is not None:
        rows = opened_changes(rows, source)
    if source.watermark is None:
        return rows
    rows = rows.withColumn(EVENT_TIME, functions.expr(source.time).cast("timestamp"))
    rows = rows.withWatermark(EVENT_TIME, source.watermark)
    if not source.deduplicate:
        return rows
    # Spark deduplicates by columns at the top only, and `value.id` is none.
    identity = [f"_identity_{index}" for index in range(len(source.deduplicate))]
    for name, expression in zip(identity, source.deduplicate, strict=True):
        rows = rows.withColumn(name, functions.expr(expression))
    return rows.dropDuplicatesWithinWatermark(identity).drop(*identity)


def source_options(source: TopicSource) -> dict[str, str]:
    """Options of format("tailrace"), except those of the connection."""
    on_decode_error = "deadletter" if source.dead_letters else source.on_bad_record
    options = {
        "subscribe": source.topic,
        "startingOffsets": source.starting,
        "value.format": source.format,
        "value.schema": envelope_schema(source) if source.envelope else source.schema,
        "onDecodeError": on_decode_error if source.format else None,
        "deadLetterTopic": source.dead_letters,
        "groupId": source.group,
        "maxOffsetsPerTrigger": source.batch_records_max,
    }
    return {name: str(value) for name, value in options.items() if value is not None} | dict(source.options)


def transformed(spark: SparkSession, transform: Transform, sources: Mapping[str, DataFrame], folder: str) -> DataFrame:
    if transform.sql is not None:
        return _queried(spark, transform.sql, sources)
    function = transform.function or _imported(str(transform.python), folder)
    rows = function(*sources.values())
    if not hasattr(rows, "writeStream"):
        raise DeclarationError(f"the transform {transform.python or function} returned {rows!r} and not a DataFrame")
    return rows  # type: ignore[no-any-return]


def _queried(spark: SparkSession, sql: str, sources: Mapping[str, DataFrame]) -> DataFrame:
    """The query sees the sources under their names, and nobody else does: another pipeline of this session may have
    sources of the same names. The views stay, since a Connect server looks at them whenever it needs the query."""
    private = {name: f"tailrace_{uuid.uuid4().hex}_{name}" for name in sources}
    for name, rows in sources.items():
        rows.createOrReplaceTempView(private[name])
    views = ", ".join(f"`{name}` AS (TABLE {view})" for name, view in private.items())
    return spark.sql(f"WITH {views} (\n{sql.strip().removesuffix(';')}\n)")


def _imported(name: str, folder: str) -> Any:
    from pyspark import cloudpickle

    module_name, _, function = name.partition(":")
    sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise DeclarationError(f"cannot import the transform {name}: {error} (looked in {folder}, too)") from error
    finally:
        sys.path.remove(folder)
    if not hasattr(module, function):
        raise DeclarationError(f"the module {module_name} has no function {function}")
    if str(module.__file__).startswith(folder):
        # Executors do not have the file: what they run of it, such as a UDF, is sent to them.
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return getattr(module, function)


def topic_rows(rows: DataFrame, sink: TopicSink) -> DataFrame:
    """The columns that the sink of format("tailrace") takes."""
    from pyspark.sql import functions

    columns = {} if sink.format else {name: functions.col(name) for name in rows.columns}
    if sink.key is not None:
        key = rows.select(functions.expr(sink.key).alias("key"))
        is_binary = dict(key.dtypes)["key"] == "binary"
        columns["key"] = functions.expr(sink.key) if is_binary else functions.expr(sink.key).cast("string")
    if sink.format == "json":
        columns["value"] = functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"})
    return rows.select(*(column.alias(name) for name, column in columns.items()))

"""What can be known of a pipeline before it runs: that its schemas are schemas, that its topics are there, and which
columns its transform gives to its sink. Nothing is read, written or remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.spark.blocking import BlockingCluster
from tailrace.spark.options.errors import OptionError
from tailrace.spark.options.kafka import parse_kafka_settings
from tailrace.spark.pipelines.declaration import DeclarationError, Pipeline, TableSink, TopicSource
from tailrace.spark.pipelines.landing.batches import DELETED
from tailrace.spark.pipelines.landing.merging import reduced
from tailrace.spark.pipelines.landing.partitioning import check_partitions, partition_rows
from tailrace.spark.pipelines.rows import pipeline_rows, source_options, topic_rows
from tailrace.spark.source.schema import topic_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_sources(pipeline: Pipeline) -> None:
    """Schemas, formats and options, without Spark and without a broker. Raises DeclarationError."""
    for name, source in pipeline.sources.items():
        options = pipeline.kafka_options | source_options(source)
        try:
            topic_schema({option.lower(): text for option, text in options.items()})
        except OptionError as error:
            raise DeclarationError(f"source {name}: {error}", "sources") from None


def find_topics(pipeline: Pipeline) -> Mapping[str, int | None]:
    """How many partitions each topic has that the pipeline names, None if it is not there. Raises KafkaError."""
    settings = parse_kafka_settings(pipeline.kafka_options)

    async def ask(topic: str) -> int | None:
        try:
            return len((await blocking.cluster.refresh([topic]))[topic].partitions)
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return None
            raise

    with BlockingCluster(settings) as blocking:
        timeout_ms = settings.limits.request_timeout_ms
        retried = blocking.cluster.with_retries
        return {
            topic: blocking.run(retried(lambda topic=topic: ask(topic), timeout_ms=timeout_ms))  # type: ignore[misc]
            for topic in dict.fromkeys(_named_topics(pipeline))
        }


def sink_columns(spark: SparkSession, pipeline: Pipeline) -> list[tuple[str, str]]:
    """Names and types, as the sink will have them. Raises DeclarationError, LandingError if they lack what they would
    be merged by, or AnalysisException if the SQL does not fit the sources."""
    rows: DataFrame = pipeline_rows(spark, pipeline, {})
    if not rows.isStreaming:
        raise DeclarationError("the transform gives rows that do not come from a source: a pipeline is a stream")
    sink = pipeline.sink
    if isinstance(sink, TableSink):
        if sink.merge_on:
            rows = reduced(rows, sink).drop(DELETED)
        check_partitions(rows, sink.partitions)
        return partition_rows(rows, sink.partitions).dtypes if sink.format != "iceberg" else rows.dtypes
    return topic_rows(rows, sink).dtypes


def _named_topics(pipeline: Pipeline) -> Iterator[str]:
    for source in pipeline.sources.values():
        yield from _topics_of(source)
    if not isinstance(pipeline.sink, TableSink):
        yield pipeline.sink.topic


def _topics_of(source: TopicSource) -> Iterator[str]:
    yield from (topic.strip() for topic in source.topic.split(","))
    if source.dead_letters is not None:
        yield source.dead_letters

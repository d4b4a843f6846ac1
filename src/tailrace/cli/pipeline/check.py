"""`tailrace pipeline check FILE`: says what a file declares, or what is wrong with it.

Of a pipeline it also parses the schemas, asks brokers for its topics, and lets Spark resolve its SQL. Nothing is read,
written or created.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.output import count_text
from tailrace.spark.pipelines.declaration import DeclarationError, Pipeline
from tailrace.spark.pipelines.document import PipelineFileError
from tailrace.spark.pipelines.failures import failure_text
from tailrace.spark.pipelines.parse import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.pipelines.parse import Job


def run(options: argparse.Namespace) -> int:
    job = loaded(options.file)
    print(f"{type(job).__name__.lower()} {job.name}: {job}")
    if not isinstance(job, Pipeline):
        return 0
    try:
        _check(job, is_offline=options.offline)
    except Exception as error:
        if (text := failure_text(error)) is None:
            raise
        raise CommandError(f"{options.file}: {text}") from None
    return 0


def loaded(file: str) -> Job:
    try:
        return load(file)
    except PipelineFileError as error:
        raise CommandError(str(error)) from None


def _check(pipeline: Pipeline, *, is_offline: bool) -> None:
    from tailrace.cli.pipeline.checking import check_sources, find_topics, sink_columns

    check_sources(pipeline)
    if is_offline:
        return
    topics = find_topics(pipeline)
    for topic, partitions in topics.items():
        print(f"topic {topic}: {'missing' if partitions is None else count_text(partitions, 'partition')}")
    missing = [topic for topic, partitions in topics.items() if partitions is None]
    if missing:
        raise DeclarationError(
            f"there is no topic {missing[0]}: correct its name, or create it with: tailrace topic create {missing[0]}"
        )
    print(f"{pipeline.sink}:")
    for name, kind in sink_columns(_session(pipeline), pipeline):
        print(f"  {name} {kind.upper()}")


def _session(pipeline: Pipeline) -> SparkSession:
    from tailrace.spark.session import JavaNotFoundError, session

    try:
        spark = session(pipeline.name, master="local[1]", settings={"spark.ui.enabled": "false", **pipeline.spark})
    except JavaNotFoundError as error:
        raise CommandError(f"{error}; or check without Spark and brokers: --offline") from None
    spark.sparkContext.setLogLevel("OFF")
    return spark

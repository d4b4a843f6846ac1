"""`tailrace pipeline compact FILE`: merges the small files that a stream leaves in a table."""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.output import count_text
from tailrace.cli.pipeline.check import loaded
from tailrace.spark.pipelines.declaration import Pipeline, TableSink
from tailrace.spark.pipelines.landing.batches import LandingError, lake_table

_NOT_PARQUET = (
    "files of a Parquet table cannot be merged: Spark's stream sink lists them one by one in _spark_metadata, and "
    "readers of the table follow that list. Use format delta or iceberg, or batches that are larger (trigger)"
)


def run(options: argparse.Namespace) -> int:
    job = loaded(options.file)
    if not isinstance(job, Pipeline) or not isinstance(job.sink, TableSink):
        raise CommandError(f"{options.file} declares no table")
    if job.sink.format == "parquet":
        raise CommandError(_NOT_PARQUET)
    try:
        done = lake_table(job.sink).compact(options.target_mb << 20)
    except LandingError as error:
        raise CommandError(str(error)) from None
    print(f"{count_text(done.removed, 'file')} of {job.sink.table} became {done.added:,}")
    return 0

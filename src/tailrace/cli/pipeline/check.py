"""`tailrace pipeline check FILE`: says what a file declares, or what is wrong with it."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.spark.pipelines.declaration import Pipeline, TableSink
from tailrace.spark.pipelines.document import PipelineFileError
from tailrace.spark.pipelines.parse import load

if TYPE_CHECKING:
    from tailrace.spark.pipelines.parse import Job


def run(options: argparse.Namespace) -> int:
    print(described(loaded(options.file)))
    return 0


def loaded(file: str) -> Job:
    try:
        return load(file)
    except PipelineFileError as error:
        raise CommandError(str(error)) from None


def described(job: Job) -> str:
    if not isinstance(job, Pipeline):
        kind = type(job).__name__.lower()
        return f"{kind} {job.name}: " + ", ".join(field.name for field in fields(job))
    sources = ", ".join(f"topic {source.topic}" for source in job.sources.values())
    sink = job.sink
    target = f"{sink.format} table {sink.table}" if isinstance(sink, TableSink) else f"topic {sink.topic}"
    return f"pipeline {job.name}: {sources} -> {target}, checkpoint {job.checkpoint}"

"""`tailrace pipeline check FILE`: says what a file declares, or what is wrong with it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.spark.pipelines.document import PipelineFileError
from tailrace.spark.pipelines.parse import load

if TYPE_CHECKING:
    from tailrace.spark.pipelines.parse import Job


def run(options: argparse.Namespace) -> int:
    job = loaded(options.file)
    print(f"{type(job).__name__.lower()} {job.name}: {job}")
    return 0


def loaded(file: str) -> Job:
    try:
        return load(file)
    except PipelineFileError as error:
        raise CommandError(str(error)) from None

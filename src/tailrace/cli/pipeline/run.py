"""`tailrace pipeline run FILE...`: runs what files declare, in one session of Spark, and shows how it goes.

The first Ctrl-C (or SIGTERM) lets the batches that are under way finish, and the exit code is 0; the second ends all at
once. Either way the next run goes on where this one was.

What passes by itself (a broker that is away, a worker that a busy machine could not start) is tried again, with pauses
that grow. One pipeline that fails does not end the others. The exit code tells a scheduler whether to run the command
again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from tailrace.cli import CommandError
from tailrace.cli.output import note
from tailrace.cli.pipeline.check import loaded
from tailrace.cli.pipeline.together import EXIT_TRANSIENT, Together
from tailrace.spark.audit import Audit
from tailrace.spark.pipelines.failures import failure_text, is_transient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.cli.pipeline.together import Stream
    from tailrace.spark.pipelines.parse import Job

# Each pipeline of several gets its share of the cores, whatever batches the others have.
_FAIR = {"spark.scheduler.mode": "FAIR"}


def run(options: argparse.Namespace) -> int:
    jobs = {file: _configured(loaded(file), dict(options.conf)) for file in options.file}
    streams = _streams(jobs)
    with ExitStack() as stack:
        metrics = stack.enter_context(_metrics_file(options.metrics)) if options.metrics else None
        # What cannot be listened at or written is told before Spark is started.
        together = Together(streams, options, metrics)
        if streams:
            stack.enter_context(together.told())
        spark = _session(options, list(jobs.values()))
        stack.callback(spark.stop)
        if streams:
            return together.run(spark)
        (file, audit), *_ = jobs.items()
        assert isinstance(audit, Audit)
        return _run_audit(file, audit, spark)


def _configured(job: Job, settings: Mapping[str, str]) -> Job:
    """The command line wins over the file."""
    return replace(job, spark={**job.spark, **settings})


def _streams(jobs: Mapping[str, Job]) -> dict[str, Stream]:
    """All but an audit, which runs alone."""
    streams = {file: job for file, job in jobs.items() if not isinstance(job, Audit)}
    if len(streams) < len(jobs) and len(jobs) > 1:
        raise CommandError("an audit ends by itself, with an exit code of its own: run its file alone")
    seen: dict[str, str] = {}
    for file, job in streams.items():
        for what in (f"name {job.name}", f"checkpoint {job.checkpoint}"):
            if what in seen and not what.endswith(" None"):
                raise CommandError(f"{seen[what]} and {file} have the same {what}: each pipeline needs its own")
            seen[what] = file
    return streams


def _session(options: argparse.Namespace, jobs: Sequence[Job]) -> SparkSession:
    from tailrace.spark.session import JavaNotFoundError, session

    settings = dict(_FAIR) if len(jobs) > 1 or getattr(jobs[0], "history", None) else {}
    name = ", ".join(job.name for job in jobs)
    for job in jobs:
        settings |= job.spark
    try:
        spark = session(name, master=options.master, remote=options.remote, settings=settings)
    except JavaNotFoundError as error:
        raise CommandError(str(error)) from None
    _check_shared(spark, jobs)
    if options.remote is None:
        spark.sparkContext.setLogLevel(options.log_level)
    return spark


def _check_shared(spark: SparkSession, jobs: Sequence[Job]) -> None:
    """Each has its own settings of those that a query takes; those of the session are one for all."""
    wanted: dict[str, tuple[str, str]] = {}
    for job in jobs:
        for key, value in job.spark.items():
            other, before = wanted.setdefault(key, (job.name, value))
            if before != value and not spark.conf.isModifiable(key):
                raise CommandError(
                    f"{other} wants {key} = {before}, and {job.name} {value}: pipelines that run together share it; "
                    "run one of them by a command of its own"
                )


def _run_audit(file: str, audit: Audit, spark: SparkSession) -> int:
    from tailrace.spark.audit import run_audit

    try:
        report = run_audit(audit, spark)
    except Exception as error:
        if (text := failure_text(error)) is None:
            raise
        if not is_transient(error):
            raise CommandError(f"{file}: {text}") from None
        note(f"tailrace: {file}: {text}; the same may succeed later")
        return EXIT_TRANSIENT
    print(report.text(), end="")
    return 0 if report.is_clean else 1


@contextmanager
def _metrics_file(name: str) -> Iterator[TextIO]:
    if name == "-":
        yield sys.stdout
        return
    try:
        file = open(name, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"cannot write {name}: {error.strerror}") from error
    with file:
        yield file

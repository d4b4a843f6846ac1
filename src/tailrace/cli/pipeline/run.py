"""`tailrace pipeline run FILE`: runs what a file declares, and shows how it goes.

The first Ctrl-C (or SIGTERM) lets the batch that is under way finish, and the exit code is 0; the second ends it at
once. Either way the next run goes on where this one was.

What passes by itself (a broker that is away, a worker that a busy machine could not start) is tried again, with pauses
that grow. The exit code tells a scheduler whether to run the command again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from tailrace.cli import CommandError
from tailrace.cli.output import note
from tailrace.cli.pipeline.check import loaded
from tailrace.cli.pipeline.display import Display
from tailrace.spark.audit import Audit
from tailrace.spark.pipelines import BatchProgress, Pipeline, RunSummary
from tailrace.spark.pipelines.failures import Retrying, RetryPolicy, failure_text, is_transient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.pipelines.backfill import Backfill
    from tailrace.spark.pipelines.parse import Job

# EX_TEMPFAIL of sysexits.h: a scheduler may run the command again.
EXIT_TRANSIENT = 75


def run(options: argparse.Namespace) -> int:
    job = _configured(loaded(options.file), dict(options.conf))
    with ExitStack() as stack:
        metrics = stack.enter_context(_metrics_file(options.metrics)) if options.metrics else None
        spark = _session(options, job)
        stack.callback(spark.stop)
        try:
            if isinstance(job, Audit):
                return _run_audit(job, spark)
            return _run_stream(job, spark, options, metrics)
        except Exception as error:
            if (text := failure_text(error)) is None:
                raise
            if not is_transient(error):
                raise CommandError(f"{options.file}: {text}") from None
            note(f"tailrace: {options.file}: {text}; the same may succeed later")
            return EXIT_TRANSIENT


def _configured(job: Job, settings: Mapping[str, str]) -> Job:
    """The command line wins over the file."""
    return replace(job, spark={**job.spark, **settings})


def _session(options: argparse.Namespace, job: Job) -> SparkSession:
    from tailrace.spark.session import JavaNotFoundError, session

    try:
        spark = session(job.name, master=options.master, remote=options.remote, settings=job.spark)
    except JavaNotFoundError as error:
        raise CommandError(str(error)) from None
    if options.remote is None:
        spark.sparkContext.setLogLevel(options.log_level)
    return spark


def _run_audit(audit: Audit, spark: SparkSession) -> int:
    from tailrace.spark.audit import run_audit

    report = run_audit(audit, spark)
    print(report.text(), end="")
    return 0 if report.is_clean else 1


def _run_stream(
    job: Pipeline | Backfill, spark: SparkSession, options: argparse.Namespace, metrics: TextIO | None
) -> int:
    from tailrace.spark.pipelines import run as run_pipeline
    from tailrace.spark.pipelines.backfill import run_backfill

    stop = threading.Event()
    policy = RetryPolicy(options.retries if isinstance(job, Pipeline) or job.is_repeatable else 0)
    with Display(job.name) as display, _stopped_by_signals(stop, display):

        def on_progress(progress: BatchProgress) -> None:
            retrying.progressed(progress)
            display.show(progress)
            if metrics is not None:
                metrics.write(json.dumps(progress._asdict()) + "\n")
                metrics.flush()

        def on_retry(error: Exception, failures: int, pause_s: float) -> None:
            again = f"trying again in {pause_s:.0f} s ({failures} of {policy.attempts_max})"
            display.say(f"{failure_text(error)}; {again}")

        def attempt() -> RunSummary:
            if isinstance(job, Pipeline):
                return run_pipeline(job, spark, once=options.once, on_progress=on_progress, stop=stop)
            return run_backfill(job, spark, on_progress=on_progress, stop=stop)

        retrying = Retrying(policy, stop, on_retry)
        summary = retrying.run(attempt)
    note(_summary_text(job.name, summary))
    return 0


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


@contextmanager
def _stopped_by_signals(stop: threading.Event, display: Display) -> Iterator[None]:
    """Spark has set a handler of its own, which would cancel the batch: it is put aside meanwhile."""

    def handle(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        display.say("finishing the batch; again to stop at once")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summary_text(name: str, summary: RunSummary) -> str:
    late = f", {summary.late_rows:,} too late for the watermark and left out" if summary.late_rows else ""
    lag = "" if summary.lag is None else f", {summary.lag:,} behind"
    batches = "1 batch" if summary.batches == 1 else f"{summary.batches:,} batches"
    return f"{name}: {summary.rows:,} rows in {batches}, {summary.duration_ms / 1000:,.1f} s of work{late}{lag}"

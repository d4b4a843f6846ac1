"""Several pipelines in one session of Spark, each in a thread of its own: what they share is the session, the display,
and the process that a signal ends.
"""

from __future__ import annotations

import argparse
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

from tailrace.cli import CommandError
from tailrace.cli.output import note
from tailrace.cli.pipeline.display import Display
from tailrace.real.runs.folder import (
    FOLDER_VARIABLE,
    RunFile,
    RunningError,
    forget_old_runs,
    list_target,
    run_key,
    runs_folder,
)
from tailrace.real.runs.status import State
from tailrace.spark.operating.monitor import Monitor, Place
from tailrace.spark.operating.telling import Telling
from tailrace.spark.pipelines.beside.history import history_checkpoint, history_name
from tailrace.spark.pipelines.declaration import Pipeline
from tailrace.spark.pipelines.failures import Retrying, RetryPolicy, failure_text, is_transient
from tailrace.spark.pipelines.progress import BatchProgress, RunSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark.pipelines.backfill import Backfill

    Stream: TypeAlias = Pipeline | Backfill

# EX_TEMPFAIL of sysexits.h: a scheduler may run the command again.
EXIT_TRANSIENT = 75
_FAILED = 1
_POLL_S = 0.2


class Together:
    def __init__(self, jobs: Mapping[str, Stream], options: argparse.Namespace, metrics: TextIO | None) -> None:
        """`jobs` by their files."""
        self._options = options
        self._metrics = metrics
        self._metrics_lock = threading.Lock()
        self._parts = [_Part(file, job, self) for file, job in jobs.items()]
        self._parts += [_HistoryPart(file, job, self) for file, job in jobs.items() if _has_history(job)]
        self._display = Display([each.name for each in self._parts])

    @contextmanager
    def told(self) -> Iterator[None]:
        """Others see these runs from here on, and nobody else can run the same. Raises CommandError."""
        folder = runs_folder()
        pipelines = {each.name: each.job for each in self._parts if each.is_watched and isinstance(each.job, Pipeline)}
        port = self._options.port
        monitor = Monitor(
            [each.telling for each in self._parts],
            pipelines,
            place=None if port is None else Place(self._options.host, port),
            on_stop=lambda telling: self._display.say("asked to stop: finishing the batch", telling.status.name),
            reads_checkpoints=self._options.remote is None,
        )
        with ExitStack() as stack:
            try:
                for each in self._parts:
                    stack.enter_context(each.file_of_run.hold())
            except RunningError as error:
                raise CommandError(f"{each.name} runs already, as {error}: `tailrace pipeline stop` ends it") from None
            except OSError as error:
                where = f"{error.filename or folder}: {error.strerror}"
                note(f"others will not see this run: {where}; {FOLDER_VARIABLE} names another folder")
            try:
                stack.enter_context(monitor)
            except OSError as error:
                reason = error.strerror or error
                raise CommandError(
                    f"cannot listen on {self._options.host}:{port}: {reason}; 0 is a free port"
                ) from None
            for each in self._parts:
                each.telling.begin(monitor.url)
            if monitor.url:
                note(f"metrics and health: {monitor.url}")
                first = self._parts[0]
                stack.enter_context(_listed(folder, run_key(first.name, first.telling.status.checkpoint), monitor.url))
            with suppress(OSError):
                forget_old_runs(folder)
            yield

    def run(self, spark: SparkSession) -> int:
        """Until all have ended. Gives the exit code."""
        threads = [
            threading.Thread(target=each.run, args=(spark,), name=each.name, daemon=True) for each in self._parts
        ]
        try:
            with self._display, self._stopped_by_signals():
                for thread in threads:
                    thread.start()
                for thread in threads:
                    while thread.is_alive():
                        thread.join(_POLL_S)  # Short, so that signals are seen.
        except KeyboardInterrupt:
            for each in self._parts:
                each.telling.end(State.STOPPED, "at once: a batch that was under way runs again")
            raise
        for each in self._parts:
            each.report()
        codes = {each.exit_code for each in self._parts}
        return next((code for code in (_FAILED, EXIT_TRANSIENT) if code in codes), 0)

    def show(self, progress: BatchProgress) -> None:
        self._display.show(progress)
        if self._metrics is not None:
            with self._metrics_lock:
                self._metrics.write(progress.as_line() + "\n")
                self._metrics.flush()

    def say(self, name: str, message: str) -> None:
        self._display.say(message, name)

    @property
    def pools(self) -> bool:
        """Whether each has a pool of Spark's scheduler, so that one large batch keeps nobody waiting."""
        return len(self._parts) > 1 and self._options.remote is None

    @property
    def is_once(self) -> bool:
        return bool(self._options.once)

    @property
    def retries(self) -> int:
        return int(self._options.retries)

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        """Spark has set a handler of its own, which would cancel the batch: it is put aside meanwhile."""
        is_told = False

        def handle(*_: object) -> None:
            nonlocal is_told
            if is_told:
                raise KeyboardInterrupt
            is_told = True
            # Not here: what a signal has interrupted may hold the lock that this takes.
            threading.Thread(target=self._wish_all_to_stop, daemon=True).start()

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wish_all_to_stop(self) -> None:
        self._display.say("finishing the batch; again to stop at once")
        for each in self._parts:
            each.telling.wish_to_stop()


class _Part:
    """One pipeline among them."""

    def __init__(self, file: str, job: Stream, together: Together) -> None:
        self.file = file
        self.job = job
        self.is_watched = self._is_watched()
        self.name, checkpoint = self._identity()
        self.file_of_run = RunFile(runs_folder(), self.name, checkpoint)
        self.telling = Telling(
            self.file_of_run,
            name=self.name,
            checkpoint=checkpoint,
            declared_in=str(Path(file).resolve()),
            summary=str(job),
            is_watched=self.is_watched,
        )
        self.exit_code = 0
        self._together = together
        self._last_words = ""

    def run(self, spark: SparkSession) -> None:
        try:
            summary = self._run(spark)
        except Exception as error:
            self._note_failure(error)
            return
        is_stopped = self.telling.stop.is_set()
        self.telling.end(State.STOPPED if is_stopped else State.DONE)
        self._last_words = _summary_text(self.name, summary)

    def _identity(self) -> tuple[str, str]:
        """Name and checkpoint."""
        return self.job.name, self.job.checkpoint or ""

    def _is_watched(self) -> bool:
        return isinstance(self.job, Pipeline)

    def report(self) -> None:
        """When the display is gone."""
        if self._last_words:
            note(self._last_words)

    def _run(self, spark: SparkSession) -> RunSummary:
        from tailrace.spark.session import use_in_this_thread

        use_in_this_thread(spark)
        job, stop = self.job, self.telling.stop
        if self._together.pools:
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        policy = RetryPolicy(self._together.retries if isinstance(job, Pipeline) or job.is_repeatable else 0)

        def on_progress(progress: BatchProgress) -> None:
            retrying.progressed(progress)
            self.telling.progressed(progress)
            self._together.show(progress)

        def on_retry(error: Exception, failures: int, pause_s: float) -> None:
            problem = failure_text(error) or str(error)
            self.telling.failed(problem)
            again = f"trying again in {pause_s:.0f} s ({failures} of {policy.attempts_max})"
            self._together.say(self.name, f"{problem}; {again}")

        retrying = Retrying(policy, stop, on_retry)
        return retrying.run(lambda: self._attempt(spark, on_progress))

    def _attempt(self, spark: SparkSession, on_progress: Callable[[BatchProgress], None]) -> RunSummary:
        from tailrace.spark.pipelines import run as run_pipeline
        from tailrace.spark.pipelines.backfill import run_backfill

        job, stop, on_sign = self.job, self.telling.stop, self.telling.sign
        if isinstance(job, Pipeline):
            once = self._together.is_once
            return run_pipeline(job, spark, once=once, on_progress=on_progress, on_sign=on_sign, stop=stop)
        return run_backfill(job, spark, on_progress=on_progress, stop=stop)

    def _note_failure(self, error: Exception) -> None:
        text = failure_text(error)
        self.exit_code = EXIT_TRANSIENT if is_transient(error) else _FAILED
        self.telling.end(State.FAILED, text or f"{type(error).__name__}: {error}")
        if text is None:
            self._last_words = "".join(traceback.format_exception(error)).rstrip()
        elif self.exit_code == EXIT_TRANSIENT:
            self._last_words = f"tailrace: {self.file}: {text}; the same may succeed later"
        else:
            self._last_words = f"tailrace: {self.file}: {text}"
        self._together.say(self.name, f"failed: {text or error}")


class _HistoryPart(_Part):
    """The past of a pipeline, beside its stream."""

    def _identity(self) -> tuple[str, str]:
        assert isinstance(self.job, Pipeline)
        return history_name(self.job), history_checkpoint(self.job)

    def _is_watched(self) -> bool:
        return False  # What it has to do has an end, and its batches say how much is left.

    def _attempt(self, spark: SparkSession, on_progress: Callable[[BatchProgress], None]) -> RunSummary:
        from tailrace.spark.pipelines.beside.history import run_history

        assert isinstance(self.job, Pipeline)
        return run_history(self.job, spark, on_progress=on_progress, on_sign=self.telling.sign, stop=self.telling.stop)


def _has_history(job: Stream) -> bool:
    return isinstance(job, Pipeline) and job.history is not None


@contextmanager
def _listed(folder: Path, key: str, url: str) -> Iterator[None]:
    """For Prometheus. Nothing ends for want of it."""
    with suppress(OSError):
        list_target(folder, key, url)
    yield
    with suppress(OSError):
        list_target(folder, key, None)


def _summary_text(name: str, summary: RunSummary) -> str:
    late = f", {summary.late_rows:,} too late for the watermark and left out" if summary.late_rows else ""
    lag = "" if summary.lag is None else f", {summary.lag:,} behind"
    batches = "1 batch" if summary.batches == 1 else f"{summary.batches:,} batches"
    return f"{name}: {summary.rows:,} rows in {batches}, {summary.duration_ms / 1000:,.1f} s of work{late}{lag}"

"""`tailrace pipeline list` and `status`: what runs tell of themselves, and what their checkpoints say.

A run that was killed told nothing; that it died is seen by its lock, and how far it came by its checkpoint.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime

from tailrace.cli.output import print_json, print_rows
from tailrace.cli.pipeline.lag import lag_of
from tailrace.cli.pipeline.naming import Named, declared_pipeline, find_pipeline
from tailrace.model.errors import KafkaError
from tailrace.real.runs.folder import read_runs, runs_folder
from tailrace.real.runs.status import ENDED, RunStatus, State, as_table
from tailrace.spark.operating.done import CheckpointError, Done, read_done
from tailrace.spark.operating.lag import Lag
from tailrace.spark.options.errors import OptionError
from tailrace.spark.pipelines.failures import failure_text

_DIED = "it ended without a word: killed, or it could not write"
_SILENT = "it lives, and has written nothing for long: it is held up, or its disk is full"


def run_list(options: argparse.Namespace) -> int:
    runs = read_runs(runs_folder())
    if options.json:
        print_json([as_table(run) for run in runs])
        return 0
    print_rows(
        ("NAME", "STATE", "SINCE", "ROWS", "BATCH", "LAG", "SECONDS", "WHERE", "FILE"),
        [
            (
                run.name,
                run.state.value,
                time_text(run.started),
                run.rows,
                run.last_batch,
                _current(run, run.lag),
                None if (seconds := _current(run, run.lag_seconds)) is None else round(seconds),
                f"{run.process_id}@{run.host}",
                run.file,
            )
            for run in runs
        ],
    )
    return 0


def run_status(options: argparse.Namespace) -> int:
    named = find_pipeline(options.pipeline)
    pipeline = declared_pipeline(named)
    done: Done | None = None
    lag: Lag | None = None
    problems = []
    checkpoint = pipeline.checkpoint if named.run is None else named.run.checkpoint
    try:
        done = read_done(checkpoint)
        if checkpoint == pipeline.checkpoint:  # Of a history its batches say how much is left.
            lag = lag_of(pipeline, done.offsets)
    except (CheckpointError, KafkaError, OptionError) as error:
        problems.append(failure_text(error) or str(error))
    if options.json:
        print_json(_table(named, done, lag, problems))
        return 0
    for key, value in (
        *_run_lines(named.run),
        *_checkpoint_lines(done, lag),
        *(("problem", each) for each in problems),
    ):
        print(f"{key}: {value}")
    return 0


def _table(named: Named, done: Done | None, lag: Lag | None, problems: list[str]) -> dict[str, object]:
    return {
        "run": None if named.run is None else as_table(named.run),
        "done_batch": None if done is None else done.batch,
        "planned_batch": None if done is None else done.planned,
        "lag": None if lag is None else lag.records,
        "lag_seconds": None if lag is None else lag.seconds,
        "problems": problems,
    }


def _run_lines(run: RunStatus | None) -> list[tuple[str, object]]:
    if run is None:
        return [("state", "it has not run on this machine as this user")]
    state = {State.DIED: _DIED, State.SILENT: _SILENT}.get(run.state, run.problem)
    lines: list[tuple[str, object]] = [
        ("pipeline", f"{run.name}: {run.summary}"),
        ("state", f"{run.state.value}: {state}" if state else run.state.value),
        ("run", f"process {run.process_id} on {run.host}, since {time_text(run.started)}"),
        ("last word", f"{time_text(run.written)}, {time.time() - run.written:,.0f} s ago"),
        ("in this run", f"{run.rows:,} rows in {run.batches:,} batches with rows"),
    ]
    if run.last_batch_at is not None:
        took = f"{run.last_batch_rows:,} rows in {run.last_batch_ms:,} ms"
        lines.append(("last batch", f"{run.last_batch}, {took}, done at {time_text(run.last_batch_at)}"))
    if run.url and run.state not in ENDED:
        lines.append(("metrics", run.url))
    return lines


def _checkpoint_lines(done: Done | None, lag: Lag | None) -> list[tuple[str, object]]:
    if done is None:
        return []
    under_way = f", and batch {done.planned} was begun" if done.planned > done.batch else ""
    lines: list[tuple[str, object]] = [
        ("checkpoint", f"no batch is done{under_way}" if done.batch < 0 else f"batch {done.batch} is done{under_way}")
    ]
    if lag is not None:
        age = "" if lag.seconds is None else f", the oldest {lag.seconds:,.0f} s old"
        lines.append(("lag", f"{lag.records:,} records{age if lag.records else ''}"))
    return lines


def _current(run: RunStatus, value: float | None) -> float | None:
    """What a run said of its lag is no news once it is gone."""
    return None if run.state in ENDED or run.state is State.SILENT else value


def time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")

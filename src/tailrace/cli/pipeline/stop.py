"""`tailrace pipeline stop`: the batch that is under way is finished, and the pipeline ends."""

from __future__ import annotations

import argparse
import time

from tailrace.cli import CommandError
from tailrace.cli.output import note
from tailrace.cli.pipeline.naming import find_pipeline
from tailrace.real.runs.folder import ask_to_stop, read_runs, runs_folder
from tailrace.real.runs.status import ENDED, RunStatus, State

_POLL_S = 0.2


def run(options: argparse.Namespace) -> int:
    asked = find_pipeline(options.pipeline).run
    if asked is None or asked.state in ENDED:
        raise CommandError(f"{options.pipeline} does not run on this machine as this user")
    try:
        ask_to_stop(runs_folder(), asked)
    except OSError as error:
        raise CommandError(
            f"cannot ask it to stop: {error.filename}: {error.strerror}; a SIGTERM to process {asked.process_id} "
            "stops all pipelines of that process"
        ) from None
    ended = _wait_end(asked, options.timeout)
    if ended is None:
        raise CommandError(
            f"{asked.name} has not finished its batch in {options.timeout} s: it ends when it has; wait longer with "
            "--timeout"
        )
    if ended.state in (State.DIED, State.FAILED):
        raise CommandError(f"{asked.name} did not come to stop: it {ended.state.value}. {ended.problem}".rstrip())
    note(f"{asked.name} has stopped" if ended.state is State.STOPPED else f"{asked.name} was done")
    return 0


def _wait_end(asked: RunStatus, timeout_s: float) -> RunStatus | None:
    """None if it still runs."""
    deadline = time.monotonic() + timeout_s
    while True:
        same = [run for run in read_runs(runs_folder()) if run.run_id == asked.run_id]
        if not same:  # Another one runs in its place.
            return asked._replace(state=State.STOPPED)
        if same[0].state in ENDED:
            return same[0]
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)

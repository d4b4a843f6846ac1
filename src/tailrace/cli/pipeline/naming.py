"""Which pipeline is meant: the name of a run that this machine knows, or a file."""

from __future__ import annotations

from typing import NamedTuple

from tailrace.cli import CommandError
from tailrace.cli.pipeline.check import loaded
from tailrace.real.runs.folder import read_runs, run_key, runs_folder
from tailrace.real.runs.status import ENDED, RunStatus
from tailrace.spark.pipelines.declaration import Pipeline

_FILES = (".toml", ".yaml", ".yml")


class Named(NamedTuple):
    """What is known of it: its last run here, and what its file declares now."""

    run: RunStatus | None
    file: str


def find_pipeline(word: str) -> Named:
    """Raises CommandError."""
    runs = read_runs(runs_folder())
    if word.endswith(_FILES):
        job = loaded(word)
        key = run_key(job.name, getattr(job, "checkpoint", None) or "")
        return Named(next((run for run in runs if run_key(run.name, run.checkpoint) == key), None), word)
    found = [run for run in runs if run.name == word]
    alive = [run for run in found if run.state not in ENDED]
    if not found:
        known = ", ".join(dict.fromkeys(run.name for run in runs)) or "none"
        raise CommandError(
            f"no pipeline {word} has run on this machine as this user ({runs_folder()} knows {known}): "
            "name the file that declares it"
        )
    if len(found) > 1 and len(alive) != 1:
        raise CommandError(f"there are {len(found)} of the name {word}, with different checkpoints: name the file")
    run = (alive or found)[0]
    return Named(run, run.file)


def declared_pipeline(named: Named) -> Pipeline:
    """Raises CommandError."""
    job = loaded(named.file)
    if not isinstance(job, Pipeline):
        raise CommandError(f"{named.file} declares no pipeline: what it reads has an end")
    return job

"""The metrics of runs as Prometheus reads them, and whether they are well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.model.metrics.text import Kind, Metric, Text, label
from tailrace.real.runs.status import RunStatus, State

_STATE = Metric("tailrace_pipeline_state", Kind.GAUGE, "1 for the state in which the pipeline is.")
_UNWELL = (State.STARTING, State.RETRYING, State.FAILED)
_WRITTEN = (
    State.STARTING,
    State.RUNNING,
    State.RETRYING,
    State.STOPPING,
    State.DONE,
    State.STOPPED,
    State.FAILED,
)
# What is not known is left out.
_VALUES: tuple[tuple[Metric, Callable[[RunStatus], float | None]], ...] = (
    (Metric("tailrace_pipeline_rows", Kind.COUNTER, "Rows that this run has taken."), lambda run: run.rows),
    (Metric("tailrace_pipeline_batches", Kind.COUNTER, "Batches with rows that it finished."), lambda run: run.batches),
    (
        Metric("tailrace_pipeline_late_rows", Kind.COUNTER, "Rows that came too late for the watermark."),
        lambda run: run.late_rows,
    ),
    (
        Metric("tailrace_pipeline_lag_records", Kind.GAUGE, "Records that no finished batch has taken."),
        lambda run: run.lag,
    ),
    (
        Metric("tailrace_pipeline_lag_seconds", Kind.GAUGE, "How old the oldest of these records is."),
        lambda run: run.lag_seconds,
    ),
    (
        Metric("tailrace_pipeline_batch_seconds", Kind.GAUGE, "How long the last batch took."),
        lambda run: None if run.last_batch is None else run.last_batch_ms / 1000,
    ),
    (
        Metric("tailrace_pipeline_last_batch_timestamp_seconds", Kind.GAUGE, "When the last batch was finished."),
        lambda run: run.last_batch_at,
    ),
    (
        Metric("tailrace_pipeline_started_timestamp_seconds", Kind.GAUGE, "When the run began."),
        lambda run: run.started,
    ),
)


def metrics_text(runs: Sequence[RunStatus]) -> str:
    text = Text()
    names = [label(pipeline=run.name) for run in runs]
    states = [
        (label(pipeline=run.name, state=state.value), float(state is run.state)) for run in runs for state in _WRITTEN
    ]
    parts = [text.write(_STATE, states)]
    for metric, value_of in _VALUES:
        values = [(name, value_of(run)) for name, run in zip(names, runs, strict=True)]
        parts.append(text.write(metric, [(name, value) for name, value in values if value is not None]))
    return "".join(parts) + text.end()


def is_ready(runs: Sequence[RunStatus]) -> bool:
    """Whether none of them waits for something, or has failed."""
    return not any(run.state in _UNWELL for run in runs)

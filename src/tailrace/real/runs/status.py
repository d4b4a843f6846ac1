"""What a run of a pipeline tells of itself: one line of JSON, of which every field is a fact of its last moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, get_type_hints


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    RETRYING = "retrying"  # It failed for a reason that passes, and waits.
    STOPPING = "stopping"  # The batch that is under way is finished first.
    DONE = "done"  # All there was is done, and the run has ended.
    STOPPED = "stopped"
    FAILED = "failed"
    # These two are not written by a run: they are what others see of it.
    SILENT = "silent"  # It lives, and has written nothing for long: it is held up, or its disk is full.
    DIED = "died"  # It ended without a word: killed, or it could not write.


ENDED = frozenset((State.DONE, State.STOPPED, State.FAILED, State.DIED))


class RunStatus(NamedTuple):
    name: str
    run_id: str  # Of this run alone.
    state: State
    checkpoint: str
    file: str  # That declares it.
    summary: str  # From where to where.
    host: str
    process_id: int
    url: str  # Where it tells its metrics; empty if nowhere.
    started: float  # Times are seconds since 1970.
    written: float
    problem: str = ""  # Why it failed, or is tried again.
    batches: int = 0  # Of this run, like rows.
    rows: int = 0
    late_rows: int = 0
    last_batch: int | None = None  # The number of the last one that was finished.
    last_batch_rows: int = 0
    last_batch_ms: int = 0
    last_batch_at: float | None = None  # When it was finished.
    lag: int | None = None  # Records that no finished batch has taken; None while brokers do not say.
    lag_seconds: float | None = None  # How old the oldest of them is.
    lag_at: float | None = None  # When the brokers said so.

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "state": self.state.value})


def parse_status(text: str | bytes) -> RunStatus:
    """Raises ValueError. Fields of later versions are left out."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("a status is an object")
    hints = get_type_hints(RunStatus)
    try:
        known = {name: _checked(name, found[name], hints[name]) for name in RunStatus._fields if name in found}
        return RunStatus(**known)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _checked(name: str, value: Any, kind: Any) -> Any:
    if kind is State:
        return State(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (isinstance(value, str) if kind is str else number or (value is None and kind not in (int, float))):
        raise ValueError(f"{name} cannot be {value!r}")
    return value


def as_table(status: RunStatus) -> Mapping[str, Any]:
    """What a command prints as JSON."""
    table: dict[str, Any] = json.loads(status.to_json())
    return table

"""Pipelines on this machine: what their runs tell of themselves, and which have ended without a word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.rights import may_on_cluster
from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.web import Console, show
from tailrace.apps.threads import in_thread
from tailrace.model.acls import Operation
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.runs.folder import read_runs
from tailrace.real.runs.status import ENDED, RunStatus, State

_MARKS = {
    State.STARTING: "◌",
    State.RUNNING: "● good",
    State.RETRYING: "▲ warn",
    State.STOPPING: "◌",
    State.DONE: "● good",
    State.STOPPED: "◌",
    State.FAILED: "✕ bad",
    State.SILENT: "▲ warn",
    State.DIED: "✕ bad",
}
_WORDS = {
    State.DIED: "It ended without a word: killed, or it could not write.",
    State.SILENT: "It lives, and has written nothing for long: it is held up, or its disk is full.",
}


def routes(console: Console) -> Sequence[BaseRoute]:
    return (show("/pipelines", pipelines, console),)


async def pipelines(console: Console, visit: Visit, request: Request) -> Response:
    folder = console.options.pipelines_folder
    if folder is None:
        return console.html(request, "pipelines.html", user=visit.user, runs=[], is_watched=False)
    if visit.user is not None and not await may_on_cluster(visit.cluster, Operation.DESCRIBE):
        reason = "pipelines are for those who may DESCRIBE the cluster"
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, reason)
    runs = await in_thread(read_runs, Path(folder))
    # What is wrong first, then what runs.
    shown = sorted(map(_shown, runs), key=lambda each: (not each["is_wrong"], each["is_over"], each["name"]))
    return console.html(request, "pipelines.html", user=visit.user, runs=shown, is_watched=True)


def _shown(run: RunStatus) -> dict[str, object]:
    sign, _, colour = _MARKS[run.state].partition(" ")
    is_over = run.state in ENDED
    # What a run said of its lag is no news once it is gone.
    knows_lag = not is_over and run.state is not State.SILENT
    return {
        **run._asdict(),
        "state": run.state.value,
        "sign": sign,
        "colour": colour,
        "words": _WORDS.get(run.state, run.problem),
        "is_wrong": colour in ("bad", "warn"),
        "is_over": is_over,
        "lag": run.lag if knows_lag else None,
        "lag_ms": None if run.lag_seconds is None or not knows_lag else run.lag_seconds * 1000,
    }

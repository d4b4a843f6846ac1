"""The folder of runs: for each pipeline (its name and checkpoint) a status, a lock, and perhaps a wish that it stop.

    NAME-HASH.json   the status, replaced as a whole
    NAME-HASH.lock   held by the run as long as it lives, however it ends: the kernel lets go of it
    NAME-HASH.stop   the id of the run that is to stop

So nobody has to believe a file: a run whose lock is free has ended, whatever it wrote last. It also keeps two runs of
one checkpoint on one machine apart. The folder is its user's alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.real.metrics.targets import TARGETS_FILE, read_targets, write_targets
from tailrace.real.runs.status import ENDED, RunStatus, State, parse_status

FOLDER_VARIABLE = "TAILRACE_PIPELINES"
# A run writes at least every few seconds.
SILENT_AFTER_S = 30.0
# Runs that have ended are remembered: so many, the newest.
REMEMBERED_MAX = 200
# Whoever looks at a run has its lock for a moment.
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 20, 0.05
_STATUS, _LOCK, _STOP = ".json", ".lock", ".stop"


class RunningError(Exception):
    """Another run has this checkpoint."""


def runs_folder() -> Path:
    named = os.environ.get(FOLDER_VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(named) if named else Path(state) / "tailrace" / "pipelines"


def run_key(name: str, checkpoint: str) -> str:
    return f"{name}-{hashlib.sha256(checkpoint.encode()).hexdigest()[:12]}"


class RunFile:
    """What a run writes. `hold` it before the first word."""

    def __init__(self, folder: Path, name: str, checkpoint: str) -> None:
        self._folder = folder
        self._path = folder / run_key(name, checkpoint)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Raises RunningError, and OSError if the folder cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._path.with_name(self._path.name + _LOCK), "a", encoding="utf-8") as lock:
            for attempt in range(_LOCK_ATTEMPTS):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == _LOCK_ATTEMPTS - 1:
                        raise RunningError(self._holder()) from None
                    time.sleep(_LOCK_PAUSE_S)
            yield

    def write(self, status: RunStatus) -> None:
        """Readers see the old one or the new one. Raises OSError."""
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            part.write_text(status.to_json() + "\n", encoding="utf-8")
            part.replace(self._path.with_name(self._path.name + _STATUS))
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise

    def is_to_stop(self, run_id: str) -> bool:
        with suppress(OSError):
            return self._path.with_name(self._path.name + _STOP).read_text(encoding="utf-8") == run_id
        return False

    def _holder(self) -> str:
        with suppress(OSError, ValueError):
            found = parse_status(self._path.with_name(self._path.name + _STATUS).read_bytes())
            return f"process {found.process_id} on {found.host}"
        return "another process"


def read_runs(folder: Path) -> list[RunStatus]:
    """As they are now, by name; what is no status is left out."""
    found = []
    for path in sorted(folder.glob(f"*{_STATUS}")) if folder.is_dir() else []:
        if path.name != TARGETS_FILE:
            with suppress(OSError, ValueError):
                found.append(_judged(path, time.time()))
    return found


def ask_to_stop(folder: Path, run: RunStatus) -> None:
    """The run sees it within a second. Raises OSError."""
    path = folder / (run_key(run.name, run.checkpoint) + _STOP)
    part = path.with_name(path.name + ".tmp")
    part.write_text(run.run_id, encoding="utf-8")
    part.replace(path)


def forget_old_runs(folder: Path, keep: int = REMEMBERED_MAX) -> None:
    """Those that have ended, but for the newest."""
    ended = sorted((run for run in read_runs(folder) if run.state in ENDED), key=lambda run: run.written)
    for run in ended[: max(0, len(ended) - keep)]:
        path = folder / run_key(run.name, run.checkpoint)
        for suffix in (_STATUS, _STOP):
            with suppress(OSError):
                path.with_name(path.name + suffix).unlink()


def list_target(folder: Path, key: str, url: str | None) -> None:
    """Among those that Prometheus is to read, or no more. A run that died stays, to be seen to be down. Raises
    OSError."""
    with open(folder / "targets.lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            urls = read_targets(str(folder))
        except (OSError, ValueError, KeyError):
            urls = {}
        urls.pop(key, None)
        write_targets(str(folder), urls | ({key: url} if url is not None else {}))


def this_host() -> str:
    return socket.gethostname()


def _judged(path: Path, now_s: float) -> RunStatus:
    lock = path.with_suffix(_LOCK)
    is_held = _is_held(lock)
    # Read after the lock: what a run says last it says while it holds it.
    told = parse_status(path.read_bytes())
    if not is_held and told.state not in ENDED:
        is_held = _is_held(lock)  # It may have begun in between.
        told = parse_status(path.read_bytes())
    if is_held:
        return told._replace(state=State.SILENT) if now_s - told.written > SILENT_AFTER_S else told
    return told if told.state in ENDED else told._replace(state=State.DIED)


def _is_held(path: Path) -> bool:
    try:
        with open(path, encoding="utf-8") as lock:
            # Shared, so that two who look at a time do not take each other for the run.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

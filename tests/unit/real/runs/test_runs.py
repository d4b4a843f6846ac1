"""What a run leaves for others, in real files: whether it lives is told by its lock, whatever it wrote."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tailrace.real.runs import folder as runs
from tailrace.real.runs.folder import (
    RunFile,
    RunningError,
    ask_to_stop,
    forget_old_runs,
    list_target,
    read_runs,
    run_key,
)
from tailrace.real.runs.status import RunStatus, State, parse_status


def status(name="orders", state=State.RUNNING, written=None, **changes):
    told = RunStatus(
        name, "r1", state, "/cp", "/p.toml", "topic a -> topic b", "here", 1, "", 1.0, written or time.time()
    )
    return told._replace(**changes)


def states(folder):
    return {run.name: run.state for run in read_runs(folder)}


def test_a_status_comes_back_as_it_was():
    told = status(lag=5, lag_seconds=None, last_batch_at=2.5)
    assert parse_status(told.to_json()) == told
    newer = json.loads(told.to_json()) | {"of_a_later_version": 1}
    assert parse_status(json.dumps(newer)) == told


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", status().to_json().replace('"running"', '"flying"'), status(rows="many").to_json()]
)
def test_what_is_no_status(text, tmp_path):
    with pytest.raises(ValueError):  # noqa: PT011 (the caller leaves it out)
        parse_status(text)
    (tmp_path / "p-1.json").write_text(text)
    assert read_runs(tmp_path) == []


def test_a_run_that_ended_without_a_word_died(tmp_path):
    file = RunFile(tmp_path, "orders", "/cp")
    with file.hold():
        file.write(status())
        assert states(tmp_path) == {"orders": State.RUNNING}
    assert states(tmp_path) == {"orders": State.DIED}
    with file.hold():
        file.write(status(state=State.STOPPED))
        file.write(status(state=State.DONE))
    assert states(tmp_path) == {"orders": State.DONE}


def test_a_run_that_is_held_up_is_silent(tmp_path):
    file = RunFile(tmp_path, "orders", "/cp")
    with file.hold():
        file.write(status(written=time.time() - runs.SILENT_AFTER_S - 1))
        assert states(tmp_path) == {"orders": State.SILENT}


def test_two_runs_of_one_checkpoint_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_LOCK_ATTEMPTS", 2)
    with RunFile(tmp_path, "orders", "/cp").hold() as _:
        RunFile(tmp_path, "orders", "/cp").write(status(process_id=77))
        with pytest.raises(RunningError, match="process 77 on here"), RunFile(tmp_path, "orders", "/cp").hold():
            pass
        with RunFile(tmp_path, "orders", "/other").hold():
            pass


def test_kill_9_lets_go_of_the_lock(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from tests.unit.real.runs.test_runs import RunFile, status\n"
        "file = RunFile(Path(sys.argv[1]), 'orders', '/cp')\n"
        "with file.hold(): file.write(status()); print('held', flush=True); time.sleep(60)"
    )
    running = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert running.stdout.readline() == b"held\n"
        assert states(tmp_path) == {"orders": State.RUNNING}
        os.kill(running.pid, signal.SIGKILL)
        running.wait(10)
        assert states(tmp_path) == {"orders": State.DIED}
    finally:
        running.kill()
        running.communicate(timeout=10)


def test_a_wish_to_stop_is_for_one_run(tmp_path):
    file = RunFile(tmp_path, "orders", "/cp")
    with file.hold():
        file.write(status())
        assert not file.is_to_stop("r1")
        ask_to_stop(tmp_path, status())
        assert file.is_to_stop("r1")
        assert not file.is_to_stop("r2"), "a run that came later was not asked"


def test_a_status_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    file = RunFile(tmp_path, "orders", "/cp")
    with file.hold():
        file.write(status(rows=5))

        def full(self, text, **_):
            with open(self, "w") as half:
                half.write(text[:10])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pathlib.Path.write_text", full)
        with pytest.raises(OSError, match="No space"):
            file.write(status(rows=6))
        (found,) = read_runs(tmp_path)
        assert found.rows == 5
    assert not list(tmp_path.glob("*.tmp"))


def test_only_so_many_that_ended_are_remembered(tmp_path):
    for number in range(5):
        file = RunFile(tmp_path, f"p{number}", "/cp")
        with file.hold():
            file.write(status(f"p{number}", State.DONE, written=1000.0 + number))
    with RunFile(tmp_path, "old", "/cp").hold():
        RunFile(tmp_path, "old", "/cp").write(status("old", written=1.0))
        forget_old_runs(tmp_path, keep=2)
        assert set(states(tmp_path)) == {"p3", "p4", "old"}


def test_who_listens_is_listed_for_prometheus(tmp_path):
    list_target(tmp_path, "a", "http://127.0.0.1:1")
    list_target(tmp_path, "b", "http://127.0.0.1:2")
    list_target(tmp_path, "a", "http://127.0.0.1:3")
    list_target(tmp_path, "b", None)
    (found,) = json.loads((tmp_path / "metrics-targets.json").read_text())
    assert found == {"targets": ["127.0.0.1:3"], "labels": {"node": "a", "__scheme__": "http"}}
    assert read_runs(tmp_path) == []


def test_names_of_files_tell_checkpoints_apart():
    assert run_key("a", "/x") != run_key("a", "/y")
    assert run_key("a.b", "/x").startswith("a.b-")

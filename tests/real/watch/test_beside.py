"""`tailrace up --alerts`: a process beside the brokers that reads them all, is kept alive and ends with them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

DEADLINE_S = 60.0
# Holds as soon as every node has been read, which a secure one lets nobody do without a password.
RULES = """\
[send]
commands = ["{python} -c 'import sys; open(\\"{told}\\", \\"a\\").write(sys.stdin.read() + chr(10))'"]
interval_seconds = 0.5
[[rule]]
name = "AllAreRead"
summary = "{{value}} nodes are read"
metric = "tailrace_clock_seconds"
take = "skew"
combine = "max"
by = ["instance"]
above = -1000
"""


def children(process_id: int) -> dict[int, str]:
    """What each was started as."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == process_id:
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
    return found


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.05)


def told_of(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    return [alert["labels"] for line in path.read_text().splitlines() for alert in json.loads(line)["alerts"]]


@contextmanager
def up(folder: Path, told: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    rules = folder / "alerts.toml"
    rules.write_text(RULES.format(python=sys.executable, told=told))
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--data", str(folder / "data")]
    command += ["--alerts", str(rules), "--log-level", "warning", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        timer = threading.Timer(DEADLINE_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready: ")
            yield process
        finally:
            timer.cancel()
            process.kill()


def keeper_of(process: subprocess.Popen[str]) -> int:
    (keeper,) = [each for each, command in children(process.pid).items() if " alerts run " in command]
    return keeper


@pytest.mark.parametrize(
    ("words", "count", "ending"),
    [
        (["--secure"], 1, signal.SIGTERM),
        pytest.param([], 1, signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(["--brokers", "3"], 6, signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(["--brokers", "3", "--secure"], 6, signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_it_reads_all_nodes_is_kept_alive_and_ends_with_them(
    tmp_path: Path, words: list[str], count: int, ending: signal.Signals
) -> None:
    told = tmp_path / "told"
    with up(tmp_path, told, *words) as process:
        wait(lambda: len({each.get("instance") for each in told_of(told)}) == count)
        assert {each["alertname"] for each in told_of(told)} == {"AllAreRead"}
        keeper = keeper_of(process)
        (watcher,) = children(keeper)
        told.unlink()
        os.kill(watcher, signal.SIGKILL)
        wait(lambda: len({each.get("instance") for each in told_of(told)}) == count)
        (watcher,) = children(keeper)
        process.send_signal(ending)
        process.wait(DEADLINE_S)
        wait(lambda: not any(Path(f"/proc/{each}/exe").exists() for each in (keeper, watcher)))


def test_rules_that_are_wrong_are_told_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text("[[rule]]\nname = 'NodeDown'\nabov = 1\n")
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--alerts", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "abov is unknown" in done.stderr

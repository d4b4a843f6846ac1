"""`tailrace up --console-port`: a console beside the brokers, which lives and ends with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from .test_doors import ask


def children(process_id: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == process_id:
                found.append(int(entry.name))
    return found


def wait(condition, timeout_s: float = 30.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_it_is_kept_alive_and_ends_with_the_brokers(ending):
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            told = []
            while not told or not told[-1].startswith("console: "):
                told.append(process.stdout.readline())
                assert told[-1], told
            assert any(line.startswith("ready: ") for line in told), told
            assert "All well" in ask(told[-1].removeprefix("console: ").strip(), "/")[1]
            (keeper,) = children(process.pid)
            (console,) = children(keeper)
            os.kill(console, signal.SIGKILL)
            again = process.stdout.readline()
            assert again.startswith("console: ")
            assert "All well" in ask(again.removeprefix("console: ").strip(), "/")[1]
            (console,) = children(keeper)
            process.send_signal(ending)
            process.wait(30)
            wait(lambda: not any(Path(f"/proc/{each}/exe").exists() for each in (keeper, console)))
        finally:
            process.kill()


def test_what_is_wrong_is_said_before_anything_starts():
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--console-port", "70000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--console-port 70000: a port is a number" in done.stderr

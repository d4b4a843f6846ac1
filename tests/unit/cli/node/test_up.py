"""`tailrace up` as a process: one line when it is ready, a clean end on a signal, nothing left behind."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WAIT_S = 20


@contextmanager
def up(*words: str, temporary: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tailrace", "up", "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ready_line_and_clean_end(tmp_path: Path, number: signal.Signals):
    with up(temporary=tmp_path) as process:
        ready = process.stdout.readline()
        match = re.fullmatch(r"ready: 127\.0\.0\.1:(\d+)\n", ready)
        assert match, ready
        socket.create_connection(("127.0.0.1", int(match[1])), timeout=WAIT_S).close()
        assert os.listdir(tmp_path), "the data lies in a temporary folder"
        process.send_signal(number)
        rest, log = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, log
        assert rest == ""
        assert "Traceback" not in log
        assert os.listdir(tmp_path) == []


def test_data_folder_is_kept(tmp_path: Path):
    data = tmp_path / "data"
    with up("--data", str(data), temporary=tmp_path) as process:
        process.stdout.readline()
        process.terminate()
        process.communicate(timeout=WAIT_S)
    assert (data / "meta.properties").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_all_addresses_advertise_this_machine(tmp_path: Path):
    with up("--host", "0.0.0.0", temporary=tmp_path) as process:
        assert process.stdout.readline().startswith(f"ready: {socket.gethostname()}:")


def test_log_as_json(tmp_path: Path):
    with up("--log-format", "json", temporary=tmp_path) as process:
        process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=WAIT_S)
    lines = [json.loads(line) for line in log.splitlines()]
    assert lines
    assert all({"time", "level", "source", "event"} <= line.keys() for line in lines)


def test_quiet_at_level_error(tmp_path: Path):
    with up("--log-level", "error", temporary=tmp_path) as process:
        process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=WAIT_S)
    assert log == ""


def test_open_files_limit_is_raised(tmp_path: Path):
    with up(temporary=tmp_path) as process:
        process.stdout.readline()
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        soft, hard = re.search(r"Max open files\s+(\d+)\s+(\d+)", limits).groups()
        assert soft == str(min(int(hard), 1 << 20))


def test_stop_with_a_client_waiting(tmp_path: Path):
    """A long poll or an idle connection does not hold the stop up."""
    with up(temporary=tmp_path) as process:
        port = int(process.stdout.readline().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as idle:
            process.terminate()
            process.communicate(timeout=WAIT_S)
            assert process.returncode == 0
            assert idle.recv(1) == b""

"""What a process has taken, beside what other tools see of it."""

import os
import time
from pathlib import Path

import pytest

from tailrace.real.metrics import process
from tailrace.real.metrics.process import RealProcess


def test_processor_time_grows_with_work() -> None:
    before = RealProcess().usage().cpu_seconds
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    assert RealProcess().usage().cpu_seconds >= before + 0.05


def test_memory_is_what_is_held() -> None:
    before = RealProcess().usage()
    held = bytearray(os.urandom(1)) * (64 << 20)
    after = RealProcess().usage()
    assert before.resident_bytes is not None
    assert after.resident_bytes is not None
    assert after.virtual_bytes is not None
    assert after.resident_bytes - before.resident_bytes > len(held) * 0.9
    assert after.virtual_bytes >= after.resident_bytes


@pytest.mark.parametrize("is_counted_by_the_kernel", [True, False])
def test_open_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_counted_by_the_kernel: bool):
    if not is_counted_by_the_kernel:  # Before Linux 6.2 the folder has no size.
        monkeypatch.setattr(process.os, "stat", lambda path: os.stat_result((0,) * 10))
    before = RealProcess().usage()
    files = [(tmp_path / str(number)).open("w") for number in range(20)]
    after = RealProcess().usage()
    for each in files:
        each.close()
    assert before.open_files is not None
    assert after.open_files == before.open_files + 20
    assert after.open_files_max is None or after.open_files_max > after.open_files


def test_where_nothing_is_told_of_a_process_it_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_STATM", "/nowhere")
    monkeypatch.setattr(process, "_OPEN_FILES", "/nowhere")
    monkeypatch.setattr(process, "_IO", "/nowhere")
    usage = RealProcess().usage()
    assert (usage.resident_bytes, usage.virtual_bytes, usage.open_files) == (None, None, None)
    assert (usage.disk_read_bytes, usage.disk_written_bytes) == (None, None)


def test_what_is_synced_was_written(tmp_path: Path) -> None:
    before = RealProcess().usage().disk_written_bytes
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    after = RealProcess().usage().disk_written_bytes
    assert before is not None
    assert after is not None
    assert after >= before  # Where files lie in memory nothing goes to a device.

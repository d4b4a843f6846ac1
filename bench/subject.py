"""The broker under measurement: a process of its own, started as a user starts it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

# Warm topics keep a few segments and give their memory back soon: what is written next takes the same pages.
_WARM = {"segment.bytes": str(64 << 20), "retention.bytes": str(128 << 20), "file.delete.delay.ms": "0"}
_SETTINGS = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
_READY = re.compile(r"ready: (\S+)")
_DEADLINE_S = 30.0


class Subject(NamedTuple):
    """A running broker, or a cluster of them."""

    bootstrap: str
    process_id: int
    ready_after_s: float

    @property
    def port(self) -> int:
        """The first broker's port."""
        return int(self.bootstrap.partition(",")[0].rpartition(":")[2])

    def create_topic(
        self,
        name: str,
        *,
        warm: bool,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(name, partitions, replicas, config=(_WARM if warm else {}) | dict(settings or {}))
        (created,) = admin.create_topics([new]).values()
        created.result(_DEADLINE_S)
        return name

    def delete_topic(self, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        (deleted,) = admin.delete_topics([name]).values()
        deleted.result(_DEADLINE_S)

    def resident_bytes(self) -> int:
        return _resident_bytes(self.process_id)

    def cpu_s(self) -> float:
        """That the broker has used so far."""
        fields = Path(f"/proc/{self.process_id}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def process_ids(self) -> list[int]:
        """Of all nodes, and of what started them."""
        children = Path(f"/proc/{self.process_id}/task/{self.process_id}/children").read_text().split()
        return [self.process_id, *map(int, children)]

    def resident_bytes_of_nodes(self) -> dict[str, int]:
        """The memory of each process of a cluster, by the name of its data folder: broker-1, controller-1 and so on."""
        return {name: _resident_bytes(each) for each in self.process_ids()[1:] if (name := _data_folder(each))}

    def pin(self, cores: set[int]) -> None:
        """Every thread of the broker, the helpers too, to these cores."""
        for task in Path(f"/proc/{self.process_id}/task").iterdir():
            os.sched_setaffinity(int(task.name), cores)


def _resident_bytes(process_id: int) -> int:
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _data_folder(process_id: int) -> str:
    """The name of the folder whose lock the process holds."""
    for handle in Path(f"/proc/{process_id}/fd").iterdir():
        target = Path(os.readlink(handle))
        if target.name == ".lock":
            return target.parent.name
    return ""


@contextmanager
def running(
    brokers: int = 1, *, source: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Subject]:
    """Brokers with their data in a temporary folder, from the moment clients can connect until the end of the block.
    `source` is the folder that they import tailrace from, if not the one that is installed; `settings` are added to
    those of every measurement."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "tailrace", "up", "--brokers", str(brokers), "--port", "0"]
        command += ["--data", f"{folder}/data"]
        for name, value in (_SETTINGS | dict(settings or {})).items():
            command += ["--set", f"{name}={value}"]
        with open(f"{folder}/log", "w+") as log:
            start = time.perf_counter()
            environment = os.environ | ({"PYTHONPATH": str(source)} if source is not None else {})
            # As on a user's machine: modules are compiled once, and not at every start.
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
            try:
                yield _when_ready(process, start, Path(log.name))
            finally:
                _stop(process)


def _when_ready(process: "subprocess.Popen[str]", start: float, log: Path) -> Subject:
    assert process.stdout is not None
    line = process.stdout.readline()
    ready_after_s = time.perf_counter() - start
    found = _READY.search(line)
    if found is None:
        raise RuntimeError(f"the broker did not get ready; its log ends with:\n{log.read_text()[-2000:]}")
    return Subject(found[1], process.pid, ready_after_s)


def _stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()

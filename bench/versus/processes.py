"""The processes of a rival: what is started, what it uses, and its end.

A rival is told by `Rival`; what runs for a row is a `Running`. Nothing here knows what is measured.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.machine import worked_s

DEADLINE_S = 90.0
_SAMPLED_EVERY_S = 0.05


@dataclass
class Process:
    """One broker. `start` may be called again after `kill`."""

    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    popen: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=os.environ | self.environment, start_new_session=True
            )

    @property
    def pid(self) -> int:
        assert self.popen is not None
        return self.popen.pid

    def kill(self) -> None:
        if self.popen is not None:
            # With the brokers that it has started, if it is the supervisor of some.
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()

    def check(self) -> None:
        """Raises if it has ended by itself."""
        if self.popen is not None and self.popen.poll() is not None:
            raise RuntimeError(f"a broker ended; its log ends with:\n{self.log.read_text()[-2000:]}")


class Usage(NamedTuple):
    cpu_s: float
    resident_bytes: int


@dataclass
class Running:
    """Brokers at work."""

    rival: str
    addresses: dict[int, str]  # by node id
    brokers: dict[int, Process]
    ready_after_s: float
    folder: Path
    # What a row that reads has written, for all its rounds: by its own key.
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def data(self) -> list[Path]:
        return [self.folder / f"data-{node}" for node in self.brokers]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def port(self) -> int:
        return self.port_of(next(iter(self.addresses)))

    def port_of(self, node: int) -> int:
        return int(self.addresses[node].rpartition(":")[2])

    def usage(self) -> Usage:
        """The usage of all its processes together."""
        pids = [pid for process in self.brokers.values() for pid in _family(process.pid)]
        return Usage(sum(map(worked_s, pids)), sum(map(_resident_bytes, pids)))

    def stopwatch(self) -> Callable[[], float]:
        """Seconds of CPU that its processes have used since."""
        before_s = self.usage().cpu_s
        return lambda: self.usage().cpu_s - before_s

    @contextmanager
    def watched(self) -> Iterator["Peak"]:
        """Looks at the memory all the time."""
        peak = Peak(self.usage().resident_bytes)
        done = threading.Event()

        def look() -> None:
            while not done.wait(_SAMPLED_EVERY_S):
                peak.resident_bytes = max(peak.resident_bytes, self.usage().resident_bytes)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield peak
        finally:
            done.set()
            thread.join()


@dataclass
class Peak:
    """The most memory that was seen."""

    resident_bytes: int


class Rival(NamedTuple):
    name: str
    # How it was set up, as the page says it.
    setting: str
    # (number of brokers, settings on top, folder) -> running brokers
    start: Callable[[int, dict[str, str], Path], Running]
    # Programs that have to be on PATH, and how they are had.
    programs: tuple[str, ...] = ()
    remedy: str = ""
    version: tuple[str, ...] = ()  # a command that prints it

    @property
    def description(self) -> str:
        """For the page."""
        printed = output(list(self.version)).splitlines()[:1] if self.version and not self.missing() else []
        return ", ".join([*printed, self.setting])

    def missing(self) -> str:
        """Why it cannot run here; empty if it can."""
        absent = [program for program in self.programs if shutil.which(program) is None]
        return f"no {' and no '.join(absent)} on PATH; {self.remedy}" if absent else ""

    @contextmanager
    def running(self, brokers: int = 1, settings: dict[str, str] | None = None) -> Iterator[Running]:
        with tempfile.TemporaryDirectory(prefix="versus-", ignore_cleanup_errors=True) as folder:
            found = self.start(brokers, settings or {}, Path(folder))
            try:
                yield found
            finally:
                # Their data goes with the folder: nobody waits for an orderly end.
                for process in found.brokers.values():
                    process.kill()


def output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=DEADLINE_S).stdout.strip()


def ready(
    rival: str, brokers: dict[int, Process], addresses: dict[int, str], folder: Path, answers: Callable[[str], bool]
) -> Running:
    """Started, and each answers as a client needs it to begin."""
    begun = time.perf_counter()
    for process in brokers.values():
        process.start()
    try:
        for address in addresses.values():
            wait_answers(address, answers, brokers)
    except BaseException:
        for process in brokers.values():
            process.kill()
        raise
    return Running(rival, addresses, brokers, time.perf_counter() - begun, folder)


def wait_answers(address: str, answers: Callable[[str], bool], processes: dict[int, Process]) -> None:
    deadline = time.perf_counter() + DEADLINE_S
    while time.perf_counter() < deadline:
        if answers(address):
            return
        for process in processes.values():
            process.check()
        time.sleep(0.01)
    raise TimeoutError(f"{address} did not get ready in {DEADLINE_S} s")


def receive(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _family(pid: int) -> list[int]:
    """The process, and those that it has started."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

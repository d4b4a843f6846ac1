"""A broker or a cluster as a child process, and the guard that cleans up after a test process that was killed.

Owns two processes: `tailrace up`, and a shell that does nothing but read a pipe whose only writer is this process.
However this process ends, SIGKILL included, the pipe then ends too: the guard kills the broker (paused or not) and
removes the folder. The broker could not do that itself while it is paused or already dead. `tailrace up` leads a
process group, and the nodes of a cluster are in it: what is killed is always the group.
PR_SET_PDEATHSIG is no substitute: it fires when the *thread* that started the child ends, and cleans no folder.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

STOP_TIMEOUT_S = 15.0
LOG_TAIL_CHARACTERS = 4000

# A call of a killed process that is still in the kernel ends, so that it adds no file behind rm's back.
_LAST_CALLS_S = 0.1

# Each line names the group to kill; an empty one says that there is none, since its id may be reused once reaped.
# The pause is _LAST_CALLS_S.
_GUARD = """
trap '' HUP INT TERM
child=
while read -r line; do child=$line; done
if [ -n "$child" ]; then kill -s KILL -- "-$child" 2>/dev/null; sleep 0.1; fi
rm -rf "$1"
"""


class BrokerFailedError(Exception):
    """The broker under test did not start, or did not stop cleanly. The message ends with the tail of its log."""


class Guard:
    """Outlives this process by a moment; removes `folder`, and first kills the process group that it watches."""

    def __init__(self, folder: str) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "tailrace-guard", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def watch(self, process_id: int | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{process_id or ''}\n".encode())

    def close(self) -> None:
        """The guard removes the folder; returns when it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Child:
    """One run of `tailrace up`, from start to reaped."""

    def __init__(self, arguments: Sequence[str], log_path: str, guard: Guard) -> None:
        self._log_path = log_path
        self._guard = guard
        self._unread = b""  # What came after the last line that was waited for.
        with open(log_path, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tailrace", "up", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C on a terminal goes to the test process alone, whose teardown then stops the broker.
                start_new_session=True,
            )
        guard.watch(self._process.pid)

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float) -> str:
        """The bootstrap servers, as soon as clients can connect."""
        line = self._wait_line(timeout_s)
        if not line.startswith("ready: "):
            self.kill()
            raise BrokerFailedError(f"the broker was not ready within {timeout_s:g} s{self._log_tail()}")
        return line.removeprefix("ready: ").strip()

    def wait_registry(self, timeout_s: float) -> str:
        """The address of the registry beside the broker, as soon as it answers."""
        line = self._wait_line(timeout_s)
        if not line.startswith("registry: "):
            self.kill()
            raise BrokerFailedError(f"the registry was not ready within {timeout_s:g} s{self._log_tail()}")
        return line.removeprefix("registry: ").strip()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        # It leads its group until it is reaped, so the group is no stranger's.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._reap(None)

    def kill_all(self) -> None:
        """For a cluster: its nodes are not this process's children, and nobody tells when the last one is gone."""
        self.kill()
        time.sleep(_LAST_CALLS_S)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends it as an operator would; a broker that cannot stop cleanly fails the test."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            exit_code = self._reap(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailedError(f"the broker did not stop within {timeout_s:g} s{self._log_tail()}") from None
        if exit_code != 0:
            raise BrokerFailedError(f"the broker stopped with exit code {exit_code}{self._log_tail()}")

    def _reap(self, timeout_s: float | None) -> int:
        exit_code = self._process.wait(timeout_s)
        self._guard.watch(None)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return exit_code

    def _wait_line(self, timeout_s: float) -> str:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        line, self._unread = self._unread, b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in line and selector.select(max(0.0, deadline - time.monotonic())):
                chunk = os.read(descriptor, 4096)
                if not chunk:
                    break
                line += chunk
        line, newline, self._unread = line.partition(b"\n")
        return (line + newline).decode()

    def _log_tail(self) -> str:
        with open(self._log_path, encoding="utf-8", errors="replace") as log:
            text = log.read()[-LOG_TAIL_CHARACTERS:]
        return f"; its log ends with:\n{text}" if text else " and logged nothing"

"""A process that tells what it does, line by line, and what may follow for the records of its transactions."""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from .writer import RECORDS, is_aborted, value_of

ROOT = Path(__file__).parents[3]
# Long enough for a busy machine of two cores.
WAIT_S = 60.0


class Writer:
    """One instance of a producer: a process. `begun` and `ended` are the transactions that it has told of."""

    def __init__(self, command: Sequence[str]) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )
        self._complaints: list[bytes] = []
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._drain)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, transactions: int) -> None:
        """Until it has ended so many."""
        deadline = time.monotonic() + WAIT_S
        while len(self.ended) < transactions:
            assert self._process.poll() is None, self.story()
            assert time.monotonic() < deadline, f"{len(self.ended)} of {transactions} in time: {self.story()}"
            time.sleep(0.01)

    def kill(self) -> None:
        self._process.kill()
        self._reap()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(WAIT_S)
        self._reap()
        assert code == 0, self.story()

    def story(self) -> str:
        """For the message of a failure."""
        return f"exit code {self._process.poll()}: {self.ended[-3:]} {b''.join(self._complaints)[-2000:].decode()}"

    def _reap(self) -> None:
        self._process.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, _, number = line.decode().partition(" ")
            if what in ("begun", "ended") and number.endswith("\n"):
                (self.begun if what == "begun" else self.ended).append(int(number))

    def _drain(self) -> None:
        assert self._process.stderr is not None
        self._complaints.extend(self._process.stderr)


def check_all_or_nothing(begun: Iterable[int], ended: Iterable[int], values: Sequence[bytes]) -> int:
    """Checks what a read_committed consumer has read. A transaction whose outcome nobody was told is there wholly, or
    not at all. Gives the number of transactions that were read."""
    doubled = [value for value, count in Counter(values).items() if count > 1]
    assert doubled == []
    read = set(values)
    known = set(ended)
    visible = 0
    for transaction in set(begun):
        found = sum(value_of(transaction, index) in read for index in range(RECORDS))
        if is_aborted(transaction):
            assert found == 0, f"{found} records of transaction {transaction}, which was aborted, were read"
        elif transaction in known:
            assert found == RECORDS, f"{found} of {RECORDS} records of transaction {transaction} were read"
        else:
            assert found in (0, RECORDS), f"{found} of {RECORDS} records of transaction {transaction} were read"
        visible += found > 0
    assert len(read) == visible * RECORDS, "nothing else was read"
    return visible

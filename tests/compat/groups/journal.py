"""How a member tells what happens to it: one JSON line an event, as it happens. Its standard input is its life line:
with the first line or its end the member closes."""

import json
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

# A commit as often as this, as an application would that is asked for at-least-once.
COMMIT_EVERY_S = 0.1


class Journal:
    def __init__(self) -> None:
        self.closing = threading.Event()
        self.positions: dict[int, int] = {}  # How far each partition was read that is not yet confirmed.
        self._owned: set[int] = set()
        self._last_commit = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def write(self, kind: str, what: Any) -> None:
        sys.stdout.write(json.dumps([kind, time.monotonic_ns(), what]) + "\n")
        sys.stdout.flush()

    def assigned(self, partitions: Iterable[int]) -> None:
        given = sorted(partitions)
        self._owned |= set(given)
        self.write("assigned", given)

    def gave_back(self, partitions: Iterable[int], *, is_lost: bool = False) -> None:
        given = self._owned & set(partitions)
        self._owned -= given
        for partition in given:
            self.positions.pop(partition, None)
        self.write("lost" if is_lost else "revoked", sorted(given))

    def gave_all_back(self) -> None:
        """Before it leaves: not every library tells its listener then."""
        self.gave_back(self._owned)

    def read(self, records: list[tuple[int, int, bytes]]) -> None:
        """(partition, offset, value) in the order in which they came."""
        self.write("read", [(partition, offset, int(value)) for partition, offset, value in records])
        for partition, offset, _ in records:
            self.positions[partition] = offset + 1

    def is_commit_due(self) -> bool:
        return bool(self.positions) and time.monotonic() > self._last_commit + COMMIT_EVERY_S

    def committed(self, positions: dict[int, int]) -> None:
        """These were confirmed."""
        self._last_commit = time.monotonic()
        self.write("committed", list(positions.items()))
        self.positions = {
            partition: offset for partition, offset in self.positions.items() if positions.get(partition) != offset
        }

    def refused(self, why: object) -> None:
        """A commit was: it is tried again later, or by the next owner, who reads the records again."""
        self._last_commit = time.monotonic()
        self.write("said", f"commit: {why}")

    def _watch(self) -> None:
        sys.stdin.readline()
        self.closing.set()

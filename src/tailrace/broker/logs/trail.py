"""The last lines of the audit log, kept in memory for those who ask this node (DescribeAudit).

They go with the process: what has to be kept is the log that is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple


class AuditLine(NamedTuple):
    at_ms: int
    principal: str
    client_id: str
    host: str
    listener: str
    api: str
    what: str
    result: str


class AuditTrail:
    def __init__(self, lines_max: Callable[[], int]) -> None:
        self._lines_max = lines_max
        self._lines: deque[AuditLine] = deque()

    def add(self, line: AuditLine) -> None:
        self._lines.append(line)
        while len(self._lines) > self._lines_max():
            self._lines.popleft()

    def newest(self, count: int, *, skip: int = 0) -> list[AuditLine]:
        """Newest first."""
        return list(islice(reversed(self._lines), skip, skip + count))

"""Under which names a write is known to the cluster: transactional ids, and the groups that hold the evidence."""

from __future__ import annotations

from typing import NamedTuple


class Names(NamedTuple):
    """Of one scope. What a task writes has the same name whichever attempt it is, so that a new one fences the old."""

    prefix: str
    scope: str  # the query, or the batch job

    @property
    def driver(self) -> str:
        return f"{self.prefix}-{self.scope}-driver"

    def part(self, index: int) -> str:
        return f"{self.prefix}-{self.scope}-{index}"

    def part_index(self, transactional_id: str) -> int | None:
        """None if it belongs to somebody else."""
        start = f"{self.prefix}-{self.scope}-"
        rest = transactional_id.removeprefix(start)
        is_part = transactional_id.startswith(start) and rest.isascii() and rest.isdigit()
        return int(rest) if is_part else None

"""Under which names a write is known to the cluster: decisions, transactional ids, and groups with the evidence."""

from __future__ import annotations

from typing import NamedTuple


class Names(NamedTuple):
    """The names of one scope. Every attempt of a task uses the same name, so that a new attempt fences the old one."""

    prefix: str
    scope: str  # the query, or the batch job

    @property
    def decision(self) -> str:
        return f"{self.prefix}-{self.scope}"

    @property
    def driver(self) -> str:
        return f"{self.decision}-driver"

    def part(self, index: int) -> str:
        return f"{self.decision}-{index}"

    def part_index(self, transactional_id: str) -> int | None:
        """None if it belongs to somebody else."""
        start = f"{self.decision}-"
        rest = transactional_id.removeprefix(start)
        is_part = transactional_id.startswith(start) and rest.isascii() and rest.isdigit()
        return int(rest) if is_part else None

"""So many pieces of work of cold reads at a time in helper threads: sums, copies and what is kept on the disk.

With more than there are cores for, they keep the loop from its own: with fifty readers on two busy cores others had to
wait three times as long (p99) with all twelve threads as with two, and readers got no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tailrace.model.ports import Background
from tailrace.tier.store.budget import Budget

T = TypeVar("T")


class FewHelpers:
    """As Background."""

    def __init__(self, background: Background, at_once: int) -> None:
        self._background = background
        self._turns = Budget(calls_max=at_once, bytes_max=0)

    def allow(self, at_once: int) -> None:
        self._turns.calls_max = at_once

    async def run(self, work: Callable[[], T]) -> T:
        await self._turns.take(0)
        try:
            return await self._background.run(work)
        finally:
            self._turns.give(0)

    def close(self) -> None:
        """The threads are not its own."""

"""The voter sets of a log, with the offsets of their records.

A set is in force from the moment its record is written, committed or not (KIP-853), and no longer once the record is
truncated. Sets differ by one voter, so that majorities of neighbours overlap; who appends sees to that.
"""

from __future__ import annotations

from bisect import bisect_left

from tailrace.raft.types import BOOTSTRAP_OFFSET, VoterSet


class VoterHistory:
    def __init__(self, base: VoterSet, offset: int = BOOTSTRAP_OFFSET) -> None:
        # Ascending. The first is of a snapshot or of the bootstrap: it is committed, and so no truncation takes it.
        self._offsets = [offset]
        self._sets = [base]

    @property
    def latest(self) -> VoterSet:
        return self._sets[-1]

    @property
    def latest_offset(self) -> int:
        """The offset of the record that holds them; BOOTSTRAP_OFFSET if no record of the log does yet."""
        return self._offsets[-1]

    def at(self, offset: int) -> VoterSet:
        """In force for a log that ends at `offset`."""
        index = bisect_left(self._offsets, offset) - 1
        return self._sets[max(index, 0)]

    def add(self, offset: int, voters: VoterSet) -> None:
        assert offset > self._offsets[-1], "voter records are read in the order of the log"
        self._offsets.append(offset)
        self._sets.append(voters)

    def truncate(self, end_offset: int) -> None:
        while len(self._offsets) > 1 and self._offsets[-1] >= end_offset:
            self._offsets.pop()
            self._sets.pop()

    def forget_before(self, offset: int) -> None:
        """A snapshot holds what was before. Keeps the list short over the years."""
        while len(self._offsets) > 1 and self._offsets[1] < offset:
            del self._offsets[0], self._sets[0]

"""The log of a node in a model quorum: entries, some of them synced, and a snapshot."""

from __future__ import annotations

from typing import Any

from tailrace.raft.types import OffsetAndEpoch, VoterSet
from tailrace.sim.random import SimRandom

# What one offset holds: its epoch, and a voter set or a mark that is the only one of its kind.
Entry = tuple[int, Any]


class ModelLog:
    """A log of entries, some synced. Its snapshots hold the entries themselves."""

    def __init__(self) -> None:
        self.start_offset = self.start_epoch = 0
        self.entries: list[Entry] = []
        self.synced_end_offset = 0
        # What the sync under way will have covered; a truncation takes it back.
        self.sync_covers = 0
        self.snapshot: tuple[OffsetAndEpoch, VoterSet] | None = None

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else self.start_epoch

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return None if self.snapshot is None else self.snapshot[0]

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        index = len(self.entries)
        while index and self.entries[index - 1][0] > epoch:
            index -= 1
        return OffsetAndEpoch(self.start_offset + index, self.entries[index - 1][0] if index else self.start_epoch)

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def truncate(self, offset: int) -> None:
        assert offset >= self.start_offset
        del self.entries[offset - self.start_offset :]
        self.synced_end_offset = min(self.synced_end_offset, offset)
        self.sync_covers = min(self.sync_covers, offset)

    def take_snapshot(self, offset: int, voters: VoterSet, *, is_cut: bool) -> None:
        """At `offset`; the log before it may stay for a while."""
        epoch = self.at(offset - 1)[0] if offset > self.start_offset else self.start_epoch
        self.snapshot = OffsetAndEpoch(offset, epoch), voters
        if is_cut:
            del self.entries[: offset - self.start_offset]
            self.start_offset, self.start_epoch = offset, epoch
            self.synced_end_offset = max(self.synced_end_offset, offset)

    def install(self, snapshot: OffsetAndEpoch, voters: VoterSet) -> None:
        self.snapshot = snapshot, voters
        self.entries = []
        self.start_offset = self.synced_end_offset = self.sync_covers = snapshot.offset
        self.start_epoch = snapshot.epoch

    def settle_start(self) -> None:
        """A snapshot that the log does not reach to, since a part of it was not synced, stands in for it."""
        if self.snapshot is not None and self.snapshot[0].rank > (self.last_epoch, self.end_offset):
            self.install(*self.snapshot)

    def lose_power(self, random: SimRandom) -> None:
        unsynced = self.end_offset - self.synced_end_offset
        if unsynced > 0:
            self.truncate(self.synced_end_offset + random.randrange(unsynced + 1))

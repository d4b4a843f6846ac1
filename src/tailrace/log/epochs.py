"""The leader-epoch history of a log: at which offset each epoch began (KIP-101).

    entries: (epoch, start_offset), both strictly increasing

Followers and clients ask it where an epoch ended, to find where their log parts from the leader's. The file is
Kafka's leader-epoch-checkpoint. It is written with each sync of the log, before the recovery point moves, and at a
clean close; what began above the recovery point is found again by recovery, so an append never waits for it.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tailrace.log.checkpoints import format_entries, parse_entries
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ids import NO_EPOCH, NO_OFFSET
from tailrace.model.ports import Disk

FILE_NAME = "leader-epoch-checkpoint"


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE_NAME}"
        self._entries: list[EpochEntry] = []
        self._synced = self._entries  # what the file holds durably: a list is never changed, but replaced
        self.latest: int = NO_EPOCH

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """An append with `epoch` begins at `start_offset`. Entries that contradict it came from a log end that is
        gone: they are dropped."""
        if epoch <= NO_EPOCH or (epoch == self.latest and self._entries[-1].start_offset <= start_offset):
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._store([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch known that is not above `epoch`, and where it ended; (-1, -1) if there is no telling."""
        if epoch == NO_EPOCH or not self._entries or epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        number = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        next_start_offset = self._entries[number].start_offset
        if number == 0:
            # Older than all that is known: as in Kafka, the answer is the question's epoch and the first start.
            return epoch, next_start_offset
        return self._entries[number - 1].epoch, next_start_offset

    def find_divergence(self, epoch: int, offset: int, log_end_offset: int) -> tuple[int, int] | None:
        """For a reader whose last record before `offset` is of `epoch`: (epoch, end offset) of the largest epoch that
        it has in common with the log, if it has gone past it: it followed a history that was cut off (KIP-595)."""
        known_epoch, end_offset = self.end_offset_for(epoch, log_end_offset)
        if end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"Nothing is known of leader epoch {epoch}")
        return (known_epoch, end_offset) if known_epoch < epoch or end_offset < offset else None

    def epoch_for(self, offset: int) -> int:
        """The epoch that the record at `offset` was written in; -1 if it is older than the history."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[number - 1].epoch if number else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) != len(self._entries):
            self._store(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`; the epoch that was current there begins there."""
        number = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if number and self._entries[number - 1].start_offset != start_offset:
            first = EpochEntry(self._entries[number - 1].epoch, start_offset)
            self._store([first, *self._entries[number:]])
        elif number > 1:
            self._store(self._entries[number - 1 :])

    def restore(self, entries: Sequence[tuple[int, int]]) -> None:
        """The history of another copy of this log, or of what lies before its beginning here and then of itself."""
        restored = [EpochEntry(*entry) for entry in entries]
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(restored)), f"{restored}"
        self._store(restored)

    def clear(self) -> None:
        if self._entries:
            self._store([])

    def move_to(self, folder: str) -> None:
        """The log's folder has a new name."""
        self._path = f"{folder}/{FILE_NAME}"

    def load(self) -> bool:
        """Reads the file; False if it is missing or damaged, and the history is then empty."""
        try:
            text = self._disk.read(self._path)
        except FileNotFoundError:
            return False
        try:
            entries = [EpochEntry(epoch, offset) for epoch, offset in parse_entries(text, columns=2)]
        except StorageError:
            return False
        if any(a.epoch >= b.epoch or a.start_offset >= b.start_offset for a, b in pairwise(entries)):
            return False
        self._store(entries)
        self._synced = entries
        return True

    def unsynced(self) -> list[EpochEntry] | None:
        """What must be in the file, durably, before the recovery point may move, since recovery finds again only what
        began above that; None if it is there."""
        return None if self._entries is self._synced else self._entries

    def store(self, entries: list[EpochEntry]) -> None:
        """Blocks: Background only. Raises OSError."""
        self._disk.replace(self._path, format_entries(entries))

    def mark_synced(self, entries: list[EpochEntry]) -> None:
        self._synced = entries

    def _store(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self.latest = entries[-1].epoch if entries else NO_EPOCH

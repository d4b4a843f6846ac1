"""How much of a log is on the device: the recovery point, and the syncs that move it.

    begin    on the loop: notes what has been written, and hands out the work
    work     in Background: data, indexes and snapshots of closed segments, leader epochs, names; OSError
    end      on the loop: the recovery point moves to where the log ended at `begin`

Several syncs may be under way. A truncation between begin and end takes back what the sync was to cover, since the
same offsets may be written anew. What was to be synced and failed is owed to the next sync.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tailrace.log.epochs import EpochEntry, LeaderEpochs
from tailrace.log.segments import Segments
from tailrace.model.ports import Disk


@dataclass(slots=True)
class _Sync:
    end_offset: int  # its name
    covered_offset: int  # <= end_offset: lowered by a truncation
    names_version: int
    epochs: list[EpochEntry] | None


class Durability:
    def __init__(self, disk: Disk, folder: str, epochs: LeaderEpochs, *, recovery_point: int) -> None:
        self.recovery_point = recovery_point  # <= log end offset; all below is on the device
        self._disk = disk
        self._folder = folder
        self._epochs = epochs
        # Counts the changes of names. A log just opened may hold names that a crash left unsynced: one sync of the
        # folder too many is cheap, one too few could cost a segment.
        self._names_version = 1
        self._names_synced = 0
        self._syncs: list[_Sync] = []

    def note_names_changed(self) -> None:
        """A file was made, renamed or removed: the next sync covers the folder too."""
        self._names_version += 1

    def lower(self, offset: int) -> bool:
        """The log is cut at `offset`. Whether the recovery point fell."""
        for sync in self._syncs:
            sync.covered_offset = min(sync.covered_offset, offset)
        fell = offset < self.recovery_point
        self.recovery_point = min(self.recovery_point, offset)
        return fell

    def begin(self, segments: Segments, log_end_offset: int) -> Callable[[], None]:
        files, paths = segments.sync_targets(self.recovery_point)
        epochs = self._epochs.unsynced()
        must_sync_names = self._names_version != self._names_synced
        self._syncs.append(_Sync(log_end_offset, log_end_offset, self._names_version, epochs))

        def work() -> None:
            for file in files:
                file.sync()
            for path in paths:
                # Gone if its segment was compacted or deleted meanwhile.
                with suppress(FileNotFoundError):
                    self._disk.open(path).sync()
            if epochs is not None:
                self._epochs.store(epochs)
            if must_sync_names:
                self._disk.sync_folder(self._folder)

        return work

    def end(self, end_offset: int) -> None:
        sync = self._take(end_offset)
        self._names_synced = sync.names_version
        if sync.epochs is not None:
            self._epochs.mark_synced(sync.epochs)
        self.recovery_point = max(self.recovery_point, sync.covered_offset)

    def fail(self, end_offset: int) -> None:
        self._take(end_offset)

    def _take(self, end_offset: int) -> _Sync:
        for number, sync in enumerate(self._syncs):
            if sync.end_offset == end_offset:
                return self._syncs.pop(number)
        raise AssertionError(f"no sync up to {end_offset} was begun")

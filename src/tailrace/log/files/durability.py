"""How much of a log is on the device: the recovery point, and the syncs that move it.

Rules:
  - The recovery point moves only when all below it is durable: leader epochs, data, indexes and their ledger, names.
    Recovery takes what lies below it for synced.
  - A truncation takes back what a sync under way was to cover.
  - A disk without space costs time and no data: the sync is tried again. Any other failure is final for the log.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from functools import partial

from tailrace.log.checkpoints import PARTITION_METADATA
from tailrace.log.epochs import EpochEntry, LeaderEpochs
from tailrace.log.files.ledger import AbortedLedger, Ledger
from tailrace.log.files.segments import Segments
from tailrace.model.errors import StorageError
from tailrace.model.ports import Disk


@dataclass(slots=True)
class _Sync:
    end_offset: int  # its name
    covered_offset: int  # <= end_offset: lowered by a truncation
    names_version: int
    epochs: list[EpochEntry] | None
    ledger: Ledger | None


class Durability:
    """
        begin    on the loop: notes what has been written, and hands out the work
        work     in Background: leader epochs, the ledger, data, indexes and snapshots of closed segments, names;
                 OSError, or StorageError if nothing was synced and nothing can be lost
        end      on the loop: the recovery point moves to where the log ended at `begin`

    Several syncs may be under way. A truncation between begin and end takes back what the sync was to cover, since
    the same offsets may be written anew. What was to be synced and failed is owed to the next sync.
    """

    def __init__(
        self, disk: Disk, folder: str, epochs: LeaderEpochs, ledger: AbortedLedger, *, recovery_point: int
    ) -> None:
        self.recovery_point = recovery_point  # <= log end offset; all below is on the device
        self._disk = disk
        self._folder = folder
        self._epochs = epochs
        self._ledger = ledger
        # Counts the changes of names. A log just opened may hold names that a crash left unsynced: one sync of the
        # folder too many is cheap, one too few could cost a segment.
        self._names_version = 1
        self._names_synced = 0
        self._syncs: list[_Sync] = []

    def move_to(self, folder: str) -> None:
        """The folder has a new name, which is to be synced as that of a new log is."""
        assert not self._syncs, "no sync is under way while the folder is renamed"
        self._folder = folder
        self._ledger.move_to(folder)
        self._names_version += 1
        self._names_synced = 0

    def note_names_changed(self) -> None:
        """A file was made, renamed or removed: the next sync covers the folder too."""
        self._names_version += 1

    def lower(self, offset: int) -> None:
        """The log is cut at `offset`."""
        for sync in self._syncs:
            sync.covered_offset = min(sync.covered_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)

    def start_anew(self, offset: int) -> None:
        """Nothing is left of the log, and so nothing is unsynced."""
        self.recovery_point = offset

    def is_complete(self, segments: Segments, log_end_offset: int) -> bool:
        """Whether a sync would find nothing to do."""
        return (
            self.recovery_point >= log_end_offset
            and self._names_synced == self._names_version
            and self._epochs.unsynced() is None
            and self._ledger.unsynced(segments.all) is None
        )

    def begin(self, segments: Segments, log_end_offset: int) -> Callable[[], None]:
        files, paths = segments.sync_targets(self.recovery_point)
        epochs, ledger = self._epochs.unsynced(), self._ledger.unsynced(segments.all)
        must_sync_names = self._names_version != self._names_synced
        # The log's own name lies in the data folder, and may be as new as its records; so may be whose log it is.
        is_first, data_folder = self._names_synced == 0, self._folder.rpartition("/")[0]
        if is_first:
            paths.append(f"{self._folder}/{PARTITION_METADATA}")
        self._syncs.append(_Sync(log_end_offset, log_end_offset, self._names_version, epochs, ledger))

        def work() -> None:
            # What needs a new file comes first: a full disk then ends the sync before anything is synced, and it may be
            # tried again.
            if epochs is not None:
                self._store("leader epochs", partial(self._epochs.store, epochs))
            if ledger is not None:
                self._store("list of aborted transactions", partial(self._ledger.store, ledger))
            for file in files:
                file.sync()
            for path in paths:
                # Gone if its segment was compacted or deleted meanwhile.
                with suppress(FileNotFoundError):
                    self._disk.open(path).sync()
            # Whatever replaces a file syncs its folder, and so all names in it.
            if epochs is None and ledger is None and must_sync_names:
                self._disk.sync_folder(self._folder)
            if is_first and data_folder:
                self._disk.sync_folder(data_folder)

        return work

    def _store(self, what: str, store: Callable[[], None]) -> None:
        try:
            store()
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise
            # Nothing is synced yet, so it may be tried again when there is space.
            raise StorageError(f"the {what} of {self._folder} cannot be stored: {error}") from error

    def end(self, end_offset: int) -> None:
        sync = self._take(end_offset)
        assert sync.covered_offset <= end_offset, f"a sync up to {end_offset} covers {sync.covered_offset}"
        self._names_synced = sync.names_version
        if sync.epochs is not None:
            self._epochs.mark_synced(sync.epochs)
        if sync.ledger is not None:
            self._ledger.mark_synced(sync.ledger)
        self.recovery_point = max(self.recovery_point, sync.covered_offset)

    def fail(self, end_offset: int) -> None:
        self._take(end_offset)

    def _take(self, end_offset: int) -> _Sync:
        for number, sync in enumerate(self._syncs):
            if sync.end_offset == end_offset:
                return self._syncs.pop(number)
        raise AssertionError(f"no sync up to {end_offset} was begun")

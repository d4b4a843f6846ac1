"""What is stored of each segment's index of aborted transactions, so that one that was lost or changed is noticed.

    aborted-index-checkpoint   a line for each segment that has such an index: base offset, entries, CRC-32 of them all

The index of a segment where nothing was aborted does not exist, so nothing would tell it from one that was lost, and
readers at read_committed would get what was aborted. The ledger is stored with each sync, before the recovery point
moves: what lies above that is scanned at a start and needs none. A segment that it does not name is taken as it is, as
those that Kafka has written. After a compaction it is behind until the next sync; then a start makes an index anew for
nothing, which is cheap.
"""

from tailrace.log.checkpoints import format_entries, parse_entries
from tailrace.log.files.segment import Segment
from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ports import Disk

FILE_NAME = "aborted-index-checkpoint"

# By base offset: the number of entries and their CRC.
Ledger = dict[int, tuple[int, int]]

log = events.logger("log.ledger")


class AbortedLedger:
    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{FILE_NAME}"
        self._synced: Ledger = {}  # what the file holds durably

    def move_to(self, folder: str) -> None:
        """The log's folder has a new name."""
        self._path = f"{folder}/{FILE_NAME}"

    def load(self) -> None:
        """A file that is missing or damaged is read as empty. Raises OSError."""
        try:
            entries = parse_entries(self._disk.read(self._path), columns=3)
        except FileNotFoundError:
            return
        except StorageError as error:
            log.warning("a damaged checkpoint is read as missing and will be rebuilt", file=self._path, cause=error)
            return
        self._synced = {base_offset: (count, crc) for base_offset, count, crc in entries}

    def find_problem(self, segment: Segment) -> str:
        """How the index of a segment differs from what was stored of it, or nothing. Raises OSError."""
        stored = self._synced.get(segment.base_offset)
        if stored is None or stored == (found := segment.aborted.summary()):
            return ""
        segment.release()
        return f"{segment.aborted.path} has {found[0]} entries (CRC {found[1]:08x}), not {stored[0]} ({stored[1]:08x})"

    def unsynced(self, segments: list[Segment]) -> Ledger | None:
        """What must be in the file, durably, before the recovery point may move: below that nothing is scanned, and
        only the ledger shows that an index was lost. None if it is there."""
        ledger: Ledger = {}
        for segment in segments:
            if len(segment.aborted):
                try:
                    ledger[segment.base_offset] = segment.aborted.summary()
                except OSError as error:
                    log.warning("an index cannot be read", file=segment.aborted.path, cause=error)
                    if (stored := self._synced.get(segment.base_offset)) is not None:
                        ledger[segment.base_offset] = stored
        return None if ledger == self._synced else ledger

    def store(self, ledger: Ledger) -> None:
        """Blocks: Background only. Raises OSError."""
        self._disk.replace(self._path, format_entries((base, *summary) for base, summary in ledger.items()))

    def mark_synced(self, ledger: Ledger) -> None:
        self._synced = ledger

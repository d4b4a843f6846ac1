"""Up to where the metadata log was synced, kept beside the log: what must be there at the next start.

    .tailrace_metadata_synced   in the data folder, so that it outlasts the folder of the log; lines of
                                <offset, 20 digits> <CRC-32C of these, 8 hex digits>; the last whole line holds

Rules:
  - A line is appended after each sync of the log, before anyone is told of it. So after the death of the process the
    last line is exact: what is missing below it was lost, and what is damaged above it was promised to nobody.
  - Lines reach the device a moment later (`begin_flush`), since a second sync would double the time of each change.
    A power loss may so bring back an earlier line, of at most that moment before. It is too low, never too high.
  - Before the log is cut on purpose the file is replaced by one lower line, durably.
  - The first line stays where it is while others come and go behind it: there is always one to go by.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tailrace.log.files.failures import disk_errors
from tailrace.model import events
from tailrace.model.ports import Disk, File
from tailrace.wire.checksum import crc32c

FILE_NAME = ".tailrace_metadata_synced"
_OFFSET_DIGITS = 20
_LINE_BYTES = _OFFSET_DIGITS + 1 + 8 + 1
# Some two thousand syncs: then the file begins anew.
_SIZE_MAX_BYTES = 64 << 10

_log = events.logger("quorum")


def read_synced_end(disk: Disk, folder: str) -> int | None:
    """None if there is no line that can be read: then nobody knows. OSError."""
    try:
        data = disk.read(f"{folder}/{FILE_NAME}")
    except FileNotFoundError:
        return None
    for position in range(len(data) // _LINE_BYTES * _LINE_BYTES - _LINE_BYTES, -1, -_LINE_BYTES):
        line = data[position : position + _LINE_BYTES]
        digits = line[:_OFFSET_DIGITS]
        if digits.isdigit() and line == _line(int(digits)):
            return int(digits)
    return None


def store_synced_end(disk: Disk, folder: str, offset: int) -> None:
    """Durably, and instead of all that was there. OSError."""
    disk.replace(f"{folder}/{FILE_NAME}", _line(offset))


class SyncedEnd:
    def __init__(self, disk: Disk, folder: str) -> None:
        """OSError."""
        self.offset = read_synced_end(disk, folder)
        self._disk = disk
        self._folder = folder
        self._file: File | None = None
        self._is_flushed = True

    @property
    def is_known(self) -> bool:
        return self.offset is not None

    def begin(self) -> None:
        """Before anything is written to the log: from here on there is a line to go by. StorageError."""
        if self.offset is None:
            with disk_errors(f"{self._folder}/{FILE_NAME} cannot be written"):
                self._replace(0)

    def note(self, offset: int) -> None:
        """All below `offset` is on the device."""
        if offset == self.offset:
            return
        try:
            file = self._opened()
            if file.size >= _SIZE_MAX_BYTES:
                file.truncate(_LINE_BYTES)
            elif file.size % _LINE_BYTES:
                # A stop, or a full disk, has left a part of a line.
                file.truncate(file.size // _LINE_BYTES * _LINE_BYTES)
            file.append((_line(offset),))
        except OSError as error:
            # A full disk: it is behind then, which costs no more than that less is noticed.
            _log.debug("the synced end of the metadata log could not be noted", offset=offset, cause=error)
            return
        self.offset = offset
        self._is_flushed = False

    def lower(self, offset: int) -> None:
        """The log is about to be cut at `offset`. Syncs, on the loop: this is rare, and everything waits for it anyway.
        StorageError."""
        if self.offset is None or self.offset <= offset:
            return
        with disk_errors(f"{self._folder}/{FILE_NAME} cannot be lowered"):
            try:
                self._replace(offset)
            except OSError:
                # No space for a new file, perhaps. Without the file nothing is claimed.
                self._file, self.offset = None, None
                with suppress(FileNotFoundError):
                    self._disk.remove(f"{self._folder}/{FILE_NAME}")
                self._disk.sync_folder(self._folder)

    def begin_flush(self) -> Callable[[], None] | None:
        """Work for Background that brings what was noted to the device; None if it is there. It raises OSError."""
        if self._is_flushed or self._file is None:
            return None
        self._is_flushed = True
        return self._file.sync

    def _opened(self) -> File:
        if self._file is None:
            if self.offset is None:
                self._replace(0)
            self._file = self._disk.open(f"{self._folder}/{FILE_NAME}")
        return self._file

    def _replace(self, offset: int) -> None:
        store_synced_end(self._disk, self._folder, offset)
        self._file, self.offset = None, offset


def _line(offset: int) -> bytes:
    digits = b"%0*d" % (_OFFSET_DIGITS, offset)
    return b"%s %08x\n" % (digits, crc32c(digits))

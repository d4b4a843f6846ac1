"""The aborted transactions of a segment, in Kafka's file: those whose markers lie in it.

    %020d.txnindex   int16 version (0), int64 producer id, int64 first offset, int64 offset of the marker,
                     int64 last stable offset once it was ended: whatever is aborted later begins there or after it

Readers at read_committed are told of them and pass over the records. The file exists only where there is something to
tell; whoever opens a segment attaches it then. Like the sparse indexes it is kept in memory while the segment is
written, and made anew by recovery.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from tailrace.log.files.index import SparseIndex
from tailrace.model.ports import Disk

ABORTED_ENTRY = Struct(">hqqqq")
_VERSION = 0
_LAST_OFFSET_COLUMN = 3


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int


class AbortedIndex(SparseIndex):
    """In the order of the markers."""

    __slots__ = ("_summary",)

    def __init__(self, disk: Disk, path: str) -> None:
        super().__init__(disk, path, ABORTED_ENTRY)
        self._summary = (0, 0)

    def summary(self) -> tuple[int, int]:
        """The number of entries and the CRC of all of them. Raises OSError."""
        if self._summary[0] != len(self):
            stored = self._map()[: self._stored * self._entry.size]
            self._summary = (len(self), crc32(self._tail, crc32(stored)))
        return self._summary

    def attach(self) -> str:
        self._summary = (0, 0)
        return super().attach()

    def truncate(self, count: int) -> None:
        self._summary = (0, 0)
        super().truncate(count)

    def add(self, aborted: AbortedTransaction) -> None:
        self.append(_VERSION, *aborted)

    def from_offset(self, offset: int) -> Iterator[AbortedTransaction]:
        """Those whose markers lie at `offset` or after it."""
        for number in range(self.floor(offset - 1, column=_LAST_OFFSET_COLUMN) + 1, len(self)):
            yield AbortedTransaction(*self.entry(number)[1:])

    def cut(self, offset: int) -> None:
        """The log is cut at `offset`."""
        if len(self):
            self.truncate(self.floor(offset - 1, column=_LAST_OFFSET_COLUMN) + 1)

    def write_out(self, *, sync: bool = False) -> None:
        """Makes no file where there is nothing to tell; but one that an earlier segment of this name has left must not
        speak for this one."""
        if len(self) == 0:
            try:
                self._disk.size(self.path)
            except FileNotFoundError:
                return
        super().write_out(sync=sync)

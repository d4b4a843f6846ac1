"""The sparse indexes of a segment, in Kafka's file formats, searched where they lie.

    %020d.index      int32 last offset of a batch - base offset, int32 position of that batch
    %020d.timeindex  int64 largest timestamp so far, int32 last offset of its batch - base offset

An index is a file that is memory-mapped when it is first searched, and a short tail in memory that holds what was
added since. Both have the same format and the same binary search. The tail is appended to the file when it reaches
SPILL_BYTES and when the segment is closed or rolled; it is never needed after a crash, because recovery rebuilds the
indexes of every segment that it scans. So an entry costs no system call when it is added, and a failing write of it
costs nothing but memory.

Never reads the log: `segment` decides what is added.
"""

from struct import Struct

from tailrace.model.ports import Disk

# 512 offset entries: with an entry every 4 KB, one small write per 2 MB of log.
SPILL_BYTES = 4096

_EMPTY = memoryview(b"")


class SparseIndex:
    """Entries of two columns, each of which only grows; or of more, some of which do."""

    __slots__ = ("_disk", "_entry", "_last", "_mapped", "_stored", "_tail", "path")

    def __init__(self, disk: Disk, path: str, entry: Struct) -> None:
        self.path = path
        self._disk = disk
        self._entry = entry
        self._stored = 0  # entries in the file
        self._tail = bytearray()  # entries after those, in the file's format
        self._mapped: memoryview | None = None  # of the file; dropped when the file changes
        self._last: tuple[int, ...] | None = None  # the last entry, once it is known

    def attach(self) -> str:
        """Takes up the file that an earlier run left; returns what is wrong with it, or nothing."""
        self._mapped = self._last = None
        self._tail.clear()
        self._stored = 0
        try:
            size = self._disk.size(self.path)
        except FileNotFoundError:
            return f"{self.path} is missing"
        if size % self._entry.size:
            return f"{self.path} has {size} bytes, no multiple of {self._entry.size}"
        self._stored = size // self._entry.size
        return ""

    def __len__(self) -> int:
        return self._stored + len(self._tail) // self._entry.size

    def entry(self, number: int) -> tuple[int, ...]:
        size = self._entry.size
        if number >= self._stored:
            return self._entry.unpack_from(self._tail, (number - self._stored) * size)
        return self._entry.unpack_from(self._map(), number * size)

    def last(self) -> tuple[int, ...] | None:
        """The last entry. An index that was asked before, or has been added to, tells it without touching the file."""
        if self._last is None and (count := len(self)):
            self._last = self.entry(count - 1)
        return self._last

    def floor(self, target: int, column: int = 0) -> int:
        """The number of the last entry whose column is <= target; -1 if there is none."""
        tail = self._tail
        if tail and self._entry.unpack_from(tail, 0)[column] <= target:
            return self._stored + self._search(tail, len(tail) // self._entry.size, target, column)
        if not self._stored:
            return -1
        return self._search(self._map(), self._stored, target, column)

    def append(self, *columns: int) -> None:
        self._tail += self._entry.pack(*columns)
        self._last = columns
        if len(self._tail) >= SPILL_BYTES:
            self._spill()

    def truncate(self, count: int) -> None:
        """Keeps the first `count` entries."""
        self._last = None
        if count >= self._stored:
            del self._tail[(count - self._stored) * self._entry.size :]
            return
        # The map must go before the file shrinks: touching a page behind the end of a file kills the process.
        self._mapped = None
        self._disk.open(self.path, create=True).truncate(count * self._entry.size)
        self._stored = count
        self._tail.clear()

    def write_out(self, *, sync: bool = False) -> None:
        """Puts the tail into the file; the file exists afterwards, also where the index is empty."""
        file = self._disk.open(self.path, create=True)
        expected_size = self._stored * self._entry.size
        if file.size != expected_size:
            self._mapped = None
            file.truncate(expected_size)
        if self._tail:
            file.append([self._tail])
            self._stored = len(self)
            self._tail = bytearray()
            self._mapped = None
        if sync:
            file.sync()

    def release(self) -> None:
        """Drops the map; the next search makes it again."""
        self._mapped = None

    def _spill(self) -> None:
        try:
            self.write_out()
        except OSError:
            # A full disk: the entries stay in memory and go out with a later batch of them. A part that was written
            # is cut before that.
            self._mapped = None

    def _map(self) -> memoryview:
        mapped = self._mapped
        if mapped is None:
            mapped = self._disk.open(self.path).map() if self._stored else _EMPTY
            self._mapped = mapped
        return mapped

    def _search(self, entries: memoryview | bytearray, count: int, target: int, column: int) -> int:
        unpack_from, size = self._entry.unpack_from, self._entry.size
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if unpack_from(entries, middle * size)[column] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1


OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")


def is_indexable(relative_offset: int) -> bool:
    """Whether an entry can tell of it. Where not, a bit of the batch's offset has flipped: the log never rolls so
    late."""
    return -(1 << 31) <= relative_offset < 1 << 31

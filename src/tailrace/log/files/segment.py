"""A segment: one file of batches back to back, and the two sparse indexes that find places in it.

Rules:
  - `size_bytes` is the end of the good batches. What a failed write left behind it is cut off before the next write,
    and is never read.
  - Every `index.interval.bytes` a batch gets an offset entry (its last offset, its position) and, if the largest
    timestamp has grown, a time entry. So a lookup walks over at most one interval and one batch, by headers alone.
  - Handles, maps and index sizes are got when first needed: a clean start opens no segment.
  - A FileSlice holds its file: renaming, removing and replacing a segment disturb no reader.

Never decides when to roll, sync or delete: `log` does.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from zlib import crc32

from tailrace.log.files.aborted import AbortedIndex
from tailrace.log.files.damaged import DamagedError, DamagedRange, damage_at
from tailrace.log.files.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex, is_indexable
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ports import Disk, File, FileSlice
from tailrace.wire.records import HEADER_SIZE, BatchHeader, read_header

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
ABORTED_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)

MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1
LOOKUP_BYTES = 4096 + HEADER_SIZE  # one read of a lookup: an index interval of the default 4 KB, and a header
SCAN_BYTES = 1024 * 1024  # one read of a scan: large enough for the device, small beside a broker's memory
HINTS_MAX = 64  # places that tailing readers come back to, one each

# Base offset, batch length and last offset delta: all that a walk needs.
_WALK = Struct(">qi11xi")
_LOG_OVERHEAD = 12
_BATCH_LENGTH_MIN = HEADER_SIZE - _LOG_OVERHEAD

log = events.logger("log.segment")


class Segment:
    __slots__ = (
        "_disk",
        "_file",
        "_first_timestamp",
        "_folder",
        "_hints",
        "_is_loaded",
        "_is_torn",
        "_max_timestamp",
        "_offset_of_max_timestamp",
        "aborted",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "damaged_ranges",
        "index_bytes_max",
        "index_interval_bytes",
        "is_index_full",
        "offset_index",
        "size_bytes",
        "suffix",
        "time_index",
        "was_used",
    )

    def __init__(
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        config: TopicConfig,
        created_ms: int,
        size_bytes: int = 0,
        suffix: str = "",
    ) -> None:
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.is_index_full = False
        self.bytes_since_index = 0
        self.was_used = False  # since the last sweep over idle handles
        self.damaged_ranges: tuple[DamagedRange, ...] = ()  # in order; walks pass over it
        self._disk = disk
        self._folder = folder
        self.suffix = suffix
        self.offset_index = SparseIndex(disk, self.path(INDEX_SUFFIX), OFFSET_ENTRY)
        self.time_index = SparseIndex(disk, self.path(TIME_INDEX_SUFFIX), TIME_ENTRY)
        self.aborted = AbortedIndex(disk, self.path(ABORTED_SUFFIX))
        self._file: File | None = None
        self._is_loaded = size_bytes == 0  # the indexes of a segment that was there are looked at when needed
        self._is_torn = False  # a failed write may have left bytes behind size_bytes
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp: int | None = None
        self._hints: dict[int, int] = {}  # offset -> position of the batch that begins or will begin there
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        self.index_interval_bytes, self.index_bytes_max = config.index_interval_bytes, config.segment_index_bytes

    @classmethod
    def create(
        cls, disk: Disk, folder: str, base_offset: int, *, config: TopicConfig, created_ms: int, suffix: str = ""
    ) -> "Segment":
        """A new, empty segment. Files of an earlier one with its names are emptied."""
        segment = cls(disk, folder, base_offset, config=config, created_ms=created_ms, suffix=suffix)
        file = disk.open(segment.path(LOG_SUFFIX), create=True)
        if file.size:
            file.truncate(0)
        segment._file = file
        return segment

    def path(self, kind: str) -> str:
        return f"{self._folder}/{self.base_offset:020d}{kind}{self.suffix}"

    @property
    def file(self) -> File:
        self.was_used = True
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX))
        return self._file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def release(self) -> None:
        """Closes handle and maps; those who hold slices keep theirs."""
        self._file = None
        self.offset_index.release()
        self.time_index.release()
        self.aborted.release()

    @property
    def max_timestamp(self) -> int:
        """The largest of its records, -1 where none has one."""
        if not self._is_loaded:
            self.load()
        return self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """For retention: the file's own time where the records have none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.path(LOG_SUFFIX))

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first batch, from which the age of a segment counts; -1 if it is empty."""
        if self._first_timestamp is None:
            if self.size_bytes == 0:
                return NO_TIMESTAMP
            self._first_timestamp = self._header_in(self.file.read(0, HEADER_SIZE), 0, 0).max_timestamp
        return self._first_timestamp

    def roll_jitter_ms(self, config: TopicConfig) -> int:
        """Taken off segment.ms so that segments do not roll all at once: chance enough, and the same next time."""
        limit_ms = min(config.segment_jitter_ms, config.segment_ms)
        return crc32(self.path(LOG_SUFFIX).encode()) % limit_ms if limit_ms > 0 else 0

    # Writing

    def write_all(self, views: Sequence[memoryview | bytes], size_bytes: int) -> None:
        """One write for all batches in the views. If it fails nothing has changed, and StorageError tells why."""
        try:
            # Before the write: if this failed after it, the batch would be there and its writer told that it is not.
            if not self._is_loaded:
                self.load()
            file = self._file or self.file
        except OSError as error:
            raise StorageError(f"{self.path(LOG_SUFFIX)} cannot be written: {error}") from error
        try:
            if self._is_torn:
                file.truncate(self.size_bytes)
                self._is_torn = False
            file.append(views)
        except OSError as error:
            self._cut_tail(file)
            raise StorageError(f"{self.path(LOG_SUFFIX)} cannot be written: {error}") from error
        self.size_bytes += size_bytes

    def note_batch(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """A batch lies at `position`: keeps the largest timestamp and, an interval apart, the indexes. Never fails:
        the batch is written."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        if position == 0:
            self._first_timestamp = max_timestamp
        if self.bytes_since_index > self.index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self._add_time_entry()
            self.bytes_since_index = 0
            # One time entry is kept free for the last, which is added when the segment is sealed.
            entries_size = max(len(self.offset_index) * OFFSET_ENTRY.size, (len(self.time_index) + 1) * TIME_ENTRY.size)
            self.is_index_full = entries_size + TIME_ENTRY.size > self.index_bytes_max
        self.bytes_since_index += size

    def seal(self, *, sync: bool = False) -> None:
        """Puts the indexes into their files, the largest timestamp as last entry, as on roll and close. From now on the
        size of the file is taken for that of the segment, so what a failed write left is cut off. Raises OSError."""
        if self._is_torn:
            self.file.truncate(self.size_bytes)
            self._is_torn = False
        if self._is_loaded and self.size_bytes:
            self._add_time_entry()
            self.offset_index.write_out(sync=sync)
            self.time_index.write_out(sync=sync)
            self.aborted.write_out(sync=sync)

    def sync(self) -> None:
        """Blocks: Background only. Data alone; the indexes are rebuilt if they are lost."""
        (self._file or self._disk.open(self.path(LOG_SUFFIX))).sync()

    def _add_time_entry(self) -> None:
        last, offset = self.time_index.last(), self._offset_of_max_timestamp - self.base_offset
        if self._max_timestamp > (last[0] if last else NO_TIMESTAMP) and is_indexable(offset):
            self.time_index.append(self._max_timestamp, offset)

    def _cut_tail(self, file: File) -> None:
        self._is_torn = True
        try:
            file.truncate(self.size_bytes)
            self._is_torn = False
        except OSError as error:
            # The next write tries again first; readers never look behind size_bytes.
            log.warning("a failed write could not be cut off yet", file=file.path, cause=error)

    # Reading

    def read_from(
        self, position: int, max_bytes: int, end_position: int, *, at_least_one_batch: bool
    ) -> FileSlice | None:
        """From the batch at `position` up to `end_position`. Where max_bytes cuts, the slice ends before a batch that
        the index knows; where it knows none, in the middle of one as in Kafka, but never within the first."""
        size = end_position - position
        if size > max_bytes:
            size = self._limited_size(position, max_bytes, at_least_one_batch=at_least_one_batch)
        return FileSlice(self.file, position, size) if size > 0 else None

    def position_of(self, offset: int) -> int | None:
        """Where the first batch begins whose last offset is >= `offset`; None if there is none."""
        position = self._hints.get(offset)
        if position is not None and position < self.size_bytes:
            return position
        (indexed_offset, position), end = self._floor_entry(offset), self.size_bytes
        file, chunk, chunk_start = self.file, b"", position
        next_offset = self.base_offset  # What the batch at `position` begins with, or something after it.
        while position + HEADER_SIZE <= end:
            if self.damaged_ranges and (damage := damage_at(self.damaged_ranges, position)) is not None:
                if offset < damage.end_offset:
                    return damage.position
                position, indexed_offset, next_offset = damage.end_position, -1, damage.end_offset
                continue
            at = position - chunk_start
            if at + _WALK.size > len(chunk):
                chunk, chunk_start, at = file.read(position, LOOKUP_BYTES), position, 0
                if len(chunk) < _WALK.size:
                    raise self._damaged(position)  # Somebody has cut the file.
            base_offset, batch_length, last_offset_delta = _WALK.unpack_from(chunk, at)
            last_offset = base_offset + last_offset_delta
            if indexed_offset >= 0:
                if last_offset != indexed_offset:
                    self._mistrust_indexes(f"an entry names offset {indexed_offset} at {position}, not {last_offset}")
                    return self.position_of(offset)
                indexed_offset = -1
            # Offsets are not covered by the CRC: a batch that seems to be older must not be passed over.
            if base_offset < next_offset or batch_length < _BATCH_LENGTH_MIN:
                raise self._damaged(position)
            if last_offset >= offset:
                return position
            next_offset = last_offset + 1
            position += batch_length + _LOG_OVERHEAD
        if position != end:
            raise self._damaged(position)  # A length led past the end: what lies between must not be passed over.
        return None

    def indexed_offset_from(self, position: int) -> int | None:
        """The last offset of the first batch at `position` or after it that the index knows."""
        number = self.offset_index.floor(position - 1, column=1) + 1
        return None if number >= len(self.offset_index) else self.base_offset + self.offset_index.entry(number)[0]

    def hint(self, offset: int, position: int) -> None:
        """A reader has come to `offset` and will ask for it next: spares the search."""
        hints = self._hints
        if offset not in hints:
            if len(hints) >= HINTS_MAX:
                del hints[next(iter(hints))]
            hints[offset] = position

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each whole batch from `position`, which must be where one begins. Reads in chunks,
        and large batches not at all. Raises DamagedError where the bytes are no batch."""
        file, chunk, chunk_start = self.file, b"", position
        while position + HEADER_SIZE <= self.size_bytes:
            if self.damaged_ranges and (damage := damage_at(self.damaged_ranges, position)) is not None:
                position = damage.end_position
                continue
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = file.read(position, min(SCAN_BYTES, self.size_bytes - position)), position, 0
            header = self._header_in(chunk, at, position)
            size = header.batch_length + _LOG_OVERHEAD
            if position + size > self.size_bytes:
                return
            yield position, header
            position += size

    def read_next_offset(self) -> int:
        """The offset after its last record, found behind the last index entry."""
        next_offset = self.base_offset
        for _, header in self.headers(self._last_indexed_position()):
            next_offset = header.next_offset
        return next_offset

    def _header_in(self, chunk: bytes, at: int, position: int) -> BatchHeader:
        try:
            return read_header(chunk, at)
        except KafkaError as error:
            raise self._damaged(position) from error

    def _damaged(self, position: int) -> DamagedError:
        return DamagedError(self.base_offset, f"{self.path(LOG_SUFFIX)} is damaged: no batch begins at {position}")

    def _floor_entry(self, offset: int) -> tuple[int, int]:
        """The last offset and the position of the batch to begin a walk at; without an entry -1 and 0."""
        if not self._is_loaded:
            self.load()
        number = self.offset_index.floor(offset - self.base_offset)
        if number < 0:
            return -1, 0
        relative_offset, position = self.offset_index.entry(number)
        if not 0 <= position <= self.size_bytes - HEADER_SIZE:
            self._mistrust_indexes(f"an entry points to position {position} of {self.size_bytes}")
            return self._floor_entry(offset)
        return self.base_offset + relative_offset, position

    def _mistrust_indexes(self, cause: str) -> None:
        log.warning("an index is rebuilt", file=self.path(INDEX_SUFFIX), cause=cause)
        self.rebuild_indexes()

    def _last_indexed_position(self) -> int:
        if not self._is_loaded:
            self.load()
        last = self.offset_index.last()
        return last[1] if last else 0

    def _limited_size(self, position: int, max_bytes: int, *, at_least_one_batch: bool) -> int:
        _, batch_length, _ = _WALK.unpack_from(self.file.read(position, _WALK.size))
        first_size = int(batch_length) + _LOG_OVERHEAD
        if first_size >= max_bytes:
            return first_size if at_least_one_batch or first_size == max_bytes else 0
        number = self.offset_index.floor(position + max_bytes, column=1)
        indexed = self.offset_index.entry(number)[1] if number >= 0 else 0
        return indexed - position if indexed > position else max_bytes

    # Cutting and rebuilding

    def truncate(self, offset: int) -> None:
        """Removes the batch that holds `offset` and all after it. Raises OSError."""
        position = self.position_of(offset)
        if position is None:
            return
        self._hints.clear()
        self.file.truncate(position)
        self.size_bytes = position
        self.damaged_ranges = tuple(each for each in self.damaged_ranges if each.end_position <= position)
        self.offset_index.truncate(self.offset_index.floor(offset - self.base_offset - 1) + 1)
        self.time_index.truncate(self.time_index.floor(offset - self.base_offset - 1, column=1) + 1)
        self.aborted.cut(offset)
        self._restore_from_indexes()

    def cut(self, position: int) -> None:
        """Recovery: what lies behind `position` is no part of the log. The indexes are rebuilt by the caller."""
        self._hints.clear()
        self.file.truncate(position)
        self.size_bytes = position

    def reset_indexes(self) -> None:
        """Forgets all entries; whoever walks the batches notes them anew."""
        self.offset_index.truncate(0)
        self.time_index.truncate(0)
        self._is_loaded = True
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = None
        self.bytes_since_index = 0

    def rebuild_indexes(self) -> None:
        self.reset_indexes()
        for position, header in self.headers():
            if is_indexable(header.last_offset - self.base_offset):
                self.note_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)
        # Durably: a part that a power loss has left would be taken for the whole.
        self.seal(sync=True)

    def load(self) -> None:
        """Takes up the index files, or makes them anew where they are missing or cannot be right. Raises OSError or
        StorageError, and then the next call begins again: a part of a segment must not pass for all of it."""
        self._is_loaded = True
        try:
            problem = self.offset_index.attach() or self.time_index.attach() or self._find_index_problem()
            if problem:
                self._mistrust_indexes(problem)
            else:
                self._restore_from_indexes()
        except (OSError, StorageError):
            self._is_loaded = False
            raise

    def _find_index_problem(self) -> str:
        """Looks at the last entries alone: segments above the recovery point were checked by recovery."""
        last = self.offset_index.last()
        if last is not None:
            relative_offset, position = last
            if len(self.offset_index) > 1 and self.offset_index.entry(0) >= last:
                return "its offsets do not grow"
            if not 0 <= position <= self.size_bytes - HEADER_SIZE:
                return f"its last entry points to position {position} of {self.size_bytes}"
            try:
                header = read_header(self.file.read(position, HEADER_SIZE))
            except KafkaError:
                return f"its last entry points to position {position}, where no batch begins"
            if header.last_offset != self.base_offset + relative_offset:
                return f"its last entry names offset {self.base_offset + relative_offset}, not {header.last_offset}"
        last = self.time_index.last()
        if last is not None:
            return self._find_time_problem(*last)
        return "the time index is empty" if self.size_bytes and self.first_timestamp >= 0 else ""

    def _find_time_problem(self, timestamp: int, relative_offset: int) -> str:
        """By this entry retention judges the whole segment: it must be that of a batch."""
        if self.time_index.entry(0) > (timestamp, relative_offset):
            return "its timestamps go back"
        position = self.position_of(self.base_offset + relative_offset) if relative_offset >= 0 else None
        header = None if position is None else self._header_in(self.file.read(position, HEADER_SIZE), 0, position)
        if header is None or (header.max_timestamp, header.last_offset) != (
            timestamp,
            self.base_offset + relative_offset,
        ):
            return f"no batch ends at offset {self.base_offset + relative_offset} with the timestamp {timestamp}"
        return ""

    def _restore_from_indexes(self) -> None:
        """The last time entry is the largest timestamp up to the last offset entry; the few batches after that are
        looked at."""
        start = self._last_indexed_position()
        self.bytes_since_index = self.size_bytes - start
        self._max_timestamp, self._offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        last = self.time_index.last()
        if last is not None:
            self._max_timestamp, relative_offset = last
            self._offset_of_max_timestamp = self.base_offset + relative_offset
        if not self.size_bytes:
            self._first_timestamp = None
        for _, header in self.headers(start):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset

    # Names

    def rename(self, suffix: str) -> None:
        """Gives all its files another suffix, the log file first: its name alone tells a start what the segment is, and
        the others follow it or go with it. The other way round a stop in between would leave a log file in use without
        its indexes, and that of aborted transactions is not found again by looking at this segment alone. Raises
        OSError; `suffix` then tells what the log file has, and an index that kept its old one is out of sight until the
        next start."""
        for kind, old_path in [(kind, self.path(kind)) for kind in SEGMENT_SUFFIXES]:
            # Missing is an index that was never put into a file, or a file that someone removed.
            with suppress(FileNotFoundError):
                self._disk.rename(old_path, f"{self._folder}/{self.base_offset:020d}{kind}{suffix}")
            self.suffix = suffix
            self.move_to(self._folder)

    def move_to(self, folder: str) -> None:
        """Its folder has a new name."""
        self._folder = folder
        self.offset_index.path, self.time_index.path = self.path(INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)
        self.aborted.path = self.path(ABORTED_SUFFIX)

    def remove(self) -> None:
        """Removes its files. Raises OSError."""
        # First: whoever drops the last hold on a removed file frees its cached pages, milliseconds for a large one.
        # That shall be the thread that removes, not the loop.
        self._file = None
        for kind in SEGMENT_SUFFIXES:
            with suppress(FileNotFoundError):
                self._disk.remove(self.path(kind))

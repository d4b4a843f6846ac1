"""The segments of a log in order: where an offset or a time lies, when one is full, how they go.

Rules:
  - Never empty; base offsets grow; the last is the active one.
  - A segment leaves in two steps: its files are renamed to .deleted, and removed after file.delete.delay.ms, so that
    whoever is about to open them still can. Slices hold their file and outlive both. The names under .deleted prove
    that a segment was not lost, until the log start behind it is stored.
  - A cleaned segment takes the place of its originals through the suffix .swap, which `compaction.swap` finishes at
    the next start if it must.
  - Handles of closed segments are bounded: the one opened longest ago is closed first.

Every method that touches files raises OSError.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise

from tailrace.log.files.aborted import AbortedTransaction
from tailrace.log.files.damaged import DamagedError
from tailrace.log.files.segment import (
    ABORTED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    MAX_RELATIVE_OFFSET,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
)
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Clock, Disk, File, FileSlice
from tailrace.wire.records import iterate_records

# Handles of closed segments kept open per log: as many readers in different old places as are likely at once. With
# 1,000 partitions that is a fraction of the usual limit of open files.
OPEN_CLOSED_SEGMENTS_MAX = 8

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
# Timestamp, offset and leader epoch of a record.
Found = tuple[int, int, int]

# Below every timestamp: the age of the active segment is looked at with the next append.
_UNARMED = -(1 << 62)
_NO_END = 1 << 62


class Segments:
    def __init__(self, segments: list[Segment], deleted: Sequence[Segment] = ()) -> None:
        assert segments, "a log has at least one segment"
        self.all = segments
        self.active = segments[-1]
        self._bases = [segment.base_offset for segment in segments]
        self._opened: list[Segment] = []  # closed segments whose handles are open, oldest first
        # Deleted ones, and when their files may go, by the monotonic clock.
        self._due: list[tuple[float, Segment]] = [(0.0, segment) for segment in deleted]

    def floor(self, offset: int) -> int:
        """The number of the segment that holds `offset`, or would; -1 if it is before the first."""
        return bisect_right(self._bases, offset) - 1

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        log_end_offset: int,
        gapless_from: int,
        at_least_one_batch: bool,
    ) -> FileSlice | None:
        """From the first batch that reaches to `offset`, within one segment, nothing at or above `end_offset`. From
        `gapless_from` on each segment reaches to the next one: raises DamagedError where one does not."""
        number = len(self.all) - 1 if offset >= self.active.base_offset else max(0, self.floor(offset))
        for segment in self.all[number:]:
            if segment.base_offset >= end_offset:
                return None
            if segment is not self.active:
                self._use(segment)
            number += 1
            segment_end = self._bases[number] if number < len(self._bases) else log_end_offset
            position = segment.position_of(offset)
            # Compaction may have removed all from `offset` to the end of this segment: the next one has more.
            if position is not None:
                end_position = segment.position_of(end_offset) if end_offset < segment_end else None
                if end_position is None:
                    end_position = segment.size_bytes
                found = segment.read_from(position, max_bytes, end_position, at_least_one_batch=at_least_one_batch)
                if found is not None and segment is self.active and found.position + found.size == segment.size_bytes:
                    segment.hint(log_end_offset, segment.size_bytes)
                return found
            if segment.base_offset >= gapless_from and segment is not self.active:
                raise DamagedError(segment.base_offset, f"{segment.path(LOG_SUFFIX)} ends before offset {segment_end}")
        return None

    def find_aborted(self, slice_: FileSlice, offset: int, *, end_offset: int) -> list[AbortedTransaction]:
        """Those that reach into what was read from `offset` on, below `end_offset`; and perhaps later ones."""
        number = max(0, self.floor(offset))
        found: list[AbortedTransaction] = []
        if not any(len(segment.aborted) for segment in self.all[number:]):
            return found
        end_offset = min(end_offset, self._end_offset_of(slice_, number))
        for segment in self.all[number:]:
            for aborted in segment.aborted.from_offset(offset):
                if aborted.first_offset < end_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= end_offset:
                    return found  # Whatever was aborted later began later.
        return found

    def _end_offset_of(self, slice_: FileSlice, number: int) -> int:
        """Where a slice of a segment ends, or the next place that an index knows. `number` is where to look for the
        segment from."""
        for segment in self.all[number:]:
            number += 1
            if segment.is_open and segment.file is slice_.file:
                following = segment.indexed_offset_from(slice_.position + slice_.size)
                if following is not None:
                    return following
                return self._bases[number] if number < len(self._bases) else _NO_END
        return _NO_END

    def find_timestamp(self, timestamp: int, start_offset: int, max_decompressed_bytes: int) -> Found | None:
        """The first record from `start_offset` on that is not older."""
        for segment in self.all[max(0, self.floor(start_offset)) :]:
            self._use(segment)
            if segment.max_timestamp >= timestamp:
                found = _find_oldest(segment, timestamp, start_offset, max_decompressed_bytes)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self, start_offset: int, max_decompressed_bytes: int) -> Found | None:
        """The first record from `start_offset` on that has the largest timestamp of all."""
        found: Found | None = None
        segments = self.all[max(0, self.floor(start_offset)) :]
        # One segment is looked into, unless its largest timestamp lies before the start or went with a compaction.
        for segment in sorted(segments, key=self._max_timestamp_of, reverse=True):
            if segment.max_timestamp < 0 or (found is not None and segment.max_timestamp <= found[0]):
                break
            self._use(segment)
            newest = _find_newest(segment, start_offset, max_decompressed_bytes)
            if newest is not None and (found is None or newest[0] > found[0]):
                found = newest
        return found

    def _max_timestamp_of(self, segment: Segment) -> int:
        self._use(segment)
        return segment.max_timestamp

    # Changing

    def add(self, segment: Segment) -> None:
        """Becomes the active one."""
        assert segment.base_offset > self._bases[-1], "base offsets grow"
        self._use(self.active)
        self.all.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def delete(self, segments: Sequence[Segment], *, due_ms: float) -> None:
        """Takes segments out, in an order that leaves no gap whenever a crash or an error stops it: those at the start
        of the log first to last, those at its end last to first."""
        for segment in list(segments if segments and segments[0] is self.all[0] else reversed(segments)):
            segment.rename(DELETED_SUFFIX)
            self._due.append((due_ms, segment))
            self._set([each for each in self.all if each is not segment])

    def start_anew(self, segment: Segment) -> None:
        """The first segment of a log whose segments were all deleted."""
        assert not self.all, "a log has one history"
        self._set([segment])

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts a cleaned segment (synced, with the suffix .cleaned) in the place of its originals, whose files are
        left under .deleted. Where the disk refuses, all goes back to what it was, without the new one; where it refuses
        that too, StuckSwapError."""
        assert self.active not in old, "the active segment is never cleaned"
        number = self.all.index(old[0])
        assert list(self.all[number : number + len(old)]) == list(old), "the originals are neighbours"
        try:
            new.rename(SWAP_SUFFIX)
            for segment in reversed(old):
                segment.rename(DELETED_SUFFIX)
            new.rename("")
        except OSError as error:
            if new.suffix:
                _undo_swap(old, new, error)
                raise
        self._set([*self.all[:number], new, *self.all[number + len(old) :]])

    def take_due(self, now_ms: float) -> list[Segment]:
        """Deleted segments whose files may go now; they are the caller's to remove (`remove_deleted`)."""
        due = [segment for due_ms, segment in self._due if due_ms <= now_ms]
        if due:
            self._due = [(due_ms, segment) for due_ms, segment in self._due if due_ms > now_ms]
        return due

    def move_to(self, folder: str) -> None:
        """Their folder has a new name."""
        for segment in (*self.all, *(segment for _, segment in self._due)):
            segment.move_to(folder)

    # Handles

    def sync_targets(self, recovery_point: int) -> tuple[list[File], list[str]]:
        """What a sync must make durable: the files from the recovery point on, even empty ones, since they may have
        been cut; the indexes of those that are closed and the producer snapshots taken where one ends and the next
        begins. The active one's indexes are in memory, and recovery rebuilds them. A segment that ends at the recovery
        point counts too: it may have been closed since, and its indexes written."""
        segments = self.all[max(0, self.floor(recovery_point - 1)) :]
        paths = [segment.path(kind) for segment in segments[:-1] for kind in _INDEX_SUFFIXES]
        paths += [segment.path(SNAPSHOT_SUFFIX) for segment in segments if segment.base_offset >= recovery_point]
        files: list[File] = []
        for segment in segments:
            try:
                files.append(segment.file)
            except FileNotFoundError:
                # Known to be lost: there is nothing to sync before it is repaired.
                if not segment.damaged_ranges:
                    raise
        return files, paths

    def close_idle_handles(self) -> int:
        """Closes what was not used since the last call; returns how many handles are still open."""
        for segment in self.all:
            if not segment.was_used:
                segment.release()
            segment.was_used = False
        self._opened = [segment for segment in self._opened if segment.is_open]
        return sum(segment.is_open for segment in self.all)

    def release(self) -> None:
        for segment in self.all:
            segment.release()
        self._opened.clear()

    def _use(self, segment: Segment) -> None:
        """Called before a segment may open its handle."""
        if segment not in self._opened and segment is not self.active:
            self._opened.append(segment)
            if len(self._opened) > OPEN_CLOSED_SEGMENTS_MAX:
                self._opened.pop(0).release()

    def _set(self, segments: list[Segment]) -> None:
        assert all(a.base_offset < b.base_offset for a, b in pairwise(segments)), [
            each.base_offset for each in segments
        ]
        present = set(segments)
        self._opened = [segment for segment in self._opened if segment in present]
        self.all = segments
        self._bases = [segment.base_offset for segment in segments]
        if segments:
            self.active = segments[-1]


def remove_deleted(disk: Disk, segments: Sequence[Segment], store_log_starts: Callable[[], None]) -> None:
    """Removes the files of deleted segments, once the log starts behind them are stored: until then their names are all
    that tells a start that they are not lost. On a full disk their bytes make room for that, and the names stay.
    Blocks: Background only. OSError, and then the next start finds the names."""
    try:
        store_log_starts()
    except OSError:
        empty_deleted(disk, segments)
        store_log_starts()
    for segment in segments:
        segment.remove()


def empty_deleted(disk: Disk, segments: Sequence[Segment]) -> None:
    """Gives the bytes of deleted segments back and keeps their names. OSError."""
    # The new names first: an empty file that a power loss gave its old name back would look damaged.
    for folder in sorted({segment.path(LOG_SUFFIX).rpartition("/")[0] for segment in segments}):
        disk.sync_folder(folder)
    for segment in segments:
        with suppress(FileNotFoundError):
            segment.cut(0)


def _find_oldest(segment: Segment, timestamp: int, start_offset: int, max_decompressed_bytes: int) -> Found | None:
    """The first record from `start_offset` on whose timestamp is >= `timestamp`. KafkaError for a batch that unpacks to
    more than it may."""
    number = segment.time_index.floor(timestamp) if segment.max_timestamp >= 0 else -1
    first_offset = segment.base_offset + segment.time_index.entry(number)[1] if number >= 0 else segment.base_offset
    position = segment.position_of(max(first_offset, start_offset))
    if position is None:
        return None
    for at, header in segment.headers(position):
        if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
            batch = segment.file.read(at, header.size_bytes)
            for record in iterate_records(batch, max_decompressed_bytes=max_decompressed_bytes):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return record.timestamp, record.offset, header.leader_epoch
    return None


def _find_newest(segment: Segment, start_offset: int, max_decompressed_bytes: int) -> Found | None:
    """The first record that has the largest timestamp from `start_offset` on. Walks over the headers only where
    the largest of all lies before that, or went with a compaction."""
    found = _find_oldest(segment, segment.max_timestamp, start_offset, max_decompressed_bytes)
    position = segment.position_of(start_offset) if found is None else None
    if position is None:
        return found
    walk = [(-header.max_timestamp, at, header) for at, header in segment.headers(position)]
    for negative_timestamp, at, header in sorted(walk):
        if found is not None and -negative_timestamp <= found[0]:
            break
        batch = segment.file.read(at, header.size_bytes)
        for record in iterate_records(batch, max_decompressed_bytes=max_decompressed_bytes):
            if record.offset >= start_offset and (found is None or record.timestamp > found[0]):
                found = record.timestamp, record.offset, header.leader_epoch
    return found if found is not None and found[0] >= 0 else None


class StuckSwapError(OSError):
    """The names of a cleaned segment and of its originals are mixed. Nothing is lost: the next start sorts them out."""


def _undo_swap(old: Sequence[Segment], new: Segment, cause: OSError) -> None:
    """The originals get their names back before the new segment, until then the only whole one, may go."""
    try:
        for segment in old:
            if segment.suffix:
                segment.rename("")
    except OSError as error:
        raise StuckSwapError(f"{cause}, then {error}") from error
    with suppress(OSError):  # What stays is removed at the next start, or by the next swap at this place.
        new.remove()


class RollPolicy:
    """When the active segment has had its time: it would grow over segment.bytes, its records are older than
    segment.ms, an index is full, or relative offsets end."""

    __slots__ = ("_clock", "_config", "newest_timestamp", "segment_bytes")

    def __init__(self, config: TopicConfig, clock: Clock) -> None:
        self.segment_bytes = config.internal_segment_bytes or config.segment_bytes
        # A record newer than this makes it worth asking `is_due` for the age.
        self.newest_timestamp = _UNARMED
        self._config = config
        self._clock = clock

    def rearm(self) -> None:
        """There is another active segment, or it was cut."""
        self.newest_timestamp = _UNARMED

    def check_fits(self, size_bytes: int) -> None:
        """Raises KafkaError for what fits into no segment."""
        if size_bytes > self.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size_bytes} bytes of batches do not fit into a segment of segment.bytes={self.segment_bytes}.",
            )

    def is_due(self, active: Segment, size_bytes: int, last_offset: int, max_timestamp: int) -> bool:
        """Raises KafkaError for an offset that no segment can hold."""
        if active.size_bytes == 0:
            if last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"Offset {last_offset} is too far from the log end {active.base_offset}."
                )
            return False
        return (
            active.size_bytes + size_bytes > self.segment_bytes
            or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
            or active.is_index_full
            or self._is_too_old(active, max_timestamp)
        )

    def _is_too_old(self, active: Segment, max_timestamp: int) -> bool:
        """By the timestamps of the records, counted from the first batch; by the clock where they have none."""
        age_max_ms = self._config.segment_ms - active.roll_jitter_ms(self._config)
        if active.first_timestamp < 0:
            return self._clock.wall_ms() - active.created_ms > age_max_ms
        self.newest_timestamp = active.first_timestamp + age_max_ms
        return max_timestamp > self.newest_timestamp

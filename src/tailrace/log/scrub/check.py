"""The check of one segment, as a generator of small steps (`compaction.run.Steps`).

Reads the whole segment in the background, leaving memory as it found it, and looks at every batch: a few hundred at a
step, less than a millisecond, since a CRC of a megabyte takes 50 us and the rest is a microsecond or two a batch. Where
a batch is not good it looks for the next good one: behind the length that the header claims or, if that is damaged too,
byte by byte. A place found in this way counts if the batch there has its CRC.

The time index is compared on the way: a wrong entry would let a search by time pass over records. Offset indexes are
not: whoever uses an entry compares it with the batch that it points to, and has it rebuilt (`files.segment`).

A probe begins at a batch that is suspected and ends a few megabytes later: it is cheap, and tells whether the whole is
worth a check.

Ends without a result if the log loses the segment, or a part of it, meanwhile. Changes nothing.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, cast

from tailrace.log.compaction.run import Steps
from tailrace.log.files.damaged import DamagedRange
from tailrace.log.files.index import TIME_ENTRY
from tailrace.log.files.segment import LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment
from tailrace.log.scrub.walk import (
    Bounds,
    Good,
    find_candidates,
    find_problem,
    is_prior_suspect,
    read_fitting_header,
)
from tailrace.model.errors import StorageError
from tailrace.model.ports import Bytes, Disk
from tailrace.wire.checksum import crc32c
from tailrace.wire.records import HEADER_SIZE, BatchHeader

# One read; what is not in memory yet is read ahead of the device's own pace by nothing.
READ_BYTES = 256 * 1024
# More than a follower fetches at once: what it could not take lies within.
PROBE_BYTES = 4 * 1024 * 1024
# Batches of one step.
BATCHES_PER_STEP = 150
# What they take of a processor, as measured, rounded up: a read of 256 KB that another thread does, and a batch.
READ_COST_US = 250
BATCH_COST_US = 4
_CRC_COVERS_FROM = 21

_sum_on = cast(Callable[[Bytes, int], int], crc32c)  # It goes on from the sum of what came before.


class Outcome(NamedTuple):
    damage: tuple[DamagedRange, ...]
    index_problem: str  # of the time index, or nothing
    size_bytes: int


class SegmentCheck:
    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        *,
        end_offset: int,
        is_closed: bool,
        is_gapless: bool,
        leader_epoch_at: Callable[[int], int],
        is_present: Callable[[], bool],
        probed_offset: int | None = None,
    ) -> None:
        """`end_offset` is where the next segment begins, or the log end. Where the segment `is_gapless` its last batch
        reaches to it. With `probed_offset` only what lies there is looked at."""
        # So far, for whoever paces the steps.
        self.read_bytes = 0
        self.cost_us = 0
        self._disk = disk
        self._segment = segment
        self._path = segment.path(LOG_SUFFIX)
        self._bounds = Bounds(segment.size_bytes, end_offset, leader_epoch_at)
        self._is_closed = is_closed
        self._is_gapless = is_gapless
        self._is_present = is_present
        self._probed_offset = probed_offset
        self._stop_position = segment.size_bytes
        self._position = 0
        self._next_offset = segment.base_offset
        self._prior: Good | None = None
        self._damage: list[DamagedRange] = []
        self._times: Iterator[tuple[Any, ...]] = iter(())
        self._time: tuple[int, ...] | None = None
        self._index_problem = ""

    def steps(self) -> Steps[Outcome | None]:
        """OSError; DamagedError if a probe does not find the place."""
        if self._probed_offset is not None:
            self._begin_probe(self._probed_offset)
        file = yield partial(self._disk.open, self._path)  # One of its own: it is read in another way than others.
        self._read = partial(self._read_once, file)
        yield from self._open_time_index()
        chunk, chunk_start = b"", 0
        while self._position < self._stop_position:
            at = self._position - chunk_start
            if at + HEADER_SIZE > len(chunk) or not self._holds_batch(chunk, at):
                chunk = yield from self._read(self._position, READ_BYTES)
                chunk_start, at = self._position, 0
            if not self._is_unchanged():
                return None
            if not self._take_batches(chunk, at):
                yield from self._take_one(chunk, self._position - chunk_start)
            yield None
        if self._probed_offset is None:
            self._end()
        return Outcome(tuple(self._damage), self._index_problem, self._position)

    def _begin_probe(self, offset: int) -> None:
        position = self._segment.position_of(offset)
        self._position = self._bounds.end_position if position is None else position
        self._stop_position = min(self._bounds.end_position, self._position + PROBE_BYTES)

    def _read_once(self, file: Any, position: int, size: int) -> Steps[bytes]:
        size = max(0, min(size, self._bounds.end_position - position))
        self.read_bytes += size
        self.cost_us += READ_COST_US
        data: bytes = yield partial(file.read_once, position, size)
        return data

    def _is_unchanged(self) -> bool:
        return self._is_present() and self._segment.size_bytes >= self._bounds.end_position

    # Good batches

    def _holds_batch(self, chunk: bytes, at: int) -> bool:
        header = read_fitting_header(chunk, at, self._position, self._bounds)
        return isinstance(header, str) or at + header.size_bytes <= len(chunk)

    def _take_batches(self, chunk: bytes, at: int) -> bool:
        """Those that lie whole in the chunk, up to a step's worth. False where one is not good, or larger than it."""
        view = memoryview(chunk)
        for _ in range(BATCHES_PER_STEP):
            if at + HEADER_SIZE > len(chunk):
                return at > 0
            header = read_fitting_header(chunk, at, self._position, self._bounds)
            if isinstance(header, str):
                return False
            end = at + header.size_bytes
            if end > len(chunk):
                return at > 0
            if (
                find_problem(header, self._next_offset, self._bounds)
                or crc32c(view[at + _CRC_COVERS_FROM : end]) != header.crc
            ):
                return False
            self._take(header)
            at = end
        return True

    def _take(self, header: BatchHeader) -> None:
        self.cost_us += BATCH_COST_US
        self._prior = Good(self._position, self._next_offset, header)
        if self._time is not None:
            self._compare_times(header)
        self._position += header.size_bytes
        self._next_offset = header.next_offset

    def _take_one(self, chunk: bytes, at: int) -> Steps[None]:
        """The batch at the position, which is large or not good."""
        header = read_fitting_header(chunk, at, self._position, self._bounds)
        problem = header if isinstance(header, str) else find_problem(header, self._next_offset, self._bounds)
        if isinstance(header, BatchHeader) and not problem:
            if (yield from self._has_crc(self._position, header)):
                self._take(header)
                return
            problem = "the CRC of a batch does not match"
        yield from self._note_damage(header if isinstance(header, BatchHeader) else None, problem)

    def _has_crc(self, position: int, header: BatchHeader) -> Steps[bool]:
        """In pieces: a damaged length may claim the whole segment."""
        crc, at, end = 0, position + _CRC_COVERS_FROM, position + header.size_bytes
        while at < end:
            piece = yield from self._read(at, min(READ_BYTES, end - at))
            if not piece:
                return False
            crc = _sum_on(piece, crc)
            at += len(piece)
        return crc == header.crc

    # Damage

    def _note_damage(self, header: BatchHeader | None, cause: str) -> Steps[None]:
        position, start_offset = self._position, self._next_offset
        if header is not None and is_prior_suspect(self._prior, header):
            assert self._prior is not None, "it is a suspect"
            position, start_offset = self._prior.position, self._prior.expected_offset
        self._next_offset = start_offset
        resumed, end_offset = yield from self._find_next_good(self._position, header, start_offset)
        self._damage.append(DamagedRange(self._path, position, resumed, start_offset, end_offset, cause))
        self._position, self._next_offset, self._prior = resumed, end_offset, None
        self._skip_times()

    def _find_next_good(self, position: int, header: BatchHeader | None, next_offset: int) -> Steps[tuple[int, int]]:
        """Where good batches begin again, and at which offset; the end of the segment if there are none."""
        if header is not None:
            behind = position + header.size_bytes
            if behind == self._bounds.end_position:
                return behind, self._bounds.end_offset
            found = yield from self._read_good(behind, next_offset)
            if found is not None:
                return behind, found.base_offset
        position += 1
        while position < self._bounds.end_position:
            data = yield from self._read(position, READ_BYTES)
            if len(data) < HEADER_SIZE:
                break  # Here the file ends, wherever it should.
            candidates = yield partial(find_candidates, data, position, next_offset, self._bounds)
            for candidate in candidates:
                found = yield from self._read_good(candidate, next_offset)
                if found is not None:
                    return candidate, found.base_offset
            # A header may lie across the end of what was read.
            position += max(1, len(data) - HEADER_SIZE + 1)
        return self._bounds.end_position, self._bounds.end_offset

    def _read_good(self, position: int, next_offset: int) -> Steps[BatchHeader | None]:
        data = yield from self._read(position, HEADER_SIZE)
        header = read_fitting_header(data, 0, position, self._bounds)
        if isinstance(header, str) or find_problem(header, next_offset, self._bounds):
            return None
        is_good = yield from self._has_crc(position, header)
        return header if is_good else None

    def _end(self) -> None:
        if self._is_closed and self._is_gapless and self._next_offset < self._bounds.end_offset:
            end = self._bounds.end_position
            cause = f"it ends at offset {self._next_offset}, and the next segment begins at {self._bounds.end_offset}"
            self._damage.append(DamagedRange(self._path, end, end, self._next_offset, self._bounds.end_offset, cause))
        if self._time is not None and not self._damage:
            self._index_problem = f"an entry names offset {self._time_offset}, where the segment has no batch"

    # The time index

    def _open_time_index(self) -> Steps[None]:
        """That of an active segment is not in its file yet. One that cannot be opened is made anew when it is used."""
        if not self._is_closed or self._probed_offset is not None:
            return
        try:
            data = yield partial(_read_all, self._disk, self._segment.path(TIME_INDEX_SUFFIX))
        except (OSError, StorageError):
            return
        self._times = TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY.size])
        self._time = next(self._times, None)

    @property
    def _time_offset(self) -> int:
        assert self._time is not None, "there is an entry"
        return self._segment.base_offset + self._time[1]

    def _compare_times(self, header: BatchHeader) -> None:
        """An entry tells the largest timestamp of the batch that holds its offset. The last two may be equal."""
        while self._time is not None and self._time_offset <= header.last_offset:
            if self._time_offset < self._next_offset or self._time[0] != header.max_timestamp:
                self._index_problem = (
                    f"an entry names the timestamp {self._time[0]} at offset {self._time_offset}, and the batch there "
                    f"has {header.max_timestamp}"
                )
                self._time = None
                return
            self._time = next(self._times, None)

    def _skip_times(self) -> None:
        """What the batches in a damaged range had cannot be known."""
        while self._time is not None and self._time_offset < self._next_offset:
            self._time = next(self._times, None)


def _read_all(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    return file.read_once(0, file.size)

"""Reads a metadata log and its snapshots through, changes nothing, and says what of it can be trusted.

    run    batches that follow on each other without a gap, each sound: CRC, offset, epoch
    flaw   where a run ends although more was written or synced there
    rest   the best that can be made of it: a run that begins at offset 0 or that a sound snapshot leads into, or that
           snapshot alone; the one that ends last

Which flaws count is told by the synced end (`synced_end`). What lies above it was promised to nobody, and a power loss
may leave anything there: holes, zeros, halves of batches. Where it is not known, an incomplete batch at the very end of
the last file is taken for a torn write, and everything else for damage.

A record of Raft's log has no gap before it, so an offset that does not follow is a flaw as a wrong checksum is. Offset
and epoch lie outside of what the checksum covers: epochs never fall, nor rise above the node's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from tailrace.broker.quorum.control_records import read_control_batch
from tailrace.broker.quorum.snapshots import SnapshotId, check_whole, file_name, parse_file_name
from tailrace.log.files.failures import disk_errors
from tailrace.log.files.segment import LOG_SUFFIX
from tailrace.model.errors import KafkaError, ProtocolError, StorageError
from tailrace.model.ports import Bytes, Disk, File
from tailrace.wire.checksum import crc32c
from tailrace.wire.records import HEADER_SIZE, MAGIC, BatchHeader, crc_is_valid, read_header
from tailrace.wire.schema import Message

_READ_BYTES = 1 << 20
_NAME_DIGITS = 20
_MAGIC_AT = 16
# Base offset, length, epoch, magic, CRC, attributes, last offset delta: how a batch begins.
_unpack = Struct(">qiibIhi").unpack_from
_LOG_OVERHEAD = 12
_CRC_COVERS_FROM = 21
_CONTROL_BIT = 0x20
_EPOCH_MAX = (1 << 31) - 1
_INCOMPLETE = "the file ends in the middle of a batch"
# How far the offsets of a sound batch behind a flaw may be from those before it: more was never written into a file.
_OFFSETS_MAX = 1 << 31


class Extent(NamedTuple):
    """Sound batches in a row within one file."""

    path: str
    position: int
    end_position: int
    start_offset: int
    end_offset: int


class Flaw(NamedTuple):
    path: str
    position: int
    # The log is sound up to here, as far as this flaw goes.
    offset: int
    problem: str
    # It may be what a write leaves that a crash has interrupted.
    is_torn: bool = False

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}, offset {self.offset}: {self.problem}"


class Run(NamedTuple):
    start_offset: int
    end_offset: int
    extents: tuple[Extent, ...]


class Rest(NamedTuple):
    """What can be made of it."""

    # Sound ones that lie within what is left, oldest first.
    snapshots: tuple[SnapshotId, ...]
    # Batches to keep; None if a snapshot stands alone, or nothing is left.
    run: Run | None

    @property
    def end_offset(self) -> int:
        snapshot_end = self.snapshots[-1].offset if self.snapshots else 0
        return max(snapshot_end, self.run.end_offset if self.run is not None else 0)


@dataclass(slots=True)
class Inspection:
    folder: str
    # None: nobody knows.
    synced_end: int | None
    # Sound ones, oldest first; and the others, each with what is wrong.
    snapshots: tuple[SnapshotId, ...] = ()
    damaged_snapshots: dict[SnapshotId, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    flaws: list[Flaw] = field(default_factory=list)
    # What sound batches hold: Raft's own records with their offsets, and the bytes behind the latest sound snapshot.
    control_records: list[tuple[int, Message]] = field(default_factory=list)
    unsnapshotted_bytes: int = 0

    @property
    def snapshot_end(self) -> int:
        return self.snapshots[-1].offset if self.snapshots else 0

    @property
    def rest(self) -> Rest:
        choices = [Rest((), self._run_at(0))]
        choices += [Rest(self._snapshots_up_to(each.offset), self._run_at(each.offset)) for each in self.snapshots]
        best = max(choices, key=lambda rest: rest.end_offset)
        return best._replace(snapshots=self._snapshots_up_to(best.end_offset))

    @property
    def damage(self) -> list[Flaw]:
        """The flaws that a torn write does not explain."""
        if self.synced_end is None:
            return [flaw for flaw in self.flaws if not flaw.is_torn]
        return [flaw for flaw in self.flaws if flaw.offset < self.synced_end]

    @property
    def is_lossy(self) -> bool:
        """Whether something is missing in the rest that was synced, or may have been."""
        end_offset = self.rest.end_offset
        # The first snapshot holds the voters; once there are records, they hold them too.
        if any(snapshot.offset > end_offset or end_offset == 0 for snapshot in self.damaged_snapshots):
            return True
        if self.synced_end is None:
            return any(flaw.offset >= end_offset for flaw in self.damage)
        return end_offset < self.synced_end

    @property
    def must_be_rebuilt(self) -> bool:
        """Whether a start would not find the rest by itself: it takes the first run, or the latest snapshot."""
        first = self.runs[0] if self.runs else None
        if first is None or first.end_offset < self.snapshot_end:
            found_end = self.snapshot_end
        else:
            found_end = first.end_offset if first.start_offset <= self.snapshot_end else -1
        return self.is_lossy or bool(self.damaged_snapshots) or found_end < self.rest.end_offset

    def problems(self) -> list[Flaw]:
        """For people: what is wrong, where."""
        damaged = [
            Flaw(f"{self.folder}/{file_name(snapshot)}", 0, snapshot.offset, problem)
            for snapshot, problem in self.damaged_snapshots.items()
        ]
        return [*damaged, *self.damage]

    def _run_at(self, offset: int) -> Run | None:
        return next((run for run in self.runs if run.start_offset <= offset <= run.end_offset), None)

    def _snapshots_up_to(self, offset: int) -> tuple[SnapshotId, ...]:
        return tuple(each for each in self.snapshots if each.offset <= offset)


def inspect(disk: Disk, folder: str, *, synced_end: int | None, epoch: int | None) -> Inspection:
    """`epoch`: of the node, if it is known. StorageError if the disk fails."""
    found = Inspection(folder, synced_end)
    with disk_errors(f"{folder} cannot be read"):
        names = disk.list(folder) if disk.is_folder(folder) else []
        _inspect_snapshots(disk, names, found)
        _Reader(disk, found, epoch).read(names)
    return found


def _inspect_snapshots(disk: Disk, names: list[str], found: Inspection) -> None:
    sound = []
    for snapshot in sorted(each for each in map(parse_file_name, names) if each is not None):
        try:
            check_whole(disk.open(f"{found.folder}/{file_name(snapshot)}"))
            sound.append(snapshot)
        except (StorageError, ProtocolError, KafkaError) as error:
            if isinstance(error.__cause__, OSError):
                raise
            found.damaged_snapshots[snapshot] = str(error)
    found.snapshots = tuple(sound)


class _Reader:
    """Goes through the files in the order of their offsets."""

    def __init__(self, disk: Disk, found: Inspection, epoch: int | None) -> None:
        self._disk = disk
        self._found = found
        self._epoch_max = epoch
        self._epoch = -1
        self._next_offset = 0
        self._extents: list[Extent] = []

    def read(self, names: list[str]) -> None:
        folder = self._found.folder
        bases = sorted(int(name[:_NAME_DIGITS]) for name in names if _is_segment(name))
        self._next_offset = bases[0] if bases else 0
        path, position = folder, 0
        for base in bases:
            path = f"{folder}/{base:0{_NAME_DIGITS}d}{LOG_SUFFIX}"
            file = self._disk.open(path)
            position = file.size
            if base != self._next_offset:
                problem = f"the file begins at offset {base}, and does not follow on the one before"
                # An empty one was made right before the stop, and what came before it was not synced.
                self._note_flaw(Flaw(path, 0, self._next_offset, problem, is_torn=file.size == 0))
                if base < self._next_offset or file.size == 0:
                    continue
                self._next_offset = base
            start: int | None = 0
            while start is not None and start < file.size:
                start = self._read_extent(file, start, is_last=base == bases[-1])
        self._end_run()
        self._check_ends(path, position)

    def _read_extent(self, file: File, start: int, *, is_last: bool) -> int | None:
        """Up to a flaw or the end. Gives where sound batches begin again behind the flaw; None if nowhere."""
        start_offset, position, problem = self._next_offset, self._pass_sound(file, start), ""
        for header, batch in iterate_batches(file, position):
            problem = self._find_problem(header, batch)
            assert problem, "every other batch was passed"
            break
        if position > start:
            self._extents.append(Extent(file.path, start, position, start_offset, self._next_offset))
        if position == file.size:
            return None
        following = _find_batch(file, position + 1, self._next_offset)
        is_torn = is_last and following is None and not problem
        self._note_flaw(Flaw(file.path, position, self._next_offset, problem or _INCOMPLETE, is_torn))
        if following is None:
            return None
        self._epoch, self._next_offset = -1, following[1]
        return following[0]

    def _pass_sound(self, file: File, position: int) -> int:
        """Gives where the first batch begins that is not sound, or the file ends. A start waits for this: a million
        batches, each opened by one unpacking, are two seconds."""
        found, end, snapshot_end = self._found, file.size, self._found.snapshot_end
        next_offset, epoch = self._next_offset, self._epoch
        epoch_max = _EPOCH_MAX if self._epoch_max is None else self._epoch_max
        chunk, chunk_start = memoryview(b""), position
        while position + HEADER_SIZE <= end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = memoryview(file.read(position, _READ_BYTES)), position, 0
            base_offset, length, batch_epoch, magic, crc, attributes, last_offset_delta = _unpack(chunk, at)
            size = length + _LOG_OVERHEAD
            if size < HEADER_SIZE or position + size > end or magic != MAGIC or last_offset_delta < 0:
                break
            if at + size > len(chunk):
                chunk, chunk_start, at = memoryview(file.read(position, max(size, _READ_BYTES))), position, 0
            if base_offset != next_offset or not epoch <= batch_epoch <= epoch_max:
                break
            if crc32c(chunk[at + _CRC_COVERS_FROM : at + size]) != crc:
                break
            if attributes & _CONTROL_BIT:
                found.control_records += read_control_batch(chunk[at : at + size])
            if base_offset >= snapshot_end:
                found.unsnapshotted_bytes += size
            position += size
            next_offset, epoch = base_offset + last_offset_delta + 1, batch_epoch
        self._next_offset, self._epoch = next_offset, epoch
        return position

    def _find_problem(self, header: BatchHeader | None, batch: Bytes) -> str:
        if header is None or header.last_offset_delta < 0:
            return "no batch begins there"
        if not crc_is_valid(batch, 0, header):
            return "the checksum of a batch is wrong"
        if header.base_offset != self._next_offset:
            return f"a batch has offset {header.base_offset}, which does not follow"
        if header.leader_epoch < self._epoch:
            return f"a batch of epoch {header.leader_epoch} follows on one of epoch {self._epoch}"
        if self._epoch_max is not None and header.leader_epoch > self._epoch_max:
            return f"a batch has epoch {header.leader_epoch}, and this node knows of none after {self._epoch_max}"
        return ""

    def _note_flaw(self, flaw: Flaw) -> None:
        self._end_run()
        self._found.flaws.append(flaw)

    def _end_run(self) -> None:
        if self._extents:
            run = Run(self._extents[0].start_offset, self._extents[-1].end_offset, tuple(self._extents))
            self._found.runs.append(run)
            self._extents = []

    def _check_ends(self, path: str, position: int) -> None:
        """What has left no trace at all: records before the first that is there, and behind the last."""
        found, synced_end = self._found, self._found.synced_end or 0
        first = found.runs[0] if found.runs else None
        if first is not None and first.start_offset > found.snapshot_end:
            problem = f"the log begins at offset {first.start_offset}, and no snapshot holds what was before"
            found.flaws.insert(0, Flaw(first.extents[0].path, 0, found.snapshot_end, problem))
        elif max(self._next_offset, found.snapshot_end) < synced_end and not found.damage:
            problem = f"the log ends there, and was synced up to offset {synced_end}"
            found.flaws.append(Flaw(path, position, self._next_offset, problem))


def _is_segment(name: str) -> bool:
    return name.endswith(LOG_SUFFIX) and len(name) == _NAME_DIGITS + len(LOG_SUFFIX) and name[:_NAME_DIGITS].isdecimal()


def iterate_batches(file: File, position: int) -> Iterator[tuple[BatchHeader | None, Bytes]]:
    """Every batch as far as its length can be followed; a header that makes no sense comes as None."""
    end = file.size
    chunk, chunk_start = memoryview(b""), position
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = memoryview(file.read(position, _READ_BYTES)), position, 0
        try:
            header = read_header(chunk, at)
        except KafkaError:
            yield None, b""
            return
        size = header.size_bytes
        if position + size > end:
            return
        if at + size > len(chunk):
            chunk, chunk_start, at = memoryview(file.read(position, max(size, _READ_BYTES))), position, 0
        yield header, chunk[at : at + size]
        position += size


def _find_batch(file: File, position: int, next_offset: int) -> tuple[int, int] | None:
    """Position and offset of the next sound batch behind a flaw: wherever it may begin."""
    data = file.read(position, file.size - position)
    found = data.find(MAGIC, _MAGIC_AT)
    while found >= 0:
        at = found - _MAGIC_AT
        found = data.find(MAGIC, found + 1)
        if at + HEADER_SIZE > len(data):
            return None
        try:
            header = read_header(data, at)
        except KafkaError:
            continue
        is_near = next_offset <= header.base_offset < next_offset + _OFFSETS_MAX
        if is_near and at + header.size_bytes <= len(data) and crc_is_valid(data, at, header):
            return position + at, header.base_offset
    return None

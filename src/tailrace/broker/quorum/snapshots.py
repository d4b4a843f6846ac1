"""Snapshots of the metadata: one file holds what all records before an offset have amounted to.

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint         Kafka's name: readable by kafka-dump-log
    ....checkpoint.part                                           being written or downloaded; removed at a start

    control batch    SnapshotHeader; KRaftVersion and Voters of a dynamic quorum
    batches          metadata records; their offsets count from 0 within the file
    control batch    SnapshotFooter: without it the file is not whole

Rules: a snapshot holds committed records only; a file has its final name once it is complete and on the device; a
file that is being read or sent stays readable though its name is gone. Never decides when one is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from tailrace.broker.quorum.control_records import (
    DYNAMIC_QUORUM_LEVEL,
    KRAFT_VERSION,
    KRAFT_VOTERS,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
    build_control_batch,
    read_control_batch,
)
from tailrace.log.files.failures import disk_errors
from tailrace.model.errors import KafkaError, ProtocolError, StorageError
from tailrace.model.ports import Bytes, Disk, File, FileSlice, Ports
from tailrace.raft.types import OffsetAndEpoch
from tailrace.wire.apis.stored_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tailrace.wire.record_envelopes import decode_metadata_record, encode_metadata_record
from tailrace.wire.records import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    build_batch,
    crc_is_valid,
    iterate_records,
    read_header,
)
from tailrace.wire.schema import Message

SUFFIX = ".checkpoint"
_PART_SUFFIX = ".checkpoint.part"
_OFFSET_DIGITS, _EPOCH_DIGITS = 20, 10
# Records that become one batch: about a millisecond of the loop.
_RECORDS_PER_BATCH = 100
_READ_BYTES = 1 << 20
_MAX_DECOMPRESSED_BYTES = 64 << 20


# Its name: everything before the offset is in it, and the epoch is that of the last record.
SnapshotId = OffsetAndEpoch


def file_name(snapshot: SnapshotId) -> str:
    return f"{snapshot.offset:0{_OFFSET_DIGITS}d}-{snapshot.epoch:0{_EPOCH_DIGITS}d}{SUFFIX}"


def parse_file_name(name: str) -> SnapshotId | None:
    offset, _, epoch = name.removesuffix(SUFFIX).partition("-")
    if not name.endswith(SUFFIX) or len(offset) != _OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    return SnapshotId(int(offset), int(epoch)) if offset.isdecimal() and epoch.isdecimal() else None


class SnapshotFiles:
    """The snapshots in the folder of the metadata log. Opened by `SnapshotFiles.open`."""

    def __init__(self, disk: Disk, folder: str, ids: Sequence[SnapshotId]) -> None:
        # Oldest first. Replaced, never changed.
        self.ids = tuple(ids)
        self._disk = disk
        self._folder = folder

    @classmethod
    def open(cls, disk: Disk, folder: str) -> SnapshotFiles:
        """Removes what a stop left half done. StorageError."""
        ids: list[SnapshotId] = []
        with disk_errors(f"the snapshots in {folder} cannot be listed"):
            for name in disk.list(folder) if disk.is_folder(folder) else ():
                snapshot = parse_file_name(name)
                if snapshot is not None:
                    ids.append(snapshot)
                elif name.endswith(_PART_SUFFIX):
                    disk.remove(f"{folder}/{name}")
        return cls(disk, folder, sorted(ids))

    @property
    def latest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    @property
    def size_bytes(self) -> int:
        """Raises StorageError."""
        with disk_errors(f"the snapshots in {self._folder} cannot be measured"):
            return sum(self._disk.size(self._path(each)) for each in self.ids)

    def modified_ms(self, snapshot: SnapshotId) -> int:
        with disk_errors(f"{self._path(snapshot)} cannot be looked at"):
            return self._disk.modified_ms(self._path(snapshot))

    def open_file(self, snapshot: SnapshotId) -> File | None:
        """To be sent or read; None if there is no such snapshot (any more). StorageError."""
        if snapshot not in self.ids:
            return None
        with disk_errors(f"{self._path(snapshot)} cannot be opened"):
            return self._disk.open(self._path(snapshot))

    def read_control(self, snapshot: SnapshotId) -> list[Message]:
        """What its header tells of Raft: the level of kraft.version and the voters, where it has them."""
        file = self.open_file(snapshot)
        assert file is not None, "a known snapshot"
        for header, batch in read_batches(file):
            if not header.is_control:
                break
            return [message for _, message in read_control_batch(batch) if not isinstance(message, _FRAME_RECORDS)]
        return []

    def begin(self, snapshot: SnapshotId) -> SnapshotPart:
        """A new file that is not whole yet. StorageError."""
        return SnapshotPart(self._disk, self._folder, snapshot)

    def add(self, snapshot: SnapshotId) -> None:
        """It was stored."""
        self.ids = tuple(sorted({*self.ids, snapshot}))

    def forget_before(self, snapshot: SnapshotId) -> Callable[[], None]:
        """Gives the work of removing the files, for Background; it raises OSError."""
        paths = [self._path(each) for each in self.ids if each < snapshot]
        self.ids = tuple(each for each in self.ids if each >= snapshot)

        def work() -> None:
            for path in paths:
                with suppress(FileNotFoundError):
                    self._disk.remove(path)

        return work

    def _path(self, snapshot: SnapshotId) -> str:
        return f"{self._folder}/{file_name(snapshot)}"


_FRAME_RECORDS = (SnapshotHeaderRecord, SnapshotFooterRecord)


class SnapshotPart:
    """A snapshot that is being written: appended piece by piece, then stored under its name."""

    def __init__(self, disk: Disk, folder: str, snapshot: SnapshotId) -> None:
        self.id = snapshot
        self._disk = disk
        self._folder = folder
        self._path = f"{folder}/{file_name(snapshot).removesuffix(SUFFIX)}{_PART_SUFFIX}"
        with disk_errors(f"{self._path} cannot be made"):
            with suppress(FileNotFoundError):
                disk.remove(self._path)
            self._file = disk.open(self._path, create=True)

    @property
    def size_bytes(self) -> int:
        return self._file.size

    def append(self, data: Bytes) -> None:
        """StorageError."""
        with disk_errors(f"{self._path} cannot be written"):
            self._file.append([data])

    def store(self) -> None:
        """Blocks: Background only. Checks that it is whole; StorageError if not, or if the disk fails."""
        check_whole(self._file)
        with disk_errors(f"{self._path} cannot be stored"):
            self._file.sync()
            self._disk.rename(self._path, f"{self._folder}/{file_name(self.id)}")
            self._disk.sync_folder(self._folder)

    def discard(self) -> None:
        """Best effort: what stays is removed at the next start."""
        with suppress(OSError):
            self._disk.remove(self._path)


# ---- content


def encode_snapshot(
    snapshot: SnapshotId,
    groups: Iterable[Sequence[Message]],
    *,
    control: Sequence[Message],
    timestamp_ms: int,
    last_contained_timestamp_ms: int = 0,
) -> Iterator[bytes]:
    """The file in pieces, each of which is one batch. `control` is what Raft keeps: KRaftVersion and Voters."""
    header: list[tuple[int, Message]] = [
        (SNAPSHOT_HEADER, SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp_ms))
    ]
    header += [(KRAFT_VOTERS if isinstance(each, VotersRecord) else KRAFT_VERSION, each) for each in control]
    yield build_control_batch(header, timestamp_ms=timestamp_ms, epoch=snapshot.epoch)
    offset = len(header)
    for records in _regroup(groups):
        framed = [
            Record(offset + index, timestamp_ms, None, encode_metadata_record(record))
            for index, record in enumerate(records)
        ]
        yield build_batch(framed, base_offset=offset, leader_epoch=snapshot.epoch)
        offset += len(records)
    footer = [(SNAPSHOT_FOOTER, SnapshotFooterRecord())]
    yield build_control_batch(footer, timestamp_ms=timestamp_ms, base_offset=offset, epoch=snapshot.epoch)


def _regroup(groups: Iterable[Sequence[Message]]) -> Iterator[list[Message]]:
    """In batches of equal size, whatever the groups are: a topic with one partition makes a group of two."""
    pending: list[Message] = []
    for group in groups:
        pending += group
        while len(pending) >= _RECORDS_PER_BATCH:
            yield pending[:_RECORDS_PER_BATCH]
            del pending[:_RECORDS_PER_BATCH]
    if pending:
        yield pending


def read_batches(file: File) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch with its header, its CRC checked. Reads the file in pieces; StorageError where it is damaged."""
    position = 0
    chunk, chunk_start = b"", 0
    with disk_errors(f"{file.path} cannot be read"):
        while position < file.size:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = file.read(position, _READ_BYTES), position, 0
            try:
                header = read_header(chunk, at)
                if at + header.size_bytes > len(chunk):
                    size = max(_READ_BYTES, header.size_bytes)
                    chunk, chunk_start, at = file.read(position, size), position, 0
                is_sound = crc_is_valid(chunk, at, header)
            except KafkaError as error:
                raise StorageError(f"{file.path} is damaged at position {position}: {error.message}") from error
            if not is_sound:
                raise StorageError(f"{file.path} is damaged at position {position}: its checksum is wrong")
            yield header, chunk[at : at + header.size_bytes]
            position += header.size_bytes


def read_metadata(batch: bytes) -> list[Message]:
    """The metadata records of a batch. StorageError for what a newer version wrote."""
    try:
        return [
            decode_metadata_record(record.value or b"")
            for record in iterate_records(batch, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
        ]
    except (ProtocolError, KafkaError) as error:
        raise StorageError(
            f"a snapshot cannot be read: {error}. If a newer version wrote it, start that one."
        ) from error


def check_whole(file: File) -> None:
    """StorageError unless every batch is sound and a footer ends the file."""
    has_footer = False
    for header, batch in read_batches(file):
        control = read_control_batch(batch) if header.is_control else []
        has_footer = any(isinstance(message, SnapshotFooterRecord) for _, message in control)
    if not has_footer:
        raise StorageError(f"{file.path} is not whole: it has no footer")


# ---- writing


async def write_snapshot(
    files: SnapshotFiles,
    ports: Ports,
    snapshot: SnapshotId,
    groups: Iterable[Sequence[Message]],
    *,
    control: Sequence[Message],
) -> int:
    """Writes it in slices of the loop's time and stores it. Gives its size. StorageError, and then there is none."""
    part = files.begin(snapshot)
    try:
        now_ms = ports.clock.wall_ms()
        for piece in encode_snapshot(
            snapshot, groups, control=control, timestamp_ms=now_ms, last_contained_timestamp_ms=now_ms
        ):
            part.append(piece)
            await asyncio.sleep(0)
        await ports.background.run(part.store)
    except BaseException:
        part.discard()
        raise
    files.add(snapshot)
    return part.size_bytes


def store_bootstrap_snapshot(
    disk: Disk, metadata_log_folder: str, voters: Sequence[VotersRecord.Voter], *, timestamp_ms: int
) -> None:
    """What `format` leaves in the folder of the metadata log: the first voters of a quorum. Blocks. StorageError."""
    with disk_errors(f"{metadata_log_folder} cannot be made"):
        disk.make_folder(metadata_log_folder)
    part = SnapshotFiles(disk, metadata_log_folder, ()).begin(SnapshotId(0, 0))
    control = (KRaftVersionRecord(kraft_version=DYNAMIC_QUORUM_LEVEL), VotersRecord(voters=list(voters)))
    for piece in encode_snapshot(part.id, (), control=control, timestamp_ms=timestamp_ms):
        part.append(piece)
    part.store()
    with disk_errors(f"{metadata_log_folder} cannot be stored"):
        # The log's own name lies in the folder above.
        disk.sync_folder(metadata_log_folder.rpartition("/")[0])


def slice_of(file: File, position: int, max_bytes: int) -> FileSlice:
    """A piece of a snapshot, for an answer to FetchSnapshot."""
    return FileSlice(file, position, max(0, min(max_bytes, file.size - position)))

"""Records that were confirmed and have to be cut off are kept beside their log, for a person to look at.

    <first offset>.<leader epoch>.cut   the batches as they were, from the first that is cut

Kafka's tools and our own recovery pass such files over; renamed to <first offset>.log, one is a segment that
kafka-dump-log reads. They go with the folder of their partition, and the oldest when there are too many bytes of them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from tailrace.log.files.segment import Segment
from tailrace.model.ports import Disk, FileSlice

CUT_SUFFIX = ".cut"
_CHUNK_BYTES = 1 << 20


class ReadLog(Protocol):
    """A log, as far as it is read here."""

    log_start_offset: int

    @property
    def folder(self) -> str: ...

    @property
    def segments(self) -> Sequence[Segment]: ...

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one_batch: bool) -> FileSlice | None: ...


def begin_keeping(
    disk: Disk, log: ReadLog, offset: int, end_offset: int, *, leader_epoch: int, max_bytes: int
) -> Callable[[], str | None]:
    """Before what lies between the offsets is cut: work for Background that keeps the first `max_bytes` of it in a
    file. It gives the path, None if nothing was to be kept, and raises OSError. StorageError."""
    slices: list[FileSlice] = []
    start_offset, room = max(offset, log.log_start_offset), max_bytes
    following = [each.base_offset for each in log.segments if start_offset < each.base_offset < end_offset]
    for start in (start_offset, *following):
        piece = log.read(start, room, end_offset=end_offset, at_least_one_batch=False) if room > 0 else None
        # Where a segment has no records from there on, the next one is read, which then comes again.
        if piece is not None and piece.size and not (slices and slices[-1].file is piece.file):
            slices.append(piece)
            room -= piece.size
    path = f"{log.folder}/{offset:020d}.{leader_epoch}{CUT_SUFFIX}"

    def work() -> str | None:
        if not slices:
            return None
        _keep(disk, path, slices, max_bytes=max_bytes)
        return path

    return work


def _keep(disk: Disk, path: str, slices: Sequence[FileSlice], *, max_bytes: int) -> None:
    """Copies the slices into the file. Blocks: Background only. OSError."""
    file = disk.open(path, create=True)
    file.truncate(0)
    for piece in slices:
        for position in range(0, piece.size, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, piece.size - position)
            file.append((piece.file.read(piece.position + position, size),))
    file.sync()
    folder = path.rpartition("/")[0]
    disk.sync_folder(folder)
    _drop_oldest(disk, folder, max_bytes, kept=path)


def _drop_oldest(disk: Disk, folder: str, max_bytes: int, *, kept: str) -> None:
    paths = [f"{folder}/{name}" for name in disk.list(folder) if name.endswith(CUT_SUFFIX)]
    paths.sort(key=lambda path: (path == kept, disk.modified_ms(path)))
    size_bytes = sum(disk.size(path) for path in paths)
    for path in paths[:-1]:
        if size_bytes <= max_bytes:
            return
        size_bytes -= disk.size(path)
        disk.remove(path)

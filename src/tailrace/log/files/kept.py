"""Records that were confirmed and have to be cut off are kept beside their log, for a person to look at.

    <first offset>.<leader epoch>.cut   the batches as they were, from the first that is cut

Kafka's tools and our own recovery pass such files over; renamed to <first offset>.log, one is a segment that
kafka-dump-log reads. They go with the folder of their partition, and the oldest when there are too many bytes of them.
"""

from collections.abc import Sequence

from tailrace.model.ports import Disk, FileSlice

CUT_SUFFIX = ".cut"
_CHUNK_BYTES = 1 << 20


def keep(disk: Disk, path: str, slices: Sequence[FileSlice], *, max_bytes: int) -> None:
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

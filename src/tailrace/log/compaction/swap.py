"""New segment files take the place of old ones, in Kafka's order: a crash at any moment leaves one or the other.

    1. the new segment is written under `.cleaned` and synced        crash: `.cleaned` files are thrown away
    2. its files are renamed to `.swap`, the log file first          crash: a `.cleaned` file of the same segment is
                                                                     left, so all of it is thrown away
    3. the old files are renamed to `.deleted`                       crash: the log's `.swap` file tells which offsets
                                                                     it replaces; the rest of the work is done at open
    4. the `.swap` files get their final names                       crash: the same
    5. the `.deleted` files are removed                              crash: they are removed at open

Names change in the order in which they were changed (a file system's journal keeps it), and the content was synced
before the first of them. `Segments.replace` does steps 2 to 4 in one go, `cleaner` the others; `finish_swaps` runs
at open, before any segment is looked at.
"""

from collections.abc import Collection

from tailrace.log.files.segment import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from tailrace.model import events
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ports import Disk, File
from tailrace.wire.records import HEADER_SIZE, read_header

_LOG_SWAP_SUFFIX = LOG_SUFFIX + SWAP_SUFFIX
_OFFSET_DIGITS = 20

log = events.logger("log.compaction")


def finish_swaps(disk: Disk, folder: str, kept: Collection[str] = ()) -> None:
    """Undoes what had not been decided and completes what had; the `kept` files stay. Does nothing in a folder without
    such files."""
    names = [name for name in disk.list(folder) if _is_numbered(name)]
    for name in names:
        if name.endswith(DELETED_SUFFIX) and name not in kept:
            disk.remove(f"{folder}/{name}")
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    # A `.swap` file beside a `.cleaned` one of the same segment: not all files of that segment had been renamed. A
    # `.cleaned` file of another segment says nothing: an earlier run that was stopped may have left it.
    undecided_offsets = {_offset_of(name) for name in cleaned}
    undecided = [name for name in swaps if _offset_of(name) in undecided_offsets]
    # The `.swap` files go first: a crash here must not leave them without the `.cleaned` ones that condemn them.
    for name in undecided + cleaned:
        log.info("an unfinished compaction is undone", file=f"{folder}/{name}")
        disk.remove(f"{folder}/{name}")
    # Log files first: with each go the files that it replaces, and an index that had its final name would go with them.
    # Once a log file has its final name, its other files only follow.
    decided = sorted(set(swaps).difference(undecided), key=lambda name: (not name.endswith(_LOG_SWAP_SUFFIX), name))
    for name in decided:
        log.info("a compaction is completed", file=f"{folder}/{name}")
        if name.endswith(_LOG_SWAP_SUFFIX):
            _remove_replaced(disk, folder, name)
        disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP_SUFFIX)}")


def _remove_replaced(disk: Disk, folder: str, swap_name: str) -> None:
    """Every file of the offsets that the new segment stands for. Its last batch, kept even when empty, reaches to the
    end of the last of its originals, so none of them is missed."""
    start = _offset_of(swap_name)
    end = max(_read_next_offset(disk.open(f"{folder}/{swap_name}"), start), start + 1)
    for name in disk.list(folder):
        if _is_numbered(name) and not name.endswith(SWAP_SUFFIX) and start <= _offset_of(name) < end:
            disk.remove(f"{folder}/{name}")


def _read_next_offset(file: File, base_offset: int) -> int:
    next_offset, position = base_offset, 0
    while position + HEADER_SIZE <= file.size:
        try:
            header = read_header(file.read(position, HEADER_SIZE))
        except KafkaError as error:
            raise StorageError(f"{file.path} is damaged at position {position}: {error.message}") from error
        next_offset = header.next_offset
        position += header.size_bytes
    return next_offset


def _offset_of(name: str) -> int:
    return int(name[:_OFFSET_DIGITS])


def _is_numbered(name: str) -> bool:
    return name[:_OFFSET_DIGITS].isdigit() and name[_OFFSET_DIGITS : _OFFSET_DIGITS + 1] == "."

"""What a start looks at beyond what it scans: the end of the last segment, and closed ones whose file was lost.

The clean mark says that everything was stored. What became of the files since, it cannot know: one that was cut short,
or whose last batch is damaged, would get new records behind a torn one. So the end is looked at even then: from the
last index entry the batches are walked, the last one must have its CRC, and the file must end with it, at the offset
that was stored. That is two or three small reads for a log with records, and none for one without.

A closed segment is never empty, but for one that Kafka's cleaner has been over, and that has empty indexes. One that is
empty beside an index with entries has lost its file, or all of it: the offsets that it stood for are damaged.
"""

from contextlib import suppress
from itertools import pairwise

from tailrace.log.files.damaged import DamagedRange
from tailrace.log.files.index import OFFSET_ENTRY
from tailrace.log.files.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment
from tailrace.model.errors import StorageError
from tailrace.model.ports import Disk
from tailrace.wire.records import HEADER_SIZE, crc_is_valid


def find_lost(disk: Disk, segments: list[Segment], log_start_offset: int) -> list[Segment]:
    """Those whose file was lost and that are still read; their damage is noted. OSError."""
    found: list[Segment] = []
    for segment, following in pairwise(segments):
        if segment.size_bytes == 0 and following.base_offset > log_start_offset and _has_indexes(disk, segment):
            note_lost(segment, following.base_offset)
            found.append(segment)
    return found


def note_lost(segment: Segment, end_offset: int) -> None:
    path, start_offset = segment.path(LOG_SUFFIX), segment.base_offset
    segment.damaged_ranges = (DamagedRange(path, 0, 0, start_offset, end_offset, "its content was lost"),)


def _has_indexes(disk: Disk, segment: Segment) -> bool:
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        with suppress(FileNotFoundError):
            if disk.size(segment.path(suffix)) > 0:
                return True
    return False


def read_end(disk: Disk, segment: Segment, log_end_offset: int | None) -> tuple[int, str]:
    """The offset after the last record, and what is wrong with the end, or nothing. `log_end_offset` is what was
    stored, None if nothing was. OSError."""
    try:
        next_offset, problem = _walk_end(segment, _last_indexed_position(disk, segment))
    except StorageError as error:
        return segment.base_offset, str(error)
    finally:
        segment.release()  # Ten thousand logs are opened in a row, and few of them are used at once.
    if not problem and log_end_offset is not None and next_offset != log_end_offset:
        problem = f"it ends at offset {next_offset}, and a clean stop has left it at {log_end_offset}"
    return next_offset, problem


def _walk_end(segment: Segment, position: int) -> tuple[int, str]:
    next_offset, end, found = segment.base_offset, 0, None
    if segment.size_bytes:
        for at, header in segment.headers(position):
            next_offset, end, found = header.next_offset, at + header.size_bytes, (at, header)
    if end != segment.size_bytes:
        return next_offset, "it ends in the middle of a batch"
    if found is not None:
        at, header = found
        if not crc_is_valid(segment.file.read(at, header.size_bytes), 0, header):
            return next_offset, "the CRC of its last batch does not match"
    return next_offset, ""


def _last_indexed_position(disk: Disk, segment: Segment) -> int:
    """0, from which the walk is long but right, where the index does not tell."""
    if segment.size_bytes <= segment.index_interval_bytes:
        return 0  # Shorter than what lies between two entries: no index is opened for it.
    try:
        file = disk.open(segment.path(INDEX_SUFFIX))
    except FileNotFoundError:
        return 0
    if file.size < OFFSET_ENTRY.size or file.size % OFFSET_ENTRY.size:
        return 0
    _, position = OFFSET_ENTRY.unpack(file.read(file.size - OFFSET_ENTRY.size, OFFSET_ENTRY.size))
    return position if 0 <= position <= segment.size_bytes - HEADER_SIZE else 0

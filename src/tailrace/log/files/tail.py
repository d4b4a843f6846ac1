"""The tail of a log that was not stopped cleanly: its batches as far as they are good, and what is wrong with the first
that is not. Changes nothing; OSError."""

from collections.abc import Iterable, Iterator

from tailrace.log.files.segment import MAX_RELATIVE_OFFSET, SCAN_BYTES, Segment
from tailrace.log.scrub.walk import Bounds, find_candidates
from tailrace.model.errors import KafkaError
from tailrace.model.ids import NO_EPOCH
from tailrace.model.ports import Bytes
from tailrace.wire.records import HEADER_SIZE, BatchHeader, crc_is_valid, read_header

# Position, header and bytes.
Walked = tuple[int, BatchHeader | None, Bytes]


def walk_batches(segment: Segment) -> Iterator[Walked]:
    """Every batch as far as its length can be followed; a header that makes no sense comes as None."""
    file, position, end = segment.file, 0, segment.size_bytes
    chunk, chunk_start = memoryview(b""), 0
    while position + HEADER_SIZE <= end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = memoryview(file.read(position, SCAN_BYTES)), position, 0
        try:
            header = read_header(chunk, at)
        except KafkaError:
            yield position, None, b""
            return
        size = header.size_bytes
        if position + size > end:
            return
        if at + size > len(chunk):
            chunk, chunk_start, at = memoryview(file.read(position, max(size, SCAN_BYTES))), position, 0
        yield position, header, chunk[at : at + size]
        position += size


def find_problem(
    segment: Segment, header: BatchHeader | None, batch: Bytes, next_offset: int, *, epoch: int, epoch_max: int
) -> str:
    """Why a batch cannot follow on `next_offset` and leader `epoch`; nothing if it can. Offsets and leader epoch lie
    outside of what the CRC covers. In no epoch after `epoch_max` has anybody led."""
    if header is None:
        return "no batch begins there"
    if not crc_is_valid(batch, 0, header):
        return "the CRC of a batch does not match"
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        return f"offset {header.base_offset} follows {next_offset - 1}"
    if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return f"offset {header.last_offset} is too far from the segment's base"
    if header.leader_epoch >= 0 and not epoch <= header.leader_epoch <= epoch_max:
        return f"a batch of leader epoch {header.leader_epoch} follows on epoch {epoch}"
    return ""


def find_gap(header: BatchHeader, next_offset: int, following_offset: int | None) -> str:
    """What is wrong with a batch of a log that is not compacted, if it does not follow directly on `next_offset` and
    the one behind it does not follow on it, or there is none: its offset has risen. If only that one were cut off, the
    log would end with an offset that is a lie, and what lies before it would never be missed."""
    is_contradicted = following_offset is None or following_offset < header.next_offset
    if header.base_offset == next_offset or not is_contradicted:
        return ""
    return f"offset {header.base_offset} follows {next_offset - 1}, and nothing was compacted between them"


def with_following(batches: Iterable[Walked], last_offset: int | None) -> Iterator[tuple[Walked, int | None]]:
    """Each batch with the first offset of the next; the last one with `last_offset`."""
    earlier: Walked | None = None
    for each in batches:
        if earlier is not None:
            yield earlier, each[1].base_offset if each[1] is not None else None
        earlier = each
    if earlier is not None:
        yield earlier, last_offset


def has_batch_behind(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether a later batch of this log follows on one that looks cut short: then its length is what is wrong."""
    bounds = Bounds(segment.size_bytes, next_offset + MAX_RELATIVE_OFFSET, lambda _offset: NO_EPOCH)
    while position + HEADER_SIZE <= segment.size_bytes:
        chunk = segment.file.read(position, SCAN_BYTES)
        if any(_is_whole(segment, at) for at in find_candidates(chunk, position, next_offset, bounds)):
            return True
        position += max(1, len(chunk) - HEADER_SIZE)
    return False


def _is_whole(segment: Segment, position: int) -> bool:
    header = read_header(segment.file.read(position, HEADER_SIZE), 0)
    return crc_is_valid(segment.file.read(position, header.size_bytes), 0, header)

"""What may be wrong with the batches of a segment: for whoever cannot trust a file. Changes nothing; OSError."""

import re
from collections.abc import Iterator

from tailrace.log.files.segment import MAX_RELATIVE_OFFSET, SCAN_BYTES, Segment
from tailrace.model.errors import KafkaError
from tailrace.model.ports import Bytes
from tailrace.wire.records import HEADER_SIZE, BatchHeader, crc_is_valid, read_header


def walk_batches(segment: Segment) -> Iterator[tuple[int, BatchHeader | None, Bytes]]:
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


def find_problem(segment: Segment, header: BatchHeader | None, batch: Bytes, next_offset: int) -> str:
    if header is None:
        return "no batch begins there"
    if not crc_is_valid(batch, 0, header):
        return "the CRC of a batch does not match"
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        return f"offset {header.base_offset} follows {next_offset - 1}"
    if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        return f"offset {header.last_offset} is too far from the segment's base"
    return ""


def has_batch_behind(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether a later batch of this log follows on one that looks cut short: then its length is what is wrong."""
    overlap, end = HEADER_SIZE, segment.size_bytes
    # Of a base offset the upper half, any lower half, length and leader epoch; then the magic of RecordBatch v2.
    pattern = re.compile(re.escape((next_offset >> 32).to_bytes(4, "big")) + rb".{12}\x02", re.DOTALL)
    while position + HEADER_SIZE <= end:
        chunk = segment.file.read(position, SCAN_BYTES)
        for found in pattern.finditer(chunk):
            at = position + found.start()
            if at + HEADER_SIZE <= end and _is_batch_from(segment, at, next_offset):
                return True
        position += max(1, len(chunk) - overlap)
    return False


def _is_batch_from(segment: Segment, position: int, next_offset: int) -> bool:
    try:
        header = read_header(segment.file.read(position, HEADER_SIZE), 0)
    except KafkaError:
        return False
    if header.base_offset < next_offset or position + header.size_bytes > segment.size_bytes:
        return False
    return crc_is_valid(segment.file.read(position, header.size_bytes), 0, header)

"""Which bytes of a segment are good batches: the rules by which one follows on another.

    length, magic   a header that can be, within the segment
    CRC             of all but the first 21 bytes
    offsets         they go on from the batch before, and end before the next segment. A gap within a segment is none of
                    ours to judge, since compaction leaves such
    leader epoch    the one that the log has noted for the offset

Base offset, length and leader epoch lie before what the CRC covers, so they are judged by their neighbours. Where
offsets overlap behind a gap, either batch may be the one that lies, and both are taken for damaged.

Pure: bytes come from the caller.
"""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from tailrace.model.errors import KafkaError
from tailrace.wire.records import HEADER_SIZE, MAGIC, BatchHeader, read_header

_MAGIC_AT = 16
_MAGIC_BYTE = bytes((MAGIC,))
# Base offset, batch length, magic and last offset delta of what may be a batch.
_GUESS = Struct(">qi4xb6xi")


class Bounds(NamedTuple):
    """What the batches of a segment have to keep to."""

    end_position: int
    end_offset: int
    leader_epoch_at: Callable[[int], int]  # -1 where it is not known


class Good(NamedTuple):
    """The last good batch, and what was expected where it lies."""

    position: int
    expected_offset: int
    header: BatchHeader


def find_problem(header: BatchHeader, next_offset: int, bounds: Bounds) -> str:
    """What is wrong with a header whose batch lies within the segment; empty if it fits. The caller checks the CRC."""
    if header.last_offset_delta < 0:
        return f"a batch with {header.last_offset_delta + 1} offsets"
    if header.base_offset < next_offset:
        return f"offset {header.base_offset} follows {next_offset - 1}"
    if header.next_offset > bounds.end_offset:
        return f"offset {header.last_offset} lies at or behind {bounds.end_offset}, where the segment ends"
    expected_epoch = bounds.leader_epoch_at(header.base_offset)
    if -1 not in (header.leader_epoch, expected_epoch) and header.leader_epoch != expected_epoch:
        return f"a batch of leader epoch {header.leader_epoch} in epoch {expected_epoch}"
    return ""


def is_prior_suspect(prior: Good | None, header: BatchHeader) -> bool:
    """Whether offsets that overlap may be the fault of the batch before: it began behind a gap."""
    return (
        prior is not None
        and prior.header.base_offset > prior.expected_offset
        and prior.expected_offset <= header.base_offset < prior.header.next_offset
    )


def read_fitting_header(data: bytes, at: int, position: int, bounds: Bounds) -> BatchHeader | str:
    """The header at `position` of the segment, which lies at `at` in the data; or why there is none."""
    try:
        header = read_header(data, at)
    except KafkaError as error:
        return f"no batch begins there: {error.message}"
    if position + header.size_bytes > bounds.end_position:
        return f"a batch claims {header.size_bytes} bytes of {bounds.end_position - position}"
    return header


def find_candidates(data: bytes, position: int, next_offset: int, bounds: Bounds) -> list[int]:
    """Where in the data, which lies at `position`, a batch that fits into the segment may begin."""
    found: list[int] = []
    at = data.find(_MAGIC_BYTE, _MAGIC_AT) - _MAGIC_AT
    while 0 <= at <= len(data) - HEADER_SIZE:
        base_offset, batch_length, _, last_offset_delta = _GUESS.unpack_from(data, at)
        if next_offset <= base_offset <= base_offset + last_offset_delta < bounds.end_offset:
            header = read_fitting_header(data, at, position + at, bounds)
            if isinstance(header, BatchHeader) and batch_length > 0 and not find_problem(header, next_offset, bounds):
                found.append(position + at)
        at = data.find(_MAGIC_BYTE, at + 1 + _MAGIC_AT) - _MAGIC_AT
    return found

"""Pure: batches of a log as a topic takes them that is not their own.

Keys, values, headers, timestamps and compression stay. Producers do not, since their ids and sequences mean nothing
there, nor do transactions: markers and what was aborted are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from tailrace.wire.records import (
    HEADER_SIZE,
    assemble_batch,
    build_batch,
    crc_is_valid,
    iterate_headers,
    iterate_records,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from tailrace.log.files.aborted import AbortedTransaction
    from tailrace.wire.records import BatchHeader

_DECOMPRESSED_MAX = 1 << 30
_COMPRESSION_BITS = 7


def saved_batches(
    data: bytes, offset: int, aborted: Collection[AbortedTransaction]
) -> tuple[int, list[tuple[int, bytes]]]:
    """Of the whole batches in the data that reach to `offset` or beyond: where they end, and each with its number of
    records. KafkaError for a damaged one."""
    batches: list[tuple[int, bytes]] = []
    for position, header in iterate_headers(data, allow_partial=True):
        if header.next_offset <= offset:
            continue
        if not crc_is_valid(data, position, header):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} is damaged")
        offset = header.next_offset
        if header.is_control or not header.record_count or _was_aborted(header, aborted):
            continue
        batches.append((header.record_count, _anew(data, position, header)))
    return offset, batches


def _was_aborted(header: BatchHeader, aborted: Collection[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )


def _anew(data: bytes, position: int, header: BatchHeader) -> bytes:
    whole = data[position : position + header.size_bytes]
    if header.record_count != header.last_offset_delta + 1:  # The cleaner has made gaps, which no producer may have.
        kept = iterate_records(whole, max_decompressed_bytes=_DECOMPRESSED_MAX)
        records = [each._replace(offset=number) for number, each in enumerate(kept)]
        return build_batch(records, compression=header.compression)
    own = header._replace(
        base_offset=0,
        attributes=header.attributes & _COMPRESSION_BITS,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
    )
    return bytes(assemble_batch(own, whole[HEADER_SIZE:]))

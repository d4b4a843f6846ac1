"""Records of a log that lie in the tier alone: by offset, by time, and what was aborted among them.

Never mixes lineages: what serves an offset is `metadata.coverage`'s decision, and a read ends with its piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from tailrace.model.ports import Background, StoreError
from tailrace.tier.format.layout import AbortedEntry, DamagedObjectError, SegmentFooter
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.metadata.coverage import Coverage, Piece
from tailrace.tier.reading.pieces import Pieces
from tailrace.tier.reading.span import Span
from tailrace.wire.records import HEADER_SIZE, BatchHeader, iterate_headers, iterate_records

# What a lookup by time reads at once.
_SCAN_BYTES = 1 << 20
# Pieces that are looked at before others have a turn: less than a millisecond.
_PIECES_PER_TURN = 500


class GapError(StoreError):
    """An offset of the log that no copy holds, and that is not here either: an operator has to look."""


@dataclass(frozen=True, slots=True)
class Found:
    timestamp: int
    offset: int
    leader_epoch: int


class TierReader:
    def __init__(
        self,
        pieces: Pieces,
        background: Background,
        max_decompressed_bytes: int,
        *,
        make_answer: Callable[[int], bytearray] = bytearray,
    ) -> None:
        """`make_answer` gives the memory for an answer of a size."""
        self._pieces = pieces
        self._background = background
        self._max_decompressed_bytes = max_decompressed_bytes
        self._make_answer = make_answer

    async def read(self, owner: TieredPartition, coverage: Coverage, offset: int, max_bytes: int) -> bytearray:
        """From the batch that holds `offset`, or the next there is: whole batches of one copy, up to `max_bytes`, but
        at least one. Nothing if the tier has none from there on: what follows is local. Raises GapError, StoreError or
        DamagedObjectError."""
        while True:
            piece = coverage.find(offset)
            if piece is None:
                raise GapError(f"no copy holds offset {offset}")
            batches = await self._read_piece(owner, piece, offset, max_bytes, coverage.find(piece.end_offset))
            # A topic that was compacted once may have no batch up to the end of the piece.
            if batches or coverage.find(piece.end_offset) is None:
                return batches
            offset = piece.end_offset

    async def _read_piece(
        self, owner: TieredPartition, piece: Piece, offset: int, max_bytes: int, following: Piece | None = None
    ) -> bytearray:
        footer = await self._pieces.footer(owner, piece.segment)
        position = footer.position_for(offset)
        size = max(max_bytes, HEADER_SIZE)
        while True:
            # The batch begins within about a chunk of the position that the index knows.
            end = min(position + footer.chunk_bytes + size, piece.segment.size_bytes)
            span = await self._pieces.read(owner, piece.segment, footer, position, end, following=following)
            is_end = end == piece.segment.size_bytes
            work = partial(self._cut, span, footer, piece, offset, max_bytes, is_end=is_end)
            batches, missing_bytes = await self._background.run(work)
            if batches or is_end:
                return batches
            size = max(2 * size, missing_bytes)  # One batch is larger than all that was read.

    def _cut(
        self, span: Span, footer: SegmentFooter, piece: Piece, offset: int, max_bytes: int, *, is_end: bool
    ) -> tuple[bytearray, int]:
        """Whole batches, or nothing and how many bytes the first one needs."""
        start, end, missing_bytes = _find_batches(span, footer, piece, offset, max_bytes, is_end=is_end)
        if start == end:
            return bytearray(), missing_bytes
        answer = self._make_answer(end - start)
        span.copy(start, answer)
        return answer, 0

    async def aborted(
        self, owner: TieredPartition, coverage: Coverage, offset: int, end_offset: int
    ) -> tuple[list[AbortedEntry], bool]:
        """Transactions that were aborted and reach into `offset` to `end_offset`; and whether that is all, or the local
        log has to be asked too. Raises StoreError or DamagedObjectError."""
        found: list[AbortedEntry] = []
        for piece in coverage.pieces_from(offset):
            if not piece.segment.has_aborted:
                continue
            footer = await self._pieces.footer(owner, piece.segment)
            for entry in footer.aborted(offset, 1 << 62):
                if entry.last_offset >= piece.end_offset:
                    continue  # Its marker is no part of the log, or is told by the next copy.
                if entry.first_offset < end_offset and entry not in found:
                    found.append(entry)
                if entry.last_stable_offset >= end_offset:
                    return found, True  # Whatever was aborted later began later.
        return found, False

    async def find_time(self, owner: TieredPartition, coverage: Coverage, timestamp: int) -> Found | None:
        """The first record in the tier whose timestamp is >= `timestamp`. Raises StoreError or DamagedObjectError."""
        async for piece in in_turns(coverage.pieces_from(0)):
            if piece.segment.max_timestamp < timestamp:
                continue
            footer = await self._pieces.footer(owner, piece.segment)
            offset = max(piece.start_offset, footer.offset_for_time(timestamp))
            while offset < piece.end_offset:
                data = await self._read_piece(owner, piece, offset, _SCAN_BYTES)
                if not data:
                    break
                found, offset = await self._background.run(partial(self._scan, data, timestamp, offset))
                if found is not None:
                    return found
        return None

    def _scan(self, data: bytearray, timestamp: int, start_offset: int) -> tuple[Found | None, int]:
        header: BatchHeader | None = None
        for position, header in iterate_headers(data):
            if header.max_timestamp < timestamp:
                continue
            batch = memoryview(data)[position : position + header.size_bytes]
            for record in iterate_records(batch, max_decompressed_bytes=self._max_decompressed_bytes):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return Found(record.timestamp, record.offset, header.leader_epoch), record.offset
        assert header is not None, "a read gives at least one batch"
        return None, header.next_offset


async def in_turns(pieces: Iterable[Piece]) -> AsyncIterator[Piece]:
    """There may be a hundred thousand."""
    for number, piece in enumerate(pieces):
        if number % _PIECES_PER_TURN == _PIECES_PER_TURN - 1:
            await asyncio.sleep(0)
        yield piece


def _find_batches(
    span: Span, footer: SegmentFooter, piece: Piece, offset: int, max_bytes: int, *, is_end: bool
) -> tuple[int, int, int]:
    """Where whole batches lie from that which holds `offset` on, within the piece; or nothing, and how many bytes the
    first one needs."""
    start = end = -1
    position = 0
    while position + HEADER_SIZE <= span.size_bytes:
        header = span.header(position)
        following = position + header.size_bytes
        if header.base_offset >= piece.end_offset:
            break
        if start < 0 and header.last_offset >= offset:
            start = position
        if start >= 0:
            if following > span.size_bytes:
                if end < 0:
                    if is_end:
                        raise DamagedObjectError(f"{footer.name} ends within the batch at offset {header.base_offset}")
                    return 0, 0, following
                break
            if end >= 0 and following - start > max_bytes:
                break
            end = following
        position = following
    return (start, end, 0) if end >= 0 else (0, 0, 0)

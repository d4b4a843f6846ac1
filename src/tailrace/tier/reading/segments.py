"""One copy read from its beginning to its end, or a range of it: block by block, each checked, one block ahead.

For those who read each segment once: Spark, verification. Nothing is kept; a block and the one after it are in memory,
and what a batch needs that is larger than a block.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.log.producers import ProducerStates
from tailrace.model.ids import Uuid
from tailrace.model.ports import Background, Bytes, StoreRefusalError
from tailrace.tier.format.layout import DamagedObjectError, SegmentFooter
from tailrace.tier.format.names import TieredPartition, segment_name
from tailrace.tier.metadata.coverage import Piece, RemoteSegment
from tailrace.tier.store.guard import GuardedObjects
from tailrace.wire.records import HEADER_SIZE, BatchHeader, read_header

# Some MB take a store no longer than its first byte does.
DEFAULT_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class SegmentObjects:
    """The copies of one cluster's partitions."""

    store: GuardedObjects
    background: Background
    cluster_id: str

    def name(self, owner: TieredPartition, base_offset: int, segment_id: Uuid) -> str:
        return segment_name(self.cluster_id, owner, base_offset, segment_id)

    async def footer(self, owner: TieredPartition, segment: RemoteSegment) -> SegmentFooter:
        """One request. Raises NoObjectError, another StoreError, or DamagedObjectError."""
        name = self.name(owner, segment.base_offset, segment.segment_id)
        if segment.object_bytes <= segment.size_bytes:
            raise StoreRefusalError(f"{name} was written by another program: it cannot be read")
        data = await self.store.get(name, segment.size_bytes, segment.object_bytes)
        footer = await self.background.run(lambda: SegmentFooter(name, data, segment.object_bytes))
        facts = footer.facts
        if (facts.owner, facts.segment_id, facts.base_offset, facts.end_offset, facts.size_bytes) != (
            owner,
            segment.segment_id,
            segment.base_offset,
            segment.end_offset,
            segment.size_bytes,
        ):
            raise DamagedObjectError(f"{name} holds another segment, of {facts.topic}-{facts.owner.partition}")
        return footer


class Block(NamedTuple):
    records: memoryview  # Whole batches.
    headers: list[tuple[int, BatchHeader]]  # Of each batch, with its position in `records`.
    next_offset: int  # Of what follows; the end of the range after the last block.


class SegmentBlocks:
    """Batches that hold offsets of [start, end) of a segment. `close` it at the end."""

    def __init__(
        self,
        objects: SegmentObjects,
        footer: SegmentFooter,
        start_offset: int,
        end_offset: int,
        *,
        block_bytes: int = DEFAULT_BLOCK_BYTES,
    ) -> None:
        self._objects = objects
        self._footer = footer
        self._offset = start_offset
        self._end_offset = end_offset
        chunks = max(block_bytes // footer.chunk_bytes, 1)
        self._block_bytes = chunks * footer.chunk_bytes
        self._first = footer.position_for(start_offset)  # A batch begins there.
        self._position, self._end = footer.whole_chunks(self._first, footer.position_behind(end_offset))
        self._rest: Bytes = b""  # The beginning of a batch whose end is in the next block.
        self._ahead: asyncio.Task[Bytes] | None = None

    async def next(self) -> Block | None:
        """None at the end. Raises StoreError or DamagedObjectError."""
        while self._offset < self._end_offset and self._position < self._end:
            ahead, self._ahead = self._ahead or self._start_reading(), None
            data = await ahead
            self._position += len(data)
            if self._position < self._end:
                self._ahead = self._start_reading()
                # The caller's loop may rest until it comes back: the request has to be sent before.
                await asyncio.sleep(0)
            view = memoryview(data)
            if self._first > self._position - len(view):
                view = view[self._first - (self._position - len(view)) :]
                self._first = self._position  # Only the first block begins before the range.
            block = self._cut(memoryview(b"".join([self._rest, view])) if self._rest else view)
            if block is not None:
                return block
        if self._rest and self._offset < self._end_offset:
            footer = self._footer
            raise DamagedObjectError(f"{footer.name} ends within the batch after offset {self._offset - 1}")
        if self._offset < self._end_offset:
            # Compaction has taken the last records of the range, before the topic had a tier.
            self._offset = self._end_offset
            return Block(memoryview(b""), [], self._end_offset)
        return None

    async def close(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    def _start_reading(self) -> asyncio.Task[Bytes]:
        return asyncio.ensure_future(self._read(self._position, min(self._position + self._block_bytes, self._end)))

    async def _read(self, start: int, end: int) -> Bytes:
        footer = self._footer
        data = await self._objects.store.get(footer.name, start, end)
        await self._objects.background.run(lambda: footer.check(start, data))
        return data

    def _cut(self, data: memoryview) -> Block | None:
        """The batches of the range that are whole; what follows them waits for the next block."""
        headers: list[tuple[int, BatchHeader]] = []
        first, position = -1, 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if header.base_offset >= self._end_offset:
                self._rest, self._offset = b"", self._end_offset
                break
            if header.size_bytes < HEADER_SIZE or header.next_offset <= header.base_offset:
                raise DamagedObjectError(f"{self._footer.name} has no batch after offset {self._offset - 1}")
            if position + header.size_bytes > len(data):
                break
            if header.last_offset >= self._offset:
                first = position if first < 0 else first
                headers.append((position - first, header))
                self._offset = header.next_offset
            position += header.size_bytes
        if self._offset < self._end_offset:
            self._rest = bytes(data[position:])
        if first < 0:
            return None
        return Block(data[first:position], headers, min(self._offset, self._end_offset))


def stable_end(footer: SegmentFooter, piece: Piece) -> int | None:
    """Up to where it is known, from what lies up to the end of this piece, which transactions were aborted: where the
    first begins that was open there. None if it cannot be told: nothing was kept of producers, or the piece ends before
    its segment does."""
    if not footer.producers or piece.end_offset != footer.facts.end_offset:
        return None
    producers = ProducerStates()
    producers.load(footer.producers)
    open_offsets = [each.current_txn_first_offset for each in producers.states.values()]
    return min([piece.end_offset, *(offset for offset in open_offsets if offset >= 0)])

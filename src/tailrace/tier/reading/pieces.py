"""The bytes of segments in the tier: by whole pieces, each downloaded once however many want it, and checked.

A piece is `piece_bytes` of a segment, aligned, in whole chunks. Those used last stay in memory, checked: a reader comes
back to the piece that it ended in. Readers that go on where they ended are read ahead of: first one piece, then twice
as many each time, up to `ahead_bytes`, and across the end of a segment. What is read ahead goes to memory and to the
cache, under the same bounds as every read of the store; of all readers together it is half of what may be in memory.

A reader who is cancelled leaves at once; a download that others may want goes on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tailrace.model.ids import Uuid
from tailrace.model.ports import Background, Bytes, StoreError
from tailrace.tier.format.layout import DamagedObjectError, SegmentFooter
from tailrace.tier.format.names import TieredPartition, segment_name
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.metadata.coverage import Piece, RemoteSegment
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.span import Span
from tailrace.tier.store.guard import GuardedObjects

T = TypeVar("T")
R = TypeVar("R")

# So many windows before the end of a segment the footer of the next one is asked for.
_FOOTER_AHEAD = 4
# Pieces on their way to the cache.
_STORING_MAX = 4
# Readers whose last place is remembered.
_READERS_MAX = 1000


@dataclass(frozen=True, slots=True)
class ReadLimits:
    piece_bytes: int = 1 << 20  # A multiple of the chunks' size.
    ahead_bytes: int = 16 << 20
    footers_max_bytes: int = 16 << 20  # In memory.
    memory_bytes: int = 32 << 20  # Of pieces.


class Pieces:
    def __init__(
        self,
        cluster_id: str,
        store: GuardedObjects,
        cache: PieceCache,
        background: Background,
        *,
        throttle: Throttle,
        limits: ReadLimits,
    ) -> None:
        self.got_bytes = 0  # Downloaded, in all.
        self._cluster_id = cluster_id
        self._store = store
        self._cache = cache
        self._background = background
        self._throttle = throttle
        self._limits = limits
        self._footers: OrderedDict[Uuid, tuple[SegmentFooter, int]] = OrderedDict()
        self._footers_bytes = 0
        self._recent: OrderedDict[tuple[Uuid, int], Bytes] = OrderedDict()
        self._recent_bytes = 0
        self._unwanted: set[tuple[Uuid, int]] = set()  # What was read ahead, and nobody has come to yet.
        self._under_way: dict[tuple[Uuid, int], asyncio.Task[Bytes]] = {}
        self._footers_under_way: dict[Uuid, asyncio.Task[SegmentFooter]] = {}
        self._ahead: OrderedDict[tuple[Uuid, int], int] = OrderedDict()  # Where a reader would go on, and its window.
        self._storing: set[asyncio.Task[None]] = set()
        self._crossing: dict[Uuid, asyncio.Task[None]] = {}  # Into which segments is read ahead from the one before.

    async def footer(self, owner: TieredPartition, segment: RemoteSegment) -> SegmentFooter:
        """Raises StoreError or DamagedObjectError."""
        known = self._footers.get(segment.segment_id)
        if known is not None:
            self._footers.move_to_end(segment.segment_id)
            return known[0]
        task = self._footers_under_way.get(segment.segment_id)
        if task is None:
            task = self._footers_under_way[segment.segment_id] = asyncio.ensure_future(self._get_footer(owner, segment))
            task.add_done_callback(lambda done: _forget(self._footers_under_way, segment.segment_id, done))
        return await asyncio.shield(task)

    async def read(
        self,
        owner: TieredPartition,
        segment: RemoteSegment,
        footer: SegmentFooter,
        start: int,
        end: int,
        *,
        following: Piece | None = None,
    ) -> Span:
        """The bytes from `start` to `end`; a reader would go on with `following`. Raises StoreError or
        DamagedObjectError."""
        size = self._limits.piece_bytes
        first = start // size * size
        end = min(end, segment.size_bytes)
        window = self._follow_reader(segment, start, end)
        if window and not self._cache.is_failing:
            self._read_ahead(owner, segment, footer, -(-end // size) * size, window, following)
        places = [(at, max(start, at), min(end, at + size)) for at in range(first, end, size)]
        return Span(await asyncio.gather(*(self._part(owner, segment, footer, *place) for place in places)))

    def close(self) -> None:
        for task in (*self._under_way.values(), *self._footers_under_way.values(), *self._crossing.values()):
            task.cancel()
        for storing in self._storing:
            storing.cancel()

    def _follow_reader(self, segment: RemoteSegment, start: int, end: int) -> int:
        """How many pieces are read ahead of who reads this: none, unless he has read what goes before."""
        size, number = self._limits.piece_bytes, start // self._limits.piece_bytes
        # A reader comes back to where its last whole batch ended: in the last piece that it has got, or just before it.
        places = (number, number + 1) if start % size else (number, number + 1, number - 1)
        window = max(self._ahead.pop((segment.segment_id, each), 0) for each in places)
        following = min(max(window * 2, 1), max(self._limits.ahead_bytes // size, 1))
        self._note_reader((segment.segment_id, (end - 1) // size), following)
        return following if window else 0

    def _note_reader(self, place: tuple[Uuid, int], window: int) -> None:
        self._ahead[place] = window
        if len(self._ahead) > _READERS_MAX:
            self._ahead.popitem(last=False)

    def _read_ahead(  # noqa: PLR0917
        self,
        owner: TieredPartition,
        segment: RemoteSegment,
        footer: SegmentFooter,
        begin: int,
        count: int,
        following: Piece | None,
    ) -> None:
        size = self._limits.piece_bytes
        # Of many readers together no more than stays in memory until they come to it.
        most = max(1, self._limits.memory_bytes // size // 2)
        for at in range(begin, min(begin + count * size, segment.size_bytes), size):
            key = (segment.segment_id, at)
            if key not in self._recent and key not in self._under_way and len(self._unwanted) < most:
                self._unwanted.add(key)
                self._begin(owner, segment, footer, at)
        left = max(0, -(-(segment.size_bytes - begin) // size))
        if following is not None and left < _FOOTER_AHEAD * count:
            segment_id = following.segment.segment_id
            if segment_id not in self._crossing:
                task = asyncio.ensure_future(self._cross(owner, following, count - left, count))
                self._crossing[segment_id] = task
                task.add_done_callback(lambda done: _forget(self._crossing, segment_id, done))

    async def _cross(self, owner: TieredPartition, piece: Piece, count: int, window: int) -> None:
        """The footer of the next segment and its first `count` pieces; the reader goes on there with its window."""
        size, segment = self._limits.piece_bytes, piece.segment
        footer = await self.footer(owner, segment)
        first = footer.position_for(piece.start_offset) // size
        if count > 0:
            self._note_reader((segment.segment_id, first), window)
            self._read_ahead(owner, segment, footer, first * size, count, None)

    async def _part(  # noqa: PLR0917
        self, owner: TieredPartition, segment: RemoteSegment, footer: SegmentFooter, position: int, start: int, end: int
    ) -> memoryview:
        """What is wanted of the piece at `position`. Of one that is kept on the disk no more is read."""
        key = (segment.segment_id, position)
        self._unwanted.discard(key)
        piece = self._recent.get(key)
        if piece is not None:
            self._recent.move_to_end(key)
        elif key not in self._under_way:
            first, last = footer.whole_chunks(start, end)
            kept = await self._read_kept(segment, footer, position, first, last)
            if kept is not None:
                return memoryview(kept)[start - first : end - first]
        if piece is None:
            piece = await asyncio.shield(self._begin(owner, segment, footer, position))
        return memoryview(piece)[start - position : end - position]

    async def _read_kept(
        self, segment: RemoteSegment, footer: SegmentFooter, position: int, start: int, end: int
    ) -> bytes | None:
        """Whole chunks of the piece at `position`, if it is on the disk."""
        size_bytes = min(self._limits.piece_bytes, segment.size_bytes - position)
        if not self._cache.holds(segment.segment_id, position, size_bytes):
            return None
        end = min(end, position + size_bytes)
        check = partial(footer.check, start)
        return await self._cache.get(segment.segment_id, position, start - position, end - position, check)

    def _keep(self, key: tuple[Uuid, int], piece: Bytes) -> None:
        if key not in self._recent:
            self._recent[key] = piece
            self._recent_bytes += len(piece)
        while self._recent and self._recent_bytes + self._store.reads.bytes > self._limits.memory_bytes:
            oldest, dropped = self._recent.popitem(last=False)
            self._recent_bytes -= len(dropped)
            self._unwanted.discard(oldest)

    def _begin(
        self, owner: TieredPartition, segment: RemoteSegment, footer: SegmentFooter, position: int
    ) -> asyncio.Task[Bytes]:
        """Unless somebody has begun."""
        key = (segment.segment_id, position)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(self._get(owner, segment, footer, position))
            task.add_done_callback(lambda done: self._end(key, done))
        return task

    def _end(self, key: tuple[Uuid, int], task: asyncio.Task[Bytes]) -> None:
        _forget(self._under_way, key, task)
        if key not in self._recent:
            self._unwanted.discard(key)  # It failed.

    async def _get(self, owner: TieredPartition, segment: RemoteSegment, footer: SegmentFooter, position: int) -> Bytes:
        end = min(position + self._limits.piece_bytes, segment.size_bytes)
        kept = await self._read_kept(segment, footer, position, position, end)
        if kept is not None:
            self._keep((segment.segment_id, position), kept)
            return kept
        await self._throttle.take(end - position)
        got = await self._store.get(self._name(owner, segment), position, end)
        self.got_bytes += len(got)
        await self._background.run(lambda: footer.check(position, got))
        self._keep((segment.segment_id, position), got)
        await self._store_later(segment.segment_id, position, got)
        return got

    async def _store_later(self, segment_id: Uuid, position: int, piece: Bytes) -> None:
        """Nobody waits for the local disk, unless it is so slow that much is waiting for it."""
        work = self._cache.put(segment_id, position, piece)
        if len(self._storing) >= _STORING_MAX:
            await work
            return
        task = asyncio.ensure_future(work)
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    async def _get_footer(self, owner: TieredPartition, segment: RemoteSegment) -> SegmentFooter:
        name = self._name(owner, segment)
        if segment.object_bytes <= segment.size_bytes:
            raise StoreError(f"{name} was written by another program: it cannot be read")
        data = await self._store.get(name, segment.size_bytes, segment.object_bytes)
        footer = await self._background.run(lambda: SegmentFooter(name, data, segment.object_bytes))
        if (footer.facts.owner, footer.facts.segment_id) != (owner, segment.segment_id):
            raise DamagedObjectError(f"{name} holds another segment, of {footer.facts.topic}-{footer.facts.owner[1]}")
        # The indexes are kept as wider numbers.
        self._footers[segment.segment_id] = (footer, 2 * len(data))
        self._footers_bytes += 2 * len(data)
        while self._footers_bytes > self._limits.footers_max_bytes and len(self._footers) > 1:
            _, (_, size_bytes) = self._footers.popitem(last=False)
            self._footers_bytes -= size_bytes
        return footer

    def _name(self, owner: TieredPartition, segment: RemoteSegment) -> str:
        return segment_name(self._cluster_id, owner, segment.base_offset, segment.segment_id)


def _forget(tasks: dict[T, asyncio.Task[R]], key: T, task: asyncio.Task[R]) -> None:
    del tasks[key]
    if not task.cancelled():
        task.exception()  # Nobody may have waited for it.

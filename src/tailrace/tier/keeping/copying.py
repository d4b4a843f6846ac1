"""A closed segment becomes an object: *started* is committed, the object is put, *finished* is committed.

Whoever dies between two of these leaves a *started* without a *finished*, and perhaps an object: its successor collects
both (`removal`). Whoever was replaced meanwhile finds its *finished* refused (`metadata.machine`). A put that fails for
good is taken back by a *delete started*, and is tried again later under a new id: an object that comes late after all
has a name that nothing refers to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tailrace.model.ids import Uuid
from tailrace.model.ports import Background, Bytes, Clock, Random, StoreError
from tailrace.tier.format.layout import (
    DEFAULT_CHUNK_BYTES,
    ChunkSums,
    SegmentFacts,
    SegmentFiles,
    build_footer,
    footer_size,
)
from tailrace.tier.format.names import TieredPartition, segment_name
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.records import SegmentState, copy_started, segment_update
from tailrace.tier.store.guard import GuardedObjects
from tailrace.wire.schema import Message

# One read of the segment: large enough for the device, small beside the memory that an upload may take.
_READ_BYTES = 1 << 20


class MetadataLog(Protocol):
    """The partition of __remote_log_metadata that tells of a partition."""

    async def append(self, record: Message) -> None:
        """Returns once the record is committed and the machine here has replayed it. KafkaError if it cannot be, or
        might not be: whoever asks again finds out from the machine. FENCED_LEADER_EPOCH if the machine has refused it:
        somebody else leads, and nothing more is to be done."""


class ClosedSegment(Protocol):
    """A segment that nobody writes any more. Its bytes stay readable for as long as somebody holds it."""

    @property
    def base_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...

    def read_files(self) -> Awaitable[SegmentFiles]:
        """Not on the loop. OSError or StorageError."""

    def read(self, position: int, size: int) -> Awaitable[bytes]:
        """Not on the loop, and without pushing the log's end out of memory. OSError or StorageError."""


@dataclass(frozen=True, slots=True)
class Copier:
    """Copies for one broker. What it needs of a partition comes with each call."""

    cluster_id: str
    broker_id: int
    store: GuardedObjects
    clock: Clock
    random: Random
    throttle: Throttle
    background: Background  # Sums, and the footer: of a large segment it takes tens of milliseconds.
    chunk_bytes: int = DEFAULT_CHUNK_BYTES
    under_way: set[Uuid] = field(default_factory=set)

    async def copy(
        self,
        log: MetadataLog,
        topic: str,
        owner: TieredPartition,
        source: ClosedSegment,
        epochs: tuple[tuple[int, int], ...],
        *,
        leader_epoch: int,
    ) -> RemoteSegment:
        """`epochs` is the lineage of the log up to the segment's end. Raises StoreError, KafkaError or StorageError;
        what was begun is then taken back, or left for `removal`."""
        files = await source.read_files()
        facts = SegmentFacts(
            cluster_id=self.cluster_id,
            topic=topic,
            owner=owner,
            segment_id=Uuid(self.random.uuid()),
            base_offset=source.base_offset,
            end_offset=source.end_offset,
            size_bytes=source.size_bytes,
            max_timestamp=source.largest_timestamp,
        )
        footer_bytes = await self.background.run(partial(footer_size, facts, files, self.chunk_bytes))
        object_bytes = facts.size_bytes + footer_bytes
        segment = RemoteSegment(
            segment_id=facts.segment_id,
            base_offset=facts.base_offset,
            end_offset=facts.end_offset,
            size_bytes=facts.size_bytes,
            object_bytes=object_bytes,
            max_timestamp=facts.max_timestamp,
            broker_id=self.broker_id,
            epochs=epochs,
            has_aborted=bool(files.aborted),
        )
        name = segment_name(self.cluster_id, owner, facts.base_offset, facts.segment_id)
        started = copy_started(topic, owner, segment, leader_epoch=leader_epoch, now_ms=self.clock.wall_ms())
        self.under_way.add(segment.segment_id)
        try:
            await log.append(started)
            try:
                await self.store.put(name, lambda: self._parts(source, facts, files), object_bytes)
            except StoreError:
                await log.append(self._update(topic, owner, segment, SegmentState.DELETE_STARTED, leader_epoch))
                raise
            await log.append(self._update(topic, owner, segment, SegmentState.COPY_FINISHED, leader_epoch))
        finally:
            self.under_way.discard(segment.segment_id)
        return segment

    async def _parts(self, source: ClosedSegment, facts: SegmentFacts, files: SegmentFiles) -> AsyncIterator[Bytes]:
        sums = ChunkSums(self.chunk_bytes)
        position = 0
        while position < facts.size_bytes:
            size = min(_READ_BYTES, facts.size_bytes - position)
            await self.throttle.take(size)
            data = await source.read(position, size)
            if len(data) != size:
                raise OSError(f"the segment at offset {facts.base_offset} has become shorter than {facts.size_bytes}")
            await self.background.run(partial(sums.feed, data))
            position += size
            yield data
        yield await self.background.run(partial(build_footer, facts, files, sums.finish(), self.chunk_bytes))

    def _update(
        self, topic: str, owner: TieredPartition, segment: RemoteSegment, state: SegmentState, leader_epoch: int
    ) -> Message:
        return segment_update(
            topic,
            owner,
            segment,
            state,
            broker_id=self.broker_id,
            leader_epoch=leader_epoch,
            now_ms=self.clock.wall_ms(),
        )

"""Whether all that manifests name is there and whole: every byte is read, nothing is kept.

Checked of each copy: its footer, CRC32C of each of its chunks, the CRC of each batch, and that offsets grow within the
bounds that its name and its footer give. Checked of each partition: that its copies leave no gap.

What has been removed since the manifest was written, by retention or with its topic, is no problem: the newest manifest
does not name it any more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple

from tailrace.model.errors import StorageError
from tailrace.model.ports import NoObjectError, StoreError
from tailrace.tier.format.layout import SegmentFooter
from tailrace.tier.metadata.coverage import RemoteSegment
from tailrace.tier.metadata.manifest import Manifest
from tailrace.tier.reading.bucket import Bucket
from tailrace.tier.reading.segments import Block, SegmentBlocks, SegmentObjects
from tailrace.wire.records import crc_is_valid


class Problem(NamedTuple):
    topic: str
    partition: int
    start_offset: int
    end_offset: int
    object_name: str  # Empty where there is none.
    text: str


class Verification:
    """Of one store. `on_bytes` is told of each piece that was checked."""

    def __init__(self, bucket: Bucket, objects: SegmentObjects, *, on_bytes: Callable[[int], None]) -> None:
        self.segments = 0
        self.size_bytes = 0
        self.removed = 0  # Copies that were removed meanwhile.
        self._bucket = bucket
        self._objects = objects
        self._on_bytes = on_bytes

    async def partition(self, manifest: Manifest) -> AsyncIterator[Problem]:
        """Raises StoreError if the store cannot be read at all."""
        for problem in _gaps(manifest):
            yield problem
        for segment in manifest.segments:
            name = self._objects.name(manifest.owner, segment.base_offset, segment.segment_id)
            try:
                await self._check(manifest, segment, name)
                self.segments += 1
            except NoObjectError:
                if await self._is_named(manifest, segment):
                    yield _problem(manifest, segment, name, "is not there, and the newest manifest names it")
                else:
                    self.removed += 1
            except StoreError:
                raise
            except StorageError as error:
                yield _problem(manifest, segment, name, str(error))

    async def _check(self, manifest: Manifest, segment: RemoteSegment, name: str) -> None:
        # Stores differ in what they answer to a range beyond the end.
        size_bytes = (await self._objects.store.head(name)).size_bytes
        if size_bytes != segment.object_bytes:
            raise StorageError(f"it has {size_bytes} bytes, and should have {segment.object_bytes}")
        footer = await self._objects.footer(manifest.owner, segment)
        if footer.facts.cluster_id != manifest.cluster_id or footer.facts.topic != manifest.topic:
            raise StorageError(f"it says that it is of {footer.facts.topic} of cluster {footer.facts.cluster_id}")
        async with aclosing(_blocks(self._objects, footer)) as blocks:
            async for block in blocks:
                await self._objects.background.run(_check_block(footer, block))
                self.size_bytes += len(block.records)
                self._on_bytes(len(block.records))

    async def _is_named(self, manifest: Manifest, segment: RemoteSegment) -> bool:
        return any(
            each.owner == manifest.owner and segment.segment_id in {named.segment_id for named in each.segments}
            for each in await self._bucket.manifests(manifest.topic)
        )


async def _blocks(objects: SegmentObjects, footer: SegmentFooter) -> AsyncGenerator[Block]:
    blocks = SegmentBlocks(objects, footer, footer.facts.base_offset, footer.facts.end_offset)
    try:
        while (block := await blocks.next()) is not None:
            yield block
    finally:
        await blocks.close()


def _check_block(footer: SegmentFooter, block: Block) -> Callable[[], None]:
    def check() -> None:
        facts = footer.facts
        for position, header in block.headers:
            if not crc_is_valid(block.records, position, header):
                raise StorageError(f"the CRC of the batch at offset {header.base_offset} is wrong")
            if not facts.base_offset <= header.base_offset <= header.last_offset < facts.end_offset:
                raise StorageError(
                    f"it has a batch of offsets {header.base_offset} to {header.last_offset}, and should have "
                    f"{facts.base_offset} to {facts.end_offset - 1}"
                )
            if header.max_timestamp > facts.max_timestamp and not header.is_control:
                raise StorageError(
                    f"the batch at offset {header.base_offset} is newer ({header.max_timestamp}) than its footer says "
                    f"({facts.max_timestamp})"
                )

    return check


def _gaps(manifest: Manifest) -> list[Problem]:
    pieces, reached = manifest.coverage().pieces, manifest.log_start_offset
    found = []
    for piece in pieces:
        if piece.start_offset > reached:
            text = f"no copy holds offsets {reached} to {piece.start_offset - 1}"
            found.append(
                Problem(manifest.topic, manifest.owner.partition, reached, piece.start_offset, manifest.name, text)
            )
        reached = piece.end_offset
    return found


def _problem(manifest: Manifest, segment: RemoteSegment, name: str, text: str) -> Problem:
    place = manifest.topic, manifest.owner.partition
    return Problem(*place, segment.base_offset, segment.end_offset, name, text)

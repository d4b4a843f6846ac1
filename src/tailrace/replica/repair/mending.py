"""One log mended: segments with damage are written anew, with what another replica has for the damaged offsets.

Of a compacted topic every closed segment is taken from the other replica as a whole, those with damage last. Leader and
follower compact by themselves, and may differ in what they have removed: a value that the one has dropped, and the
tombstone that deleted it, which the other has dropped later. A mixture could have the value and not the tombstone. What
one replica has from one end to the other is right by itself. An interrupted one begins again, as the damage is still
there.

Nothing else may rewrite the log meanwhile: `Log.is_mended` keeps the cleaner away. Appends, retention and truncation
may come between any two steps; if they have touched the segment, the copy is given up.
"""

from __future__ import annotations

import asyncio
from functools import partial

from tailrace.log.files.damaged import DamagedError, DamagedRange
from tailrace.log.files.segment import Segment
from tailrace.log.scrub.check import READ_BYTES
from tailrace.log.scrub.copy import SegmentCopy
from tailrace.log.scrub.walk import Bounds
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Background, Disk
from tailrace.replica.partition import Partition
from tailrace.replica.repair.source import RangeSource


async def mend_log(partition: Partition, source: RangeSource | None, *, disk: Disk, background: Background) -> None:
    """Until nothing that can be mended is left. Without a source segments are only copied, which makes their indexes
    anew. Raises KafkaError, StorageError, OSError."""
    log = partition.log
    if log.active.damaged_ranges:
        log.roll()  # The active one is never rewritten: appends go on in it, and would spoil the copy.
    damaged = [segment for segment in log.segments[:-1] if segment.damaged_ranges]
    if source is not None and "compact" in log.config.cleanup_policy:
        if log.active.size_bytes:
            log.roll()
        wanted = [segment for segment in log.segments[:-1] if not segment.damaged_ranges] + damaged
    else:
        wanted = damaged
    for segment in wanted:
        await Mending(partition, segment, disk=disk, background=background).run(source)


class Mending:
    """The mending of one closed segment."""

    def __init__(self, partition: Partition, segment: Segment, *, disk: Disk, background: Background) -> None:
        self._partition = partition
        self._segment = segment
        self._disk = disk
        self._background = background
        following = next((each for each in partition.log.segments if each.base_offset > segment.base_offset), None)
        assert following is not None, "a closed segment has one behind it"
        self._end_offset = following.base_offset

    async def run(self, source: RangeSource | None) -> None:
        log, background = self._partition.log, self._background
        bounds = Bounds(1 << 62, self._end_offset, log.epochs.epoch_for)
        copy = SegmentCopy(self._disk, log, self._segment, bounds=bounds)
        try:
            if source is None:
                await self._copy_good(copy, 0, self._segment.size_bytes)
            elif "compact" in log.config.cleanup_policy:
                await self._fetch(copy, source, self._segment.base_offset, self._end_offset)
                copy.reach(self._end_offset)
            else:
                await self._mix(copy, source, self._segment.damaged_ranges)
            await background.run(copy.make_durable)
            if not copy.may_swap():
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the log has changed meanwhile")
        except BaseException:
            copy.discard()
            raise
        copy.swap()
        await background.run(copy.remove_old)

    async def _mix(self, copy: SegmentCopy, source: RangeSource, damage: tuple[DamagedRange, ...]) -> None:
        position = 0
        for each in damage:
            await self._copy_good(copy, position, each.position)
            await self._fetch(copy, source, each.start_offset, each.end_offset)
            position = each.end_position
        await self._copy_good(copy, position, self._segment.size_bytes)

    async def _copy_good(self, copy: SegmentCopy, position: int, end_position: int) -> None:
        if position == end_position:
            return  # Nothing of it may be left to be opened.
        file, size = self._segment.file, READ_BYTES
        while position < end_position:
            data = await self._background.run(partial(file.read, position, min(size, end_position - position)))
            taken = await self._add(copy, data, self._segment.base_offset, self._end_offset)
            if taken == 0 and position + len(data) >= end_position:
                problem = f"{file.path} is damaged at position {position}: a batch is cut short"
                raise DamagedError(self._segment.base_offset, problem)
            position += taken
            size = READ_BYTES if taken else 2 * size  # A batch that is larger than one read.

    async def _fetch(self, copy: SegmentCopy, source: RangeSource, start_offset: int, end_offset: int) -> None:
        high_watermark = self._partition.high_watermark
        if end_offset > high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"offset {end_offset} lies above the high watermark {high_watermark}, up to which replicas are equal",
            )
        async for run in source.batches(start_offset, end_offset):
            await self._add(copy, run, start_offset, end_offset)

    async def _add(self, copy: SegmentCopy, data: bytes, start_offset: int, end_offset: int) -> int:
        """In bounded steps, each a turn of the loop. Gives the bytes of the whole batches."""
        view, taken = memoryview(data), 0
        while added := copy.add(view[taken:], start_offset=start_offset, end_offset=end_offset):
            taken += added
            await asyncio.sleep(0)
        return taken

"""A segment written anew: the good batches of the old one, and those of another replica where it is damaged.

Each batch is checked before it is written: CRC, order, and that it fits between its neighbours. The new segment is
built under `.cleaned`, synced, and takes the place of the old one as a compacted one does (`compaction.swap`): a crash
at any moment leaves the one or the other. Indexes are made on the way; that of aborted transactions is taken over.

The caller sees to it that nothing else rewrites the log meanwhile, and calls `discard` on every way out but `swap`.
"""

from collections.abc import Sequence
from typing import Protocol

from tailrace.log.files.damaged import DamagedError
from tailrace.log.files.segment import CLEANED_SUFFIX, LOG_SUFFIX, Segment
from tailrace.log.scrub.walk import Bounds, find_problem
from tailrace.model import events
from tailrace.model.config import TopicConfig
from tailrace.model.errors import KafkaError
from tailrace.model.ids import NO_EPOCH
from tailrace.model.ports import Bytes, Disk
from tailrace.wire.records import build_batch, crc_is_valid, iterate_headers

# Batches of one call, and so of one turn of the loop: noting, checking and writing one costs about 3 us.
BATCHES_PER_CALL = 250

log = events.logger("log.scrub")


class RewritableLog(Protocol):
    config: TopicConfig

    @property
    def folder(self) -> str: ...

    @property
    def segments(self) -> Sequence[Segment]: ...

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None: ...


class SegmentCopy:
    def __init__(self, disk: Disk, rewritten: RewritableLog, segment: Segment, *, bounds: Bounds) -> None:
        """`bounds.end_offset` is where the next segment begins. OSError."""
        self._log = rewritten
        self._segment = segment
        self._size_bytes = segment.size_bytes
        self._bounds = bounds
        self._next_offset = segment.base_offset
        self._new = Segment.create(
            disk,
            rewritten.folder,
            segment.base_offset,
            config=rewritten.config,
            created_ms=segment.created_ms,
            suffix=CLEANED_SUFFIX,
        )

    def add(self, data: Bytes, *, start_offset: int, end_offset: int) -> int:
        """Writes whole batches of the data that lie in [start_offset, end_offset), a bounded number. Gives how many
        bytes they had. Raises DamagedError for what is no good batch or does not fit; StorageError."""
        start_offset = max(start_offset, self._next_offset)
        taken, end = [], 0
        try:
            for at, header in iterate_headers(data, allow_partial=True):
                problem = find_problem(header, start_offset, self._bounds._replace(end_offset=end_offset))
                if not problem and not crc_is_valid(data, at, header):
                    problem = "the CRC of a batch does not match"
                if problem:
                    path = self._segment.path(LOG_SUFFIX)
                    raise DamagedError(header.base_offset, f"the copy of {path} was given up: {problem}")
                taken.append((at, header))
                start_offset, end = header.next_offset, at + header.size_bytes
                if len(taken) == BATCHES_PER_CALL:
                    break
        except KafkaError as error:
            cause = f"the copy was given bytes that are no batch: {error.message}"
            raise DamagedError(self._segment.base_offset, cause) from error
        if not taken:
            return 0
        new, position = self._new, self._new.size_bytes
        new.write_all((bytes(data[:end]),), end)
        for at, header in taken:
            new.note_batch(position + at, header.size_bytes, header.last_offset, header.max_timestamp)
        self._next_offset = start_offset
        return end

    def reach(self, end_offset: int) -> None:
        """An empty batch where the source has none up to `end_offset`, as compaction leaves one: a gap between two
        segments would be taken for a loss."""
        if self._next_offset < end_offset:
            base_offset = self._next_offset
            epoch = self._bounds.leader_epoch_at(base_offset)
            batch = build_batch(
                (),
                base_offset=base_offset,
                leader_epoch=NO_EPOCH if epoch < 0 else epoch,
                last_offset_delta=end_offset - base_offset - 1,
            )
            self.add(batch, start_offset=base_offset, end_offset=end_offset)

    def make_durable(self) -> None:
        """Blocks: Background only. OSError."""
        for aborted in self._segment.aborted.from_offset(0):
            self._new.aborted.add(aborted)
        self._new.seal(sync=True)
        self._new.sync()

    def may_swap(self) -> bool:
        """Whether the log still has the old segment, as it was, and does not write to it."""
        segments = self._log.segments
        return self._segment in segments[:-1] and self._segment.size_bytes == self._size_bytes

    def swap(self) -> None:
        """StorageError, and then the new segment is gone, or kept for the next start."""
        self._log.replace_segments([self._segment], self._new)

    def remove_old(self) -> None:
        """Blocks: Background only. OSError. Whoever reads from it holds its file."""
        self._segment.remove()

    def discard(self) -> None:
        """What stays is removed at the next start."""
        try:
            self._new.remove()
        except OSError as error:
            log.warning("a file of a repair that was given up is left", file=self._new.path(LOG_SUFFIX), cause=error)

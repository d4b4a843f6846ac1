"""A closed segment of a local log, as what is copied. Made on the loop, read in Background.

Kafka's files lie beside the segment; the state of producers at its end is the snapshot that was written when the next
segment began.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tailrace.log.checkpoints import format_entries
from tailrace.log.files.segment import ABORTED_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, Segment
from tailrace.log.log import Log
from tailrace.model.errors import StorageError
from tailrace.model.ports import Background, Disk
from tailrace.tier.format.layout import SegmentFiles
from tailrace.tier.keeping.decisions import LogView
from tailrace.tier.metadata.coverage import cover
from tailrace.tier.metadata.partition import PartitionTier


class LocalSegmentSource:
    """Raises StorageError for a segment that is known to be damaged: it is repaired first, from another replica."""

    def __init__(self, disk: Disk, background: Background, log: Log, number: int) -> None:
        segment = log.segments[number]
        if segment.damaged_ranges:
            raise StorageError(f"{segment.path('.log')} is damaged, and is not copied before it is repaired")
        self.base_offset = segment.base_offset
        self.end_offset = log.segments[number + 1].base_offset
        self.size_bytes = segment.size_bytes
        self.largest_timestamp = segment.largest_timestamp
        self.epochs = lineage_up_to(log, self.end_offset)
        self._disk = disk
        self._background = background
        self._file = segment.file  # Stays readable, whatever becomes of its name.
        self._paths = _paths(segment)
        self._producers_path = log.files.snapshots.path(self.end_offset)

    def read_files(self) -> Awaitable[SegmentFiles]:
        return self._background.run(self._read_files)

    def read(self, position: int, size: int) -> Awaitable[bytes]:
        return self._background.run(lambda: self._file.read_once(position, size))

    def _read_files(self) -> SegmentFiles:
        offset_index, time_index, aborted = (self._read_whole(path) for path in self._paths)
        return SegmentFiles(
            offset_index=offset_index,
            time_index=time_index,
            aborted=aborted,
            producers=self._read_whole(self._producers_path),
            leader_epochs=format_entries(self.epochs),
        )

    def _read_whole(self, path: str) -> bytes:
        """An index that is missing costs a reader time; a missing .txnindex means that nothing was aborted; without a
        snapshot the producers are made from older ones."""
        try:
            return self._disk.read(path)
        except FileNotFoundError:
            return b""


def lineage_up_to(log: Log, end_offset: int) -> tuple[tuple[int, int], ...]:
    return tuple((entry.epoch, entry.start_offset) for entry in log.epochs.entries if entry.start_offset < end_offset)


def view_of(log: Log, tier: PartitionTier, *, high_watermark: int) -> LogView:
    """What `decisions` look at."""
    coverage = cover(
        tier.visible.values(),
        lineage_up_to(log, log.log_end_offset),
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
    )
    return LogView(
        segments=log.segments,
        coverage=coverage,
        log_start_offset=log.log_start_offset,
        stable_offset=min(high_watermark, log.last_stable_offset(high_watermark)),
    )


def _paths(segment: Segment) -> tuple[str, str, str]:
    return segment.path(INDEX_SUFFIX), segment.path(TIME_INDEX_SUFFIX), segment.path(ABORTED_SUFFIX)

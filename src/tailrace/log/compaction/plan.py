"""What is to be compacted: pure decisions over the segments of a log.

A log is clean below its first dirty offset (the cleaner's checkpoint) and dirty from there to the first uncleanable
offset, which is the least of: the active segment, the last stable offset, and the first segment that holds a record
younger than `min.compaction.lag.ms`. It is compacted when the dirty bytes are more than `min.cleanable.dirty.ratio`
of what a run would read, or when a dirty record is older than `max.compaction.lag.ms`.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from tailrace.model.config import TopicConfig

# A segment's index holds offsets as int32 above its base offset.
MAX_RELATIVE_OFFSET = 2**31 - 1


class SegmentView(Protocol):
    """What the decisions ask of a segment."""

    base_offset: int
    size_bytes: int

    @property
    def first_timestamp(self) -> int:
        """The timestamp of its first batch; -1 where it has none."""

    @property
    def largest_timestamp(self) -> int: ...


S = TypeVar("S", bound=SegmentView)


class Cleanable(NamedTuple):
    """What a run over one log would do. Offsets are half-open: [first_dirty_offset, end_offset) is dirty."""

    first_dirty_offset: int
    end_offset: int  # the base offset of the first segment that may not be cleaned
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0


def decide_first_dirty_offset(checkpoint: int | None, *, log_start_offset: int, log_end_offset: int) -> int:
    """A checkpoint outside the log tells of another history (a truncation, a lost tail): all is dirty then."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def decide_cleanable(
    segments: Sequence[SegmentView],
    config: TopicConfig,
    *,
    now_ms: int,
    first_dirty_offset: int,
    last_stable_offset: int,
) -> Cleanable | None:
    """None if the log is not compacted or not dirty enough yet."""
    if "compact" not in config.cleanup_policy or len(segments) < 2:
        return None
    end_offset = _end_offset(segments, config, now_ms, first_dirty_offset, last_stable_offset)
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    for segment, following in pairwise(segments):
        if segment.base_offset >= end_offset:
            break
        if following.base_offset <= first_dirty_offset:
            clean_bytes += segment.size_bytes
        else:
            dirty_bytes += segment.size_bytes
            is_overdue = is_overdue or _is_overdue(segment, config, now_ms)
    cleanable = Cleanable(first_dirty_offset, end_offset, clean_bytes, dirty_bytes)
    if dirty_bytes > 0 and (is_overdue or cleanable.dirty_ratio > config.min_cleanable_dirty_ratio):
        return cleanable
    return None


def _is_overdue(segment: SegmentView, config: TopicConfig, now_ms: int) -> bool:
    # Without a limit, which is the default, no segment's file is looked into.
    due_ms = now_ms - config.max_compaction_lag_ms
    return due_ms > 0 and 0 <= segment.first_timestamp < due_ms


def _end_offset(
    segments: Sequence[SegmentView], config: TopicConfig, now_ms: int, first_dirty_offset: int, last_stable_offset: int
) -> int:
    """Whole segments only: the end is the base offset of the first one that may not be touched."""
    youngest_ms = now_ms - config.min_compaction_lag_ms
    for segment, following in pairwise(segments):
        is_unstable = following.base_offset > last_stable_offset
        is_dirty = following.base_offset > first_dirty_offset
        is_young = config.min_compaction_lag_ms > 0 and segment.largest_timestamp > youngest_ms
        if is_unstable or (is_dirty and is_young):
            return segment.base_offset
    return segments[-1].base_offset


def group_segments(segments: Iterable[S], config: TopicConfig, *, end_offset: int) -> list[list[S]]:
    """Neighbours that fit into one new segment: within segment.bytes before cleaning, so also after it, and within
    the reach of int32 relative offsets. `end_offset` is where the last of them ends."""
    groups: list[list[S]] = []
    group_bytes = 0
    ordered = list(segments)
    for index, segment in enumerate(ordered):
        segment_end = ordered[index + 1].base_offset if index + 1 < len(ordered) else end_offset
        fits = (
            groups
            and group_bytes + segment.size_bytes <= config.segment_bytes
            and segment_end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        )
        if fits:
            groups[-1].append(segment)
            group_bytes += segment.size_bytes
        else:
            groups.append([segment])
            group_bytes = segment.size_bytes
    return groups

"""Which segments of a log have had their time: one pure decision, counted from the front; and the log start moved.

A segment may go because DeleteRecords moved the log start past it (always), or, where `cleanup.policy` holds
`delete`, because the log without it is still as large as `retention.bytes`, or because its newest record is older
than `retention.ms`. -1 means no limit. Nothing at or above the high watermark goes, since the log start may never
pass it; an empty last segment stays. When all are counted the caller first rolls, so that a log always has one.

Never deletes: `Log` does, after the log start was stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.log.log import Log
from tailrace.model import events
from tailrace.model.config import TopicConfig

events_log = events.logger("log")


class SegmentView(Protocol):
    """What the decision asks of a segment."""

    base_offset: int
    size_bytes: int

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records; the file's modification time where they have none."""


@dataclass(frozen=True, slots=True)
class Expired:
    """How many segments go from the front, and why the last of them does."""

    count: int
    reason: str


def decide_expired_segments(
    segments: Sequence[SegmentView],
    config: TopicConfig,
    *,
    now_ms: int,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
) -> Expired:
    deletes = "delete" in config.cleanup_policy
    excess_bytes = -1
    if deletes and config.retention_bytes >= 0:
        excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count, reason = 0, ""
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        end_offset = log_end_offset if is_last else segments[index + 1].base_offset
        if end_offset > high_watermark or (is_last and segment.size_bytes == 0):
            break
        if not is_last and end_offset <= log_start_offset:
            reason = "they lie before the log start offset"
        elif segment.size_bytes <= excess_bytes:
            reason = f"the log is larger than retention.bytes={config.retention_bytes}"
        elif deletes and 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            reason = f"their records are older than retention.ms={config.retention_ms}"
        else:
            break
        excess_bytes -= segment.size_bytes
        count = index + 1
    return Expired(count, reason)


def expire_segments(log: Log, *, now_ms: int, high_watermark: int) -> int:
    """Moves the log start behind segments that have had their time, and gives how many lie before it. They go by
    `Log.delete_expired_segments`, once the log start is stored: a start that finds them missing, and an earlier log
    start, would take them for lost. StorageError."""
    with log.files.disk_errors(f"{log.folder} cannot lose its expired segments"):
        expired = decide_expired_segments(
            log.segments,
            log.config,
            now_ms=now_ms,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=high_watermark,
        )
        if expired.count == 0:
            return 0
        if expired.count == len(log.segments):
            log.roll()
        start_offset = log.segments[expired.count].base_offset
        if start_offset > high_watermark:
            raise log.give_up(AssertionError(f"what lies above {high_watermark} would expire, up to {start_offset}"))
        log.advance_start(start_offset)
    events_log.info("segments expire", partition=log.topic_partition, segments=expired.count, cause=expired.reason)
    return expired.count

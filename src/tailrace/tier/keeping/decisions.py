"""Which segment is copied next, and what has had its time, here and in the tier. Pure.

Rules
- Copied are closed segments, oldest first, below what is committed and stable: a record that may yet be taken back, or
  whose transaction is open, is never in the tier.
- Local segments go by local.retention.ms and local.retention.bytes, -2 being retention.*; and only once they are in the
  tier without a gap up to where they end. Nothing goes that is not stable as this replica knows it: the leader that has
  copied it may know of the end of a transaction that has not come here yet.
- The log as a whole goes by retention.*: its size is that of the tier and of what is not there yet. Copies go from the
  front, and the records of their deletion say where the log starts from then on, so that it does not go back with a new
  leader. A copy of which nothing can be read goes too: it lies before the log start as a whole, or nothing of it is on
  the log's lineage any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tailrace.model.config import TopicConfig
from tailrace.tier.metadata.coverage import Coverage, Lineage, RemoteSegment, usable_end

_AS_TOTAL = -2


class LocalSegment(Protocol):
    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records; the file's modification time where they have none."""


@dataclass(frozen=True, slots=True)
class LogView:
    """A log in two tiers, as its leader sees it."""

    segments: Sequence[LocalSegment]  # Local ones in order; the last is active.
    coverage: Coverage
    log_start_offset: int
    stable_offset: int  # The smaller of the high watermark and the last stable offset.

    @property
    def copied_end_offset(self) -> int:
        """All from the local start up to here is in the tier."""
        return self.coverage.end_from(max(self.log_start_offset, self.segments[0].base_offset))

    def end_of(self, number: int) -> int:
        """The end offset of a closed segment."""
        return self.segments[number + 1].base_offset


@dataclass(frozen=True, slots=True)
class Due:
    """How many segments go from the front, and why the last of them does."""

    count: int
    reason: str


def decide_copy(log: LogView) -> int | None:
    """The number of the local segment that is copied next; None if all is done that can be."""
    copied_end_offset = log.copied_end_offset
    for number in range(len(log.segments) - 1):
        end_offset = log.end_of(number)
        if end_offset > log.stable_offset:
            return None
        if end_offset > max(copied_end_offset, log.log_start_offset):
            return number
    return None


def decide_local_expired(log: LogView, config: TopicConfig, *, now_ms: int) -> Due:
    """How many local segments may go from the front."""
    # What goes on is kept however old it is: there is no other copy, or this replica knows of no end of a transaction.
    return _decide_local_due(log, config, now_ms=now_ms, end_offset=min(log.copied_end_offset, log.stable_offset))


def uncopied_bytes(log: LogView, config: TopicConfig, *, now_ms: int) -> int:
    """What would leave the disk by the retention of the local log, if it were copied."""
    whole = _decide_local_due(log, config, now_ms=now_ms, end_offset=log.segments[-1].base_offset)
    may_go = decide_local_expired(log, config, now_ms=now_ms)
    return sum(segment.size_bytes for segment in log.segments[may_go.count : whole.count])


def _decide_local_due(log: LogView, config: TopicConfig, *, now_ms: int, end_offset: int) -> Due:
    """Up to `end_offset` at most."""
    retention_ms = config.retention_ms if config.local_retention_ms == _AS_TOTAL else config.local_retention_ms
    retention_bytes = (
        config.retention_bytes if config.local_retention_bytes == _AS_TOTAL else config.local_retention_bytes
    )
    excess_bytes = -1
    if retention_bytes >= 0:
        excess_bytes = sum(segment.size_bytes for segment in log.segments) - retention_bytes
    count, reason = 0, ""
    for number, segment in enumerate(log.segments[:-1]):
        segment_end = log.end_of(number)
        if segment_end <= log.log_start_offset:
            reason = "they lie before the log start offset"
        elif segment_end > end_offset:
            break
        elif segment.size_bytes <= excess_bytes:
            reason = f"the local log is larger than local.retention.bytes={retention_bytes}"
        elif 0 <= retention_ms < now_ms - segment.largest_timestamp:
            reason = f"their records are older than local.retention.ms={retention_ms}"
        else:
            break
        excess_bytes -= segment.size_bytes
        count = number + 1
    return Due(count, reason)


class Expired(NamedTuple):
    segments: list[RemoteSegment]
    log_start_offset: int  # Once their deletion is committed, which says so (`metadata.records`).


def decide_remote_expired(log: LogView, config: TopicConfig, *, now_ms: int) -> Expired:
    """Copies that have had their time, from the front. The log start never passes what is stable."""
    excess_bytes = -1
    if config.retention_bytes >= 0:
        copied_end_offset = log.copied_end_offset
        only_here = sum(
            segment.size_bytes
            for number, segment in enumerate(log.segments)
            if number + 1 == len(log.segments) or log.end_of(number) > copied_end_offset
        )
        excess_bytes = log.coverage.size_bytes + only_here - config.retention_bytes
    expired: list[RemoteSegment] = []
    log_start_offset = log.log_start_offset
    for piece in log.coverage.pieces_from(log_start_offset):
        segment = piece.segment
        is_old = 0 <= config.retention_ms < now_ms - segment.max_timestamp
        if (not is_old and segment.size_bytes > excess_bytes) or piece.end_offset > log.stable_offset:
            break
        excess_bytes -= segment.size_bytes
        expired.append(segment)
        log_start_offset = piece.end_offset
    return Expired(expired, log_start_offset)


def decide_unreadable(
    segments: Iterable[RemoteSegment], lineage: Lineage, *, log_start_offset: int, log_end_offset: int
) -> list[RemoteSegment]:
    """Copies of which nothing can be read any more: all of it lies before the log start, or is no part of the log."""
    unreadable = []
    for segment in segments:
        usable = min(usable_end(segment, lineage, log_start_offset), log_end_offset)
        if usable <= max(segment.base_offset, log_start_offset):
            unreadable.append(segment)
    return unreadable

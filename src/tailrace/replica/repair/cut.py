"""A partition whose log is cut, on a leader or a follower: what is stored before, and what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.replica.partition import Partition


def lasting_end(partition: Partition) -> int:
    """How far records are confirmed and stay. A start would take a log for damaged that ends before what was stored.
    One that has given up may believe anything."""
    end = min(partition.high_watermark, partition.log.log_end_offset)
    return end if partition.cut_to is None else min(end, partition.cut_to.offset)


def settle_cut(partition: Partition) -> None:
    log = partition.log
    partition.high_watermark = max(log.log_start_offset, min(partition.high_watermark, log.log_end_offset))
    partition.flusher.note_deleted(partition, log.size_bytes)
    if log.unflushed_messages >= partition.flush_messages:
        # A sync that was under way has proved nothing, and without one this replica would not fetch again.
        partition.flusher.request(partition)
    partition.readers.tell()

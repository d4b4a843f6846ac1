"""What follows for a partition whose log was cut, on a leader or a follower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.replica.partition import Partition


def settle_cut(partition: Partition) -> None:
    log = partition.log
    partition.high_watermark = max(log.log_start_offset, min(partition.high_watermark, log.log_end_offset))
    partition.flusher.note_deleted(partition, log.size_bytes)
    if log.unflushed_messages >= partition.flush_messages:
        # A sync that was under way has proved nothing, and without one this replica would not fetch again.
        partition.flusher.request(partition)
    partition.readers.tell()

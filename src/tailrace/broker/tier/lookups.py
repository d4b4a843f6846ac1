"""Offsets by time, and by the special times of remote storage, of partitions that have it.

    -2  earliest                 where the whole begins
    -4  earliest local           where the local log begins
    -5  latest tiered            the last offset that was copied, -1 without one
    -6  earliest pending upload  the first that was not
    time, -3 largest timestamp   the first record of the store that fits, else of the local log

What lies in the store alone is looked up there, for remote.list.offsets.request.timeout.ms at most.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.model.ports import StoreError
from tailrace.tier.reading.reader import in_turns

if TYPE_CHECKING:
    from tailrace.broker.tier.parts import TieredLog
    from tailrace.tier.metadata.coverage import Coverage

EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -2, -3, -4, -5, -6


class Found(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_special(part: TieredLog, timestamp: int) -> Found | None:
    """None for times that have to be looked up. Raises KafkaError as long as there is no telling."""
    log = part.partition.log
    if timestamp == EARLIEST:
        return Found(-1, part.log_start_offset, log.epochs.epoch_for(part.log_start_offset))
    if timestamp == EARLIEST_LOCAL:
        return Found(-1, log.log_start_offset, log.epochs.epoch_for(log.log_start_offset))
    if timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    if not part.is_ready:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "It is not known yet what is copied")
    end_offset = part.coverage().end_from(part.log_start_offset)
    if timestamp == LATEST_TIERED:
        if end_offset == part.log_start_offset:
            return Found(-1, -1, -1)
        return Found(-1, end_offset - 1, log.epochs.epoch_for(end_offset - 1))
    return Found(-1, end_offset, log.epochs.epoch_for(end_offset))


async def look_up(part: TieredLog, timestamp: int, *, local_timestamp: int) -> Found | None:
    """The first record in the store that is not older; of the largest timestamp, the first that has it. None if it is
    not in what lies there alone: then what was found here, of `local_timestamp`, holds. Raises KafkaError."""
    timeout_ms = part.tier.config.remote_list_offsets_request_timeout_ms
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await _look_up(part, timestamp, local_timestamp)
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The store did not answer within {timeout_ms} ms") from None
    except (StoreError, StorageError) as error:
        name = part.partition.topic_partition
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Times of {name} cannot be looked up: {error}") from error


async def _look_up(part: TieredLog, timestamp: int, local_timestamp: int) -> Found | None:
    await part.tier.wait_ready(part)
    local_start = part.partition.log.log_start_offset
    if part.log_start_offset >= local_start:
        return None
    coverage = part.coverage()
    if timestamp == MAX_TIMESTAMP:
        largest = await _largest_timestamp(coverage, local_start)
        if largest < 0 or largest < local_timestamp:
            return None
        timestamp = largest
    found = await part.tier.reader.find_time(part.owner, coverage, timestamp)
    if found is None or found.offset >= local_start:
        return None
    return Found(found.timestamp, found.offset, found.leader_epoch)


async def _largest_timestamp(coverage: Coverage, end_offset: int) -> int:
    largest = -1
    async for piece in in_turns(coverage.pieces_from(0)):
        if piece.start_offset >= end_offset:
            break
        largest = max(largest, piece.segment.max_timestamp)
    return largest

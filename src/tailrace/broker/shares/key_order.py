"""Keys of records, for groups that have at most one record of a key out (share.key.order).

Batches are opened here, ahead of what is delivered, and on no other way of a share group: what is compressed in helper
threads, records in slices of about a millisecond. Of a key its sum is kept: two keys with the same sum wait for each
other, and nothing else comes of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError, StorageError
from tailrace.wire.records import HEADER_SIZE, iterate_unpacked, read_header, unpack_records

if TYPE_CHECKING:
    from tailrace.broker.shares.share_partition import SharePartition
    from tailrace.log.files.aborted import AbortedTransaction
    from tailrace.wire.records import BatchHeader

_log = events.logger("shares")

_READ_BYTES = 256 * 1024
# Opened in a row: about half a millisecond.
_RECORDS_PER_TURN = 300
_PAUSE_SECONDS = 1.0


class KeyOrder:
    def __init__(self, share_partition: SharePartition) -> None:
        # Sums of the keys of records in the window; those without a key are left out.
        self.keys: dict[int, int] = {}
        # Up to there the window has been looked through.
        self.end = share_partition.window.start_offset
        # The window is full, and every record in it waits for another one of its key.
        self.is_blocked = False
        self._share_partition = share_partition
        # Opened, and there was no room in the window: offsets with the sums of their keys, and where they end.
        self._ahead: deque[tuple[int, int | None]] = deque()
        self._ahead_end = self.end
        self._task: asyncio.Task[None] | None = None
        self._failure: KafkaError | None = None  # Why there is no going on, until somebody was told.

    def first(self) -> int | None:
        """The first record that may go out now. If there is more to look through, that begins. Raises KafkaError, once,
        if it could not be looked through."""
        window = self._share_partition.window
        if self._task is None and self._has_more:
            self._task = self._share_partition.begin(self._open())
        found = window.first_in_order(self.keys, self.end)
        if found is None and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self.is_blocked = found is None and window.size >= self._share_partition.limits.window_max
        return found

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def _has_more(self) -> bool:
        window, partition = self._share_partition.window, self._share_partition.partition
        has_room = self.end < window.end_offset or window.size < self._share_partition.limits.window_max
        return has_room and self.end < partition.readable_end(self._share_partition.isolation_level)

    async def _open(self) -> None:
        try:
            while self._has_more and not self._share_partition.is_ended:
                before = self.end
                if self.end >= self._ahead_end:
                    await self._open_more()
                self._place()
                if self.end == before:
                    break  # There are offsets without records: compaction has taken them.
        except KafkaError as error:
            await self._fail(error)
        except (StorageError, OSError) as error:
            name = self._share_partition.partition.topic_partition
            await self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Keys of {name} cannot be read: {error}"))
        finally:
            self._task = None
        self._share_partition.readers.tell()

    async def _fail(self, error: KafkaError) -> None:
        """Whoever waits is told, and it is tried again a little later."""
        _log.warning("keys cannot be read", share_partition=repr(self._share_partition), cause=error.message)
        self._failure = error
        self._share_partition.readers.tell()
        await asyncio.sleep(_PAUSE_SECONDS)

    async def _open_more(self) -> None:
        share_partition = self._share_partition
        partition, background = share_partition.partition, share_partition.background
        offset = max(self.end, partition.log_start_offset)
        slice_ = share_partition.read(offset, _READ_BYTES)
        if slice_ is None:
            self._ahead_end = offset
            return
        aborted = partition.find_aborted(slice_, offset) if share_partition.is_read_committed else []
        data = await background.run(slice_.read)
        position = 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            batch = memoryview(data)[position : position + header.size_bytes]
            if len(batch) < header.size_bytes:
                break
            if header.last_offset >= offset:
                if not is_hidden(header, aborted):
                    await self._open_batch(batch, header, offset)
                self._ahead_end = header.next_offset
            position += header.size_bytes

    async def _open_batch(self, batch: memoryview, header: BatchHeader, offset: int) -> None:
        unpack = partial(unpack_records, batch, header, self._share_partition.decompressed_bytes_max)
        payload = await self._share_partition.background.run(unpack) if header.is_compressed else unpack()
        for count, record in enumerate(iterate_unpacked(header, payload), 1):
            if record.offset >= offset:
                self._ahead.append((record.offset, None if record.key is None else crc32(record.key)))
            if count % _RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _place(self) -> None:
        """As many as the window has room for."""
        window, ahead = self._share_partition.window, self._ahead
        room_end = max(window.end_offset, window.start_offset + self._share_partition.limits.window_max)
        offsets: list[int] = []
        while ahead and ahead[0][0] < room_end:
            offset, key = ahead.popleft()
            offsets.append(offset)
            if key is not None:
                self.keys[offset] = key
        end = min(room_end, ahead[0][0]) if ahead else min(room_end, self._ahead_end)
        first = max(self.end, window.start_offset)
        window.extend(first, [each for each in offsets if each >= first], max(first, end))
        self.end = max(self.end, end)
        if len(self.keys) > 2 * max(window.size, _RECORDS_PER_TURN):
            self.keys = {offset: key for offset, key in self.keys.items() if offset >= window.start_offset}


def is_hidden(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    """Whether members are not to see the batch."""
    return header.is_control or (
        header.is_transactional
        and any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
    )

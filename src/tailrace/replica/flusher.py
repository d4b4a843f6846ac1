"""Group commit: syncs logs to the device in helper threads, one sync a log at a time, and bounds what is unsynced.

While a sync is under way everything that is appended waits for the next one, which then covers all of it. The loop
never waits for the device. A sync that fails takes its log offline: after a failed fsync the kernel may have dropped
the pages, so trying again would prove nothing.

What is written and not yet synced is counted. From half of `log.unsynced.max.bytes` on all logs are synced; above it
`is_saturated` asks to take no more from producers. Otherwise the kernel's own bound on dirty memory would be met,
and it holds whoever writes: the loop, and with it every connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from tailrace.log.log import Log
from tailrace.model import events
from tailrace.model.errors import StorageError
from tailrace.model.ports import Background

_log = events.logger("flusher")

# Syncs at one time, over all logs: they keep a disk busy, and leave helper threads to readers of cold records, who
# would otherwise wait behind seconds of syncing.
_SYNCS_MAX = 4
# After a sync that could not begin, for want of file handles or space.
_RETRY_SECONDS = 0.2


class Flushed(Protocol):
    """A partition, as far as syncing goes."""

    log: Log

    def on_synced(self) -> None:
        """A sync has ended, well or not (`log.is_offline`)."""


class Flusher:
    def __init__(self, background: Background, *, unsynced_max_bytes: int) -> None:
        self._background = background
        self._unsynced_max_bytes = unsynced_max_bytes
        self._unsynced: dict[Flushed, int] = {}  # Bytes written since its last sync began; one entry a partition.
        self.unsynced_bytes = 0  # The sum, with what the syncs under way are about to cover.
        # Partitions with a sync under way; True if another one was asked for meanwhile.
        self._again: dict[Flushed, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[Callable[[], None], None] = {}  # At most one entry a connection.
        self._device = asyncio.Semaphore(_SYNCS_MAX)

    # ---- counting

    def note_written(self, partition: Flushed, size_bytes: int) -> None:
        self._unsynced[partition] = self._unsynced.get(partition, 0) + size_bytes
        self.unsynced_bytes += size_bytes
        if self._is_half_full:
            for each in list(self._unsynced):
                if each not in self._again:  # Else it goes on by itself.
                    self.request(each)

    def note_deleted(self, partition: Flushed, left_bytes: int) -> None:
        """Retention has removed segments: what is gone need not be synced any more."""
        gone_bytes = self._unsynced.get(partition, 0) - left_bytes
        if gone_bytes > 0:
            self._unsynced[partition] -= gone_bytes
            self._lower(gone_bytes)

    def forget(self, partition: Flushed) -> None:
        """The partition is closed. A sync under way ends by itself; no other one follows."""
        self._lower(self._unsynced.pop(partition, 0))
        self._again.pop(partition, None)

    @property
    def is_saturated(self) -> bool:
        return self.unsynced_bytes > self._unsynced_max_bytes

    @property
    def _is_half_full(self) -> bool:
        return self.unsynced_bytes > self._unsynced_max_bytes // 2

    def wait(self, callback: Callable[[], None]) -> None:
        """Calls back once it is no longer saturated."""
        self._waiting[callback] = None

    def stop_waiting(self, callback: Callable[[], None]) -> None:
        self._waiting.pop(callback, None)

    def _lower(self, size_bytes: int) -> None:
        self.unsynced_bytes -= size_bytes
        if self._waiting and not self.is_saturated:
            waiting, self._waiting = self._waiting, {}
            for callback in waiting:  # Not at once: a partition may be in the middle of being closed.
                asyncio.get_running_loop().call_soon(callback)

    # ---- syncing

    def request(self, partition: Flushed) -> None:
        """Syncs all that has been appended so far, then tells the partition."""
        if partition in self._again:
            self._again[partition] = True
            return
        self._again[partition] = False
        task = asyncio.get_running_loop().create_task(self._sync(partition))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sync(self, partition: Flushed) -> None:
        try:
            while partition in self._again:
                async with self._device:
                    if partition not in self._again:
                        return  # Closed while others had their turn.
                    self._again[partition] = False
                    is_over = await self._sync_once(partition)
                if not is_over:
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                partition.on_synced()
                # What was written meanwhile must follow, or nobody would ask for it once producers are not read.
                has_more = self._again.get(partition) or (self._is_half_full and partition in self._unsynced)
                if not has_more:
                    return
        finally:
            self._again.pop(partition, None)

    async def _sync_once(self, partition: Flushed) -> bool:
        """False if it is to be tried again. Never raises: a failure shows as `log.is_offline`."""
        log = partition.log
        covered_bytes = self._unsynced.pop(partition, 0)
        if log.is_offline:
            # After a sync that failed, one that succeeds would prove nothing.
            self._lower(covered_bytes)
            return True
        try:
            work, end_offset = log.begin_sync()
        except (OSError, StorageError) as error:  # A closed segment could not be opened again, or the log gave up.
            self._put_off(partition, covered_bytes, error)
            return False
        try:
            await self._background.run(work)
        except StorageError as error:  # It had to write something first, and the disk is full.
            log.mark_sync_failed(end_offset, error)
            self._put_off(partition, covered_bytes, error)
            return False
        except (OSError, AssertionError) as error:
            log.mark_sync_failed(end_offset, error)
        else:
            with suppress(StorageError):  # It gave up.
                log.mark_synced(end_offset)
        self._lower(covered_bytes)
        return True

    def _put_off(self, partition: Flushed, covered_bytes: int, cause: Exception) -> None:
        """Nothing is synced and nothing is lost."""
        _log.warning("a sync could not begin", partition=partition.log.topic_partition, cause=cause)
        if partition in self._again:
            self._unsynced[partition] = self._unsynced.get(partition, 0) + covered_bytes
        else:  # Closed meanwhile.
            self._lower(covered_bytes)

    async def wait_idle(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)

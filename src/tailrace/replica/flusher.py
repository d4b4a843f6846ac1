"""Group commit: syncs logs to the device in helper threads, one sync a log at a time.

While a sync is under way everything that is appended waits for the next one, which then covers all of it. The loop
never waits for the device. A sync that fails takes its log offline: after a failed fsync the kernel may have dropped
the pages, so trying again would prove nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.model.ports import Background

if TYPE_CHECKING:
    from tailrace.log.log import Log


class Flusher:
    def __init__(self, background: Background) -> None:
        self._background = background
        # Logs with a sync under way; True if another one was asked for meanwhile. At most one entry a partition.
        self._again: dict[Log, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, log: Log, on_done: Callable[[], None]) -> None:
        """Syncs all that has been appended so far, then calls back, whether it went well or not."""
        if log in self._again:
            self._again[log] = True
            return
        self._again[log] = False
        task = asyncio.get_running_loop().create_task(self._sync(log, on_done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sync(self, log: Log, on_done: Callable[[], None]) -> None:
        try:
            while True:
                self._again[log] = False
                await sync_log(log, self._background)
                on_done()
                if not self._again[log] or log.is_offline:
                    return
        finally:
            del self._again[log]

    async def wait_idle(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)


async def sync_log(log: Log, background: Background) -> None:
    """One sync in a helper thread. Never raises: a failure shows as `log.is_offline`."""
    work, end_offset = log.begin_sync()
    try:
        await background.run(work)
    except OSError as error:
        log.mark_sync_failed(end_offset, error)
    else:
        log.mark_synced(end_offset)

"""The event loop of whoever uses the kit without one: a thread, one for the process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """The loop, on a daemon thread. A child of this process gets one of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="tailrace-kit", daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self.thread:
            work.close()
            raise RuntimeError("this thread runs the event loop of the kit: use the async classes of tailrace.kit here")
        pending = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return pending.result()
        except BaseException:  # Ctrl-C, for one: nobody waits for it any more.
            pending.cancel()
            raise


_lock = threading.Lock()
_running: LoopThread | None = None


def loop_thread() -> LoopThread:
    global _running  # noqa: PLW0603 - one for the process
    with _lock:
        if _running is None or _running.pid != os.getpid():
            _running = LoopThread()
        return _running

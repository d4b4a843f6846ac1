"""The real Background: a few helper threads for calls that block or release the GIL.

Threads are started when first needed and decide nothing: each takes a callable, runs it, and hands its result back to
the loop. What is queued is bounded by the callers, each of which keeps at most one piece of work under way.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# fsync and read-ahead wait for the device. The flusher takes four of these at most, the maintenance tasks one each; the
# rest is for readers of cold records and for codecs.
_THREADS_MAX = 12


class RealBackground:
    def __init__(self, threads: int = _THREADS_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="tailrace-background")

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True)

"""Handlers as they are called: an async one on the loop, a plain function in a thread of its own.

A thread cannot be cancelled: a plain function that never returns holds its record, and its place, until the process
ends. It is never taken for failed, for it may still be at work; `status` tells of it. An async handler that takes
longer than `timeout_ms` is cancelled, and has failed.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any

Handler = Callable[[Any], Any]


class HandlerTimeoutError(Exception):
    """An async handler took longer than it may."""


class Caller:
    """`close` it at the end. At most as many threads as calls at a time; they end no later than the process."""

    def __init__(self, handler: Handler, *, timeout_ms: int | None) -> None:
        self._handler = handler
        self._timeout_ms = timeout_ms
        self.is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []
        self._is_closed = False

    async def call(self, message: Any) -> Any:
        if not self.is_async:
            return await self._call_in_thread(message)
        if self._timeout_ms is None:
            return await self._handler(message)
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as limit:
                return await self._handler(message)
        except TimeoutError:
            if limit.expired():
                raise HandlerTimeoutError(f"the handler took longer than {self._timeout_ms} ms") from None
            raise

    def close(self) -> None:
        """Threads that are at work end after it."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _call_in_thread(self, message: Any) -> Awaitable[Any]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        tasks = self._idle.pop() if self._idle else self._start_thread()

        def settle(found: Any, error: Exception | None) -> None:
            if self._is_closed:
                tasks.put(None)
            else:
                self._idle.append(tasks)
            if done.done():  # Whoever waited has gone.
                return
            if error is None:
                done.set_result(found)
            else:
                done.set_exception(error)

        def work() -> None:
            found: Any = None
            failure: Exception | None = None
            try:
                found = self._handler(message)
            except StopIteration as error:  # A future does not take it.
                failure = RuntimeError(f"the handler raised {error!r}")
            except Exception as error:
                failure = error
            except BaseException as error:
                failure = RuntimeError(f"the handler raised {error!r}")
            try:
                loop.call_soon_threadsafe(settle, found, failure)
            except RuntimeError:  # The loop has ended.
                tasks.put(None)

        tasks.put(work)
        return done

    def _start_thread(self) -> SimpleQueue[Callable[[], None] | None]:
        tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

        def run() -> None:
            while (work := tasks.get()) is not None:
                work()

        threading.Thread(target=run, daemon=True, name="tailrace handler").start()
        return tasks

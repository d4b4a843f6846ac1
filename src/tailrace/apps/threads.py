"""Work that may hang, in a thread of its own: not among those of the loop, for which others wait. It keeps no process
alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

Given = TypeVarTuple("Given")
Found = TypeVar("Found")


async def in_thread(work: Callable[[*Given], Found], *given: *Given) -> Found:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Found] = loop.create_future()

    def settle(found: Found | None, error: Exception | None) -> None:
        if done.done():  # Whoever waited has gone.
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(found)  # type: ignore[arg-type]

    def run() -> None:
        found, failure = None, None
        try:
            found = work(*given)
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(settle, found, failure)

    threading.Thread(target=run, daemon=True).start()
    return await done

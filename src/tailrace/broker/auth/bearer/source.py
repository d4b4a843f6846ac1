"""The keys that check tokens, as they were last read from a file or an address, and when they are read again.

Rules
- One reading is under way at a time, in a helper thread. Whoever wants newer keys waits for that one.
- They are read every refresh_ms, and after a failure with waits that double; those that are there go on meanwhile.
- A token that names an unknown key makes them be read early, once in unknown_key_ms, whoever sends how many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tailrace.broker.auth.bearer.keys import KeySet, read_keys
from tailrace.model import events
from tailrace.model.ports import Ports

_log = events.logger("tokens")


class Pace(NamedTuple):
    """All of it settings."""

    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int
    unknown_key_ms: int


class KeySource:
    """`read` blocks, and raises OSError."""

    def __init__(self, address: str, read: Callable[[], bytes], ports: Ports, pace: Pace) -> None:
        self.address = address
        self.keys = KeySet()  # None, until they are read for the first time.
        self._read = read
        self._ports = ports
        self._pace = pace
        self._reading: asyncio.Future[str | None] | None = None
        self._may_read_early_ms = 0.0
        self._last_failure: str | None = None
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """From now on they are kept up to date."""
        self._task = asyncio.ensure_future(self._keep_fresh())

    def close(self) -> None:
        for task in (self._task, self._reading):
            if task is not None:
                task.cancel()

    async def read_now(self) -> str | None:
        """Why that failed, if it did."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read_and_tell())
        return await asyncio.shield(self._reading)

    async def read_early(self) -> bool:
        """Whether there are newer keys now. False if it is too early to ask again."""
        if self._reading is None:
            now_ms = self._ports.clock.monotonic_ms()
            if now_ms < self._may_read_early_ms:
                return False
            self._may_read_early_ms = now_ms + self._pace.unknown_key_ms
        return await self.read_now() is None

    async def _keep_fresh(self) -> None:
        failures = 0
        while True:
            failed = await self.read_now() is not None
            failures = failures + 1 if failed else 0
            wait_ms = self._pace.refresh_ms
            if failed:
                # Bounded, so that the power is not a number of a thousand digits one day.
                wait_ms = min(self._pace.backoff_ms * 2 ** min(failures - 1, 30), self._pace.backoff_max_ms)
            await asyncio.sleep(wait_ms / 1000)

    async def _read_and_tell(self) -> str | None:
        failure: str | None = None
        try:
            self.keys = await self._ports.background.run(lambda: read_keys(self._read()))
        except ValueError as error:
            failure = str(error)
        except OSError as error:
            failure = error.strerror or str(error)
        finally:
            self._reading = None
        if failure != self._last_failure:
            if failure is None:
                _log.info("the keys that check tokens could be read again", address=self.address)
            else:
                _log.warning("the keys that check tokens cannot be read", address=self.address, cause=failure)
        self._last_failure = failure
        return failure

"""How many read at a time, in all and of one caller; and that they stop when the gateway does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.apps.gateway.callers import Caller
from tailrace.apps.gateway.errors import too_many
from tailrace.apps.gateway.settings import GatewaySettings


class Readers:
    def __init__(self, settings: GatewaySettings) -> None:
        self.stopping = asyncio.Event()
        self._settings = settings
        self._count = 0

    @contextmanager
    def place(self, caller: Caller) -> Iterator[None]:
        """Raises GatewayError if there is none."""
        settings = self._settings
        if self._count >= settings.readers_max:
            raise too_many(f"{settings.readers_max} readers are at work, and no more are taken: see readers.max")
        if caller.readers >= settings.caller_readers_max:
            raise too_many(
                f"{caller.principal} has {settings.caller_readers_max} readers, and gets no more: "
                "see readers.per.caller.max"
            )
        self._count += 1
        caller.readers += 1
        try:
            with caller.in_use():
                yield
        finally:
            self._count -= 1
            caller.readers -= 1

"""Certificates that change while a node runs: their files are looked at from time to time, and read again once they
have changed. What cannot be read is told in the log, and the one before it goes on. Connections that are there keep
what they began with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tailrace.model import events
from tailrace.model.errors import KafkaError
from tailrace.model.ports import Listener, Network, Ports, Stream, Tls
from tailrace.model.security import TlsSettings

_log = events.logger("certificates")


class Identity:
    """As of the files when they were last read. `listens` says for which side."""

    def __init__(self, tls: Tls, settings: TlsSettings, listener_name: str, *, listens: bool) -> None:
        self.tls = tls
        self.current: Any = None  # Set by the first `read`.
        self.listener_name = listener_name
        self._settings = settings
        self._listens = listens
        self._stamp: object = None

    def read(self) -> None:
        """Blocks. Raises KafkaError INVALID_CONFIG."""
        self._stamp = self.tls.stamp(self._settings)
        self.current = self.tls.read_identity(self._settings, listens=self._listens)

    def read_if_changed(self) -> bool:
        """Blocks. Raises KafkaError INVALID_CONFIG, once for each change."""
        if self.tls.stamp(self._settings) == self._stamp:
            return False
        self.read()
        return True


class SecuredNetwork:
    """Connects by TLS, as whoever the identity is at that moment. It only listens without."""

    def __init__(self, below: Network, identity: Identity) -> None:
        self._below = below
        self._identity = identity

    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], None],
        *,
        backlog: int = 128,
        receive_buffer_bytes: int = -1,
        send_buffer_bytes: int = -1,
    ) -> Listener:
        return await self._below.listen(
            host,
            port,
            accept,
            backlog=backlog,
            receive_buffer_bytes=receive_buffer_bytes,
            send_buffer_bytes=send_buffer_bytes,
        )

    async def connect(self, host: str, port: int) -> Stream:
        return await self._identity.tls.network(self._below, self._identity.current).connect(host, port)


class Watch:
    def __init__(self, identities: list[Identity], ports: Ports, *, interval_ms: int) -> None:
        self._identities = identities
        self._ports = ports
        self._interval_ms = interval_ms
        self._task = asyncio.ensure_future(self._look()) if identities and interval_ms else None

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            for identity in self._identities:
                try:
                    if await self._ports.background.run(identity.read_if_changed):
                        _log.info("certificates were read again", listener=identity.listener_name)
                except KafkaError as error:
                    _log.warning(
                        "new certificates cannot be used, the old ones go on",
                        listener=identity.listener_name,
                        cause=error.message,
                    )

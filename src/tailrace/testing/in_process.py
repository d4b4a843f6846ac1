"""The broker under test on the caller's own event loop. It brings the whole broker: imported only when asked for."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping

from tailrace.broker.broker import Broker
from tailrace.broker.single_node import single_node_settings
from tailrace.model.config import parse_broker_config
from tailrace.real.ports import real_ports
from tailrace.testing.child import Guard


class InProcess:
    """A broker over the real ports, with a temporary folder unless it is given one."""

    def __init__(self, host: str, port: int, data: str | None, settings: Mapping[str, str]) -> None:
        self.data = data or tempfile.mkdtemp(prefix="tailrace-test-")
        self._guard = None if data else Guard(self.data)
        own = {"metrics.listeners": "HTTP://127.0.0.1:0", **settings}
        self._settings = {**single_node_settings(host, port, self.data), **own}
        self._ports = real_ports()
        self._broker: Broker | None = None

    async def start(self) -> int:
        """The port on which it listens."""
        try:
            broker = Broker(parse_broker_config(self._settings), self._ports)
            await broker.start()
        except BaseException:
            await self._clean_up()
            raise
        self._broker = broker
        return broker.port

    @property
    def metrics_url(self) -> str:
        assert self._broker is not None, "it was started"
        assert self._broker.metrics is not None, "metrics.listeners is not empty"
        return self._broker.metrics.urls[0]

    async def stop(self) -> None:
        try:
            if self._broker is not None:
                await self._broker.stop()
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        await asyncio.to_thread(self._ports.background.close)
        if self._guard is not None:
            await asyncio.to_thread(self._guard.close)

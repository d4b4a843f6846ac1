"""The broker under test on the caller's own event loop. It brings the whole broker: imported only when asked for."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping

from tailrace.broker.broker import Broker
from tailrace.broker.single_node import single_node_settings
from tailrace.model.config import parse_broker_config
from tailrace.real.ports import real_ports


class InProcess:
    """A broker over the real ports, with a temporary folder unless it is given one."""

    def __init__(self, host: str, port: int, data: str | None, settings: Mapping[str, str]) -> None:
        self._temporary = None if data else tempfile.mkdtemp(prefix="tailrace-test-")
        self.data = data or self._temporary or ""
        self._broker = Broker(
            parse_broker_config({**single_node_settings(host, port, self.data), **settings}), real_ports()
        )

    async def start(self) -> int:
        """The port on which it listens."""
        try:
            await self._broker.start()
        except BaseException:
            self._remove_folder()
            raise
        return self._broker.port

    async def stop(self) -> None:
        try:
            await self._broker.stop()
        finally:
            self._remove_folder()

    def _remove_folder(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

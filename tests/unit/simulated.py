"""Tests on the simulated loop: in virtual time, so that a machine without a processor to spare changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from tailrace.model.ports import Ports, Stream
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom

P = ParamSpec("P")


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        loop = SimLoop(SimRandom(1))
        try:
            loop.run_until_complete(test(*args, **options))
        finally:
            loop.close()

    return run


def simulated_ports(loop: SimLoop, host: str) -> Ports:
    """Those of the test itself, on a network where it is the only host."""
    random, clock = SimRandom(2), ProcessClock(loop.world)
    return Ports(
        clock=clock,
        random=random,
        disk=SimDisk(clock),
        network=SimNetwork(loop, random.fork()).port(host, loop.world),
        background=SimBackground(),
    )


class StreamWriter:
    """What tests need of a StreamWriter, over a simulated stream; what arrives goes to `reader`."""

    def __init__(self, stream: Stream, reader: asyncio.StreamReader) -> None:
        self._stream = stream
        self._reader = reader
        self._unsent = b""
        self._buffer = memoryview(bytearray(1 << 16))
        stream.watch_reads(self._receive)

    def write(self, data: bytes) -> None:
        self._unsent += data
        self._send()

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[self._stream.send([self._unsent]) :]
        except ConnectionError:
            self._unsent = b""  # The reader is told.
        self._stream.watch_writes(self._send if self._unsent else None)

    def _receive(self) -> None:
        try:
            while size := self._stream.recv_into(self._buffer):
                self._reader.feed_data(bytes(self._buffer[:size]))
        except BlockingIOError:
            return
        except OSError as error:
            self._reader.set_exception(error)
        else:
            self._reader.feed_eof()
        self._stream.watch_reads(None)

    async def drain(self) -> None:
        """What is written waits here for as long as it has to."""

    def close(self) -> None:
        self._stream.close()

    async def wait_closed(self) -> None:
        """It is at once."""

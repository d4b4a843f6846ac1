"""The side of `tailrace debug` that lives in a node: a socket in its data folder, for the node's own user alone.

Opened once the node is ready, and removed at a clean stop. One question a connection, as a line of JSON, one answer.
Also what works without a question: stalls are told, and SIGUSR2 writes all stacks to stderr, even of a loop that is
stuck. systemd's watchdog ends a process by SIGABRT: then they are written too.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import json
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tailrace.cli.debug import PROCESS_NAME, SOCKET_NAME, short_path
from tailrace.cli.debug.sampling import sample
from tailrace.cli.debug.stalls import StallWatch
from tailrace.model import events

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker

_log = events.logger("broker")

_QUESTION_SECONDS = 5.0
_SECONDS_MAX = 60.0


class DebugServer:
    def __init__(self, broker: Broker, folder: str) -> None:
        self._broker = broker
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._stalls = StallWatch(broker.config.loop_lag_warning_ms)
        self._sampling = asyncio.Lock()

    async def open(self) -> None:
        """A folder that cannot have a socket is no reason not to run."""
        with suppress(io.UnsupportedOperation, ValueError):  # stderr may be closed, or no file.
            faulthandler.enable()
            faulthandler.register(signal.SIGUSR2)
        self._stalls.start()
        try:
            self._server = await asyncio.start_unix_server(self._serve, sock=self._bind())
            self._leave_process_id()
        except OSError as error:
            _log.warning("`tailrace debug` cannot look into this node", folder=self._folder, cause=error)

    def _bind(self) -> socket.socket:
        with suppress(FileNotFoundError):
            os.unlink(f"{self._folder}/{SOCKET_NAME}")
        listening = socket.socket(socket.AF_UNIX)
        try:
            with short_path(self._folder) as path:
                listening.bind(path)
            os.chmod(f"{self._folder}/{SOCKET_NAME}", 0o600)  # Before anybody can connect: it does not listen yet.
        except BaseException:
            listening.close()
            raise
        return listening

    def _leave_process_id(self) -> None:
        with open(f"{self._folder}/{PROCESS_NAME}", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def close(self) -> None:
        self._stalls.stop()
        if self._server is not None:
            self._server.close()
        for name in (SOCKET_NAME, PROCESS_NAME):
            with suppress(OSError):
                os.unlink(f"{self._folder}/{name}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_QUESTION_SECONDS):
                question = json.loads(await reader.readline())
            answer = await self._answer(question)
        except Exception as error:  # Whatever is asked, the node goes on.
            answer = {"error": f"the node could not tell: {error!r}"}
        with suppress(OSError):
            writer.write(json.dumps(answer, default=str).encode())
            await writer.drain()
        writer.close()

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        match question["what"]:
            case "stacks":
                return {"stacks": _stacks()}
            case "profile":
                return await self._profile(min(float(question["seconds"]), _SECONDS_MAX))
            case "state":
                from tailrace.cli.debug.state import node_state

                return node_state(self._broker)
            case other:
                return {"error": f"nobody knows what {other!r} is"}

    async def _profile(self, seconds: float) -> dict[str, Any]:
        if self._sampling.locked():
            return {"error": "somebody else samples this node; ask again in a moment"}
        async with self._sampling:
            self._stalls.stop()  # They share the alarm.
            try:
                return (await sample(seconds)).to_json()
            finally:
                self._stalls.start()


def _stacks() -> str:
    """Of threads, by the interpreter; of tasks, as far as they wait for something."""
    text = io.StringIO()
    for number, frame in sys._current_frames().items():
        text.write(f"thread {number}\n{''.join(traceback.format_stack(frame))}\n")
    for task in sorted(asyncio.all_tasks(), key=lambda each: each.get_name()):
        task.print_stack(file=text)
    return text.getvalue()

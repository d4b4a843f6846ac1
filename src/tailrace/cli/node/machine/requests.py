"""The supervisor's end of the socket of `real.supervisor`: one request a connection, a JSON line, and one answer.

Runs on the supervisor's selector. An answer may come much later; a client that has left meanwhile is no failure.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from tailrace.cli import CommandError
from tailrace.real.supervisor import REQUEST_BYTES_MAX, is_same_user, listen_for_requests

Reply = Callable[[Mapping[str, Any]], None]
Handler = Callable[[Mapping[str, Any], Reply], None]

_CONNECTIONS_MAX = 64


class Requests:
    """Raises OSError if another supervisor of this cluster listens."""

    def __init__(self, cluster_id: str, selector: selectors.BaseSelector, handle: Handler) -> None:
        self._selector = selector
        self._handle = handle
        self._connections: dict[socket.socket, bytearray] = {}
        self._listener = listen_for_requests(cluster_id)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        self._listener.close()
        for connected in self._connections:
            connected.close()

    def _accept(self) -> None:
        connected, _ = self._listener.accept()
        if not is_same_user(connected) or len(self._connections) >= _CONNECTIONS_MAX:
            connected.close()
            return
        connected.setblocking(False)
        self._connections[connected] = bytearray()
        self._selector.register(connected, selectors.EVENT_READ, lambda: self._read(connected))

    def _read(self, connected: socket.socket) -> None:
        received = self._connections[connected]
        try:
            chunk = connected.recv(REQUEST_BYTES_MAX)
        except OSError:
            chunk = b""
        received += chunk
        if not chunk or len(received) > REQUEST_BYTES_MAX:
            self._end(connected)
        elif received.endswith(b"\n"):
            self._selector.unregister(connected)
            self._answer(connected, bytes(received))

    def _answer(self, connected: socket.socket, line: bytes) -> None:
        def reply(answer: Mapping[str, Any]) -> None:
            with suppress(OSError):
                connected.send(json.dumps(answer).encode() + b"\n")
            self._connections.pop(connected, None)
            connected.close()

        try:
            self._handle(json.loads(line), reply)
        except (CommandError, ValueError) as error:
            reply({"error": str(error)})

    def _end(self, connected: socket.socket) -> None:
        self._selector.unregister(connected)
        del self._connections[connected]
        connected.close()

"""The local socket on which a process that supervises a cluster takes requests: one JSON line each way.

It lies in the abstract namespace under the cluster's id, so that whoever has a client's connection to the cluster can
find it, and nothing is left on disk by a process that was killed. Only processes of the same user are answered.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

REQUEST_BYTES_MAX = 64 * 1024


class SupervisorError(Exception):
    """There is no supervisor of this cluster on this machine, or it could not do what it was asked."""


def listen_for_requests(cluster_id: str) -> socket.socket:
    """Raises OSError if another process supervises this cluster."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(_address(cluster_id))
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    return listener


def is_same_user(connected: socket.socket) -> bool:
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user_id, _ = struct.unpack("3i", credentials)
    return user_id in (os.getuid(), 0)


def ask_supervisor(cluster_id: str, request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """The answer. Raises SupervisorError; a request may wait for a node to start or stop."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(timeout_s)
            connected.connect(_address(cluster_id))
            connected.sendall(json.dumps(request).encode() + b"\n")
            with connected.makefile("rb") as answers:
                line = answers.readline()
    except TimeoutError:
        raise SupervisorError(f"the supervisor did not answer within {timeout_s:g} s") from None
    except OSError:
        raise SupervisorError(f"no `tailrace up` on this machine runs cluster {cluster_id}") from None
    if not line:
        raise SupervisorError("the supervisor ended before it answered")
    answer: dict[str, Any] = json.loads(line)
    if "error" in answer:
        raise SupervisorError(str(answer["error"]))
    return answer


def _address(cluster_id: str) -> bytes:
    return f"\0tailrace-up-{cluster_id}".encode()

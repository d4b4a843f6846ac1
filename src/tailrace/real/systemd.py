"""What systemd is told of a service of Type=notify: that it is ready, that it stops, and that its loop still turns.

The watchdog is fed by a timer of the process's own loop: one that is stuck does not feed it, and systemd ends the
process (WatchdogSec=). Without NOTIFY_SOCKET in the environment nothing of this happens. sd_notify(3) is the contract.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

from tailrace.model import events

_log = events.logger("supervisor")

# As sd_watchdog_enabled(3) recommends: half of the time after which systemd loses patience.
_FEED_SHARE = 0.5


CallLater = Callable[[float, Callable[[], None]], object]


def _by_running_loop(seconds: float, callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, callback)


class ServiceManager:
    """One for a process; `connect` gives None where nobody asked to be told."""

    def __init__(self, address: str, watchdog_seconds: float, call_later: CallLater) -> None:
        self._address = address
        self._feed_seconds = watchdog_seconds * _FEED_SHARE
        self._call_later = call_later
        self._is_closed = False

    @classmethod
    def connect(cls, environment: Mapping[str, str], call_later: CallLater = _by_running_loop) -> ServiceManager | None:
        address = environment.get("NOTIFY_SOCKET", "")
        if not address:
            return None
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        micros = environment.get("WATCHDOG_USEC", "0")
        seconds = int(micros) / 1e6 if is_ours and micros.isdecimal() else 0.0
        # A name that begins with @ is in the abstract namespace.
        return cls("\0" + address[1:] if address.startswith("@") else address, seconds, call_later)

    def tell_ready(self, status: str) -> None:
        self._tell("READY=1", f"STATUS={status}")
        self._feed()

    def tell_stopping(self) -> None:
        """The watchdog is fed on: a clean stop takes its time, and its loop turns meanwhile."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def close(self) -> None:
        self._is_closed = True

    def _feed(self) -> None:
        if self._feed_seconds and not self._is_closed:
            self._tell("WATCHDOG=1")
            self._call_later(self._feed_seconds, self._feed)

    def _tell(self, *lines: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            # Nothing here may end a broker: if systemd does not hear of it, systemd decides.
            _log.warning("could not tell the service manager", what=lines[0], error=error)

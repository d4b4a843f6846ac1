"""What systemd hears of a service: by a socket of our own in its place."""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.real.systemd import ServiceManager

PATIENCE_S = 60.0


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE_S)
        yield listening


def _environment(heard: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": heard.getsockname(), **more}


def _is_waiting(heard: socket.socket) -> bool:
    return bool(select.select([heard], [], [], 0)[0])


def test_without_a_socket_there_is_nobody_to_tell() -> None:
    assert ServiceManager.connect({}) is None


async def test_the_watchdog_is_fed_by_the_loop_and_starves_with_it(heard: socket.socket) -> None:
    manager = ServiceManager.connect(_environment(heard, WATCHDOG_USEC="100000", WATCHDOG_PID=str(os.getpid())))
    assert manager is not None
    manager.tell_ready("node 1")
    assert heard.recv(100) == b"READY=1\nSTATUS=node 1"
    assert heard.recv(100) == b"WATCHDOG=1"
    await asyncio.sleep(0.2)
    assert heard.recv(100) == b"WATCHDOG=1"
    heard.settimeout(0)
    while _is_waiting(heard):
        heard.recv(100)
    time.sleep(0.2)  # noqa: ASYNC251 - the loop is stuck
    with pytest.raises(BlockingIOError):
        heard.recv(100)
    await asyncio.sleep(0.01)
    assert heard.recv(100) == b"WATCHDOG=1"
    manager.tell_stopping()
    assert heard.recv(100).startswith(b"STOPPING=1")
    manager.close()


async def test_a_watchdog_of_another_process_is_not_fed(heard: socket.socket) -> None:
    manager = ServiceManager.connect(_environment(heard, WATCHDOG_USEC="10000", WATCHDOG_PID="1"))
    assert manager is not None
    manager.tell_ready("node 1")
    await asyncio.sleep(0.05)
    heard.settimeout(0)
    assert heard.recv(100).startswith(b"READY=1")
    with pytest.raises(BlockingIOError):
        heard.recv(100)


async def test_a_service_manager_that_is_gone_ends_nobody(tmp_path: Path) -> None:
    manager = ServiceManager.connect({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert manager is not None
    manager.tell_ready("node 1")


def test_a_broker_tells_that_it_is_ready_and_that_it_stops(heard: socket.socket, tmp_path: Path) -> None:
    environment = os.environ | _environment(heard, WATCHDOG_USEC="1000000")
    command = [sys.executable, "-m", "tailrace", "up", "--port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
        try:
            assert heard.recv(200).startswith(b"READY=1\nSTATUS=node 1 at 127.0.0.1:")
            assert heard.recv(200) == b"WATCHDOG=1"
            broker.send_signal(signal.SIGTERM)
            while (told := heard.recv(200)) == b"WATCHDOG=1":
                pass
            assert told.startswith(b"STOPPING=1")
            assert broker.wait(PATIENCE_S) == 0
        finally:
            broker.kill()

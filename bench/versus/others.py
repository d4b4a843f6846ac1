"""What a user might pick instead: NATS JetStream and Redis streams, if their servers are on PATH (Debian packages
nats-server and redis-server). They speak protocols of their own, so that only rows of `workloads.instead` know them."""

import socket
from pathlib import Path

from bench.versus.processes import Process, Rival, Running, free_ports, ready, receive


def _start_nats(brokers: int, _settings: dict[str, str], folder: Path) -> Running:
    """Streams go to files, synced every two minutes: its defaults."""
    assert brokers == 1
    (port,) = free_ports(1)
    command = ["nats-server", "--addr", "127.0.0.1", "--port", str(port), "--jetstream"]
    process = Process([*command, "--store_dir", str(folder / "data-1")], folder / "log-1")
    return ready(NATS.name, {1: process}, {1: f"127.0.0.1:{port}"}, folder, lambda address: _greets(address, b"INFO "))


def _start_redis(brokers: int, _settings: dict[str, str], folder: Path) -> Running:
    """All data is in memory; commands go to a file besides, synced every second, as its documentation advises."""
    assert brokers == 1
    (port,) = free_ports(1)
    data = folder / "data-1"
    data.mkdir()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", str(data), "--save", ""]
    process = Process([*command, "--appendonly", "yes", "--appendfsync", "everysec"], folder / "log-1")
    addresses = {1: f"127.0.0.1:{port}"}
    return ready(REDIS.name, {1: process}, addresses, folder, lambda address: _greets(address, b"+PONG", b"PING\r\n"))


def _greets(address: str, expected: bytes, said: bytes = b"") -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1.0) as connection:
            connection.settimeout(5.0)
            connection.sendall(said)
            return receive(connection, len(expected)) == expected
    except (OSError, EOFError):
        return False


NATS = Rival(
    "NATS JetStream",
    "file storage, synced every two minutes",
    _start_nats,
    ("nats-server",),
    "Debian's package is nats-server",
    ("nats-server", "--version"),
)
REDIS = Rival(
    "Redis streams",
    "append-only file, synced every second; all data in memory",
    _start_redis,
    ("redis-server",),
    "Debian's package is redis-server",
    ("redis-server", "--version"),
)

"""A broker whose listeners are secured, and an open one for those who watch it: what the tests of logins share."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.cli import main
from tailrace.testing import Broker
from tests.certificates import Authority
from tests.nodes import free_ports
from tests.real.raw import RawClient
from tests.talkers import MECHANISMS, PASSWORD, USER

PROTOCOLS = {
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "AGAIN": "SASL_PLAINTEXT",
}
_JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
_ASKED_EVERY_SECONDS = 0.005


class Secured(NamedTuple):
    broker: Broker
    ports: dict[str, int]

    @property
    def open_address(self) -> str:
        return f"127.0.0.1:{self.ports['OPEN']}"

    def connect(self, listener: str, *, shakes_hands: bool = True) -> socket.socket:
        """With TLS where the listener has it, unless told otherwise. Nobody checks whom it has reached."""
        plain = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=10)
        if not shakes_hands or not PROTOCOLS[listener].endswith("SSL"):
            return plain
        return client_context().wrap_socket(plain)

    @property
    def memory_bytes(self) -> int:
        """Its own, without what it shares with the page cache."""
        with open(f"/proc/{self.broker.process_id}/status") as status:
            own = next(line for line in status if line.startswith("RssAnon"))
        return int(own.split()[1]) * 1024


def client_context(version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


@contextmanager
def secured_broker(folder: Path, **more: str) -> Iterator[Secured]:
    """It must survive whatever is done to it, without a trace of a bug in its log."""
    authority = Authority(folder)
    own = authority.sign("broker", subject_alt_name="IP:127.0.0.1")
    ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "ssl.keystore.location": str(own.joined()),
        "ssl.truststore.location": str(authority.certificate),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{f"listener.name.{name}.plain.sasl.jaas.config": _JAAS for name in ("login", "both", "again")},
        **{f"listener.name.again.{name.lower()}.connections.max.reauth.ms": "5000" for name in MECHANISMS},
        **{name.replace("_", "."): text for name, text in more.items()},
    }
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(PASSWORD)
    with Broker(settings) as broker:
        secured = Secured(broker, ports)
        for mechanism in (name for name, hash_name in MECHANISMS.items() if hash_name):
            words = ["user", "create", USER, "--password-file", str(secret), "--mechanism", mechanism]
            assert main([*words, "--bootstrap", secured.open_address]) == 0
        yield secured
        log = broker.log()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :]
    assert PASSWORD not in log


class Waits(list[float]):
    """How long a client of the open listener waited for each of its answers, in seconds."""

    def percentile(self, share: float) -> float:
        return sorted(self)[int(len(self) * share)]


@contextmanager
def others(secured: Secured) -> Iterator[Waits]:
    """Somebody who asks all the time, as long as the block lasts: what the loop makes others wait. In a process of its
    own, so that it waits for nobody else."""
    waits = Waits()
    command = [sys.executable, "-m", "tests.real.hostile.secured", secured.open_address]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], **pipes) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "ready\n"
        try:
            yield waits
        finally:
            told, _ = watching.communicate(timeout=30)
    assert watching.returncode == 0, "others were not served"
    waits += map(float, told.split())


def watch(address: str) -> None:
    """Until standard input ends."""
    waits: list[float] = []
    with RawClient(address) as client:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], _ASKED_EVERY_SECONDS)[0]:
            started = time.perf_counter()
            assert client.is_served()
            waits.append(time.perf_counter() - started)
    print(*waits)


def receive_frame(connection: socket.socket) -> bytes | None:
    """None where the broker has closed, or says nothing for as long as the socket waits."""
    try:
        size = _exactly(connection, 4)
        return None if size is None else _exactly(connection, struct.unpack(">i", size)[0])
    except OSError:
        return None


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


if __name__ == "__main__":
    watch(sys.argv[1])

"""A broker with secured listeners, behind real sockets, and clients of ours that call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tailrace.broker.broker import Broker
from tailrace.client.connection import Address, Connection, ConnectionLimits, open_connection
from tailrace.client.security.login import SaslLogin
from tailrace.client.security.settings import parse_security
from tailrace.model.ports import Dialer
from tailrace.real.background import RealBackground
from tailrace.real.ports import real_ports
from tailrace.real.tls.port import RealTls
from tailrace.real.web import RealWeb
from tests.certificates import Authority, Identity
from tests.unit.broker.world import World

PASSWORD = "a-secret-of-alice"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}" user_bob="b";'
LISTENERS = {
    "listeners": "TLS://127.0.0.1:0,LOGIN://127.0.0.1:0,BOTH://127.0.0.1:0,OPEN://127.0.0.1:0",
    "listener.security.protocol.map": "TLS:SSL,LOGIN:SASL_PLAINTEXT,BOTH:SASL_SSL,OPEN:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": JAAS,
    "listener.name.both.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "30",
}
LIMITS = ConnectionLimits(connect_timeout_ms=5000, request_timeout_ms=5000)


class Certificates:
    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "ours")
        self.broker: Identity = self.authority.sign("broker", subject_alt_name="DNS:localhost,IP:127.0.0.1")
        self.alice: Identity = self.authority.sign("alice")
        self.stranger: Identity = Authority(folder / "theirs", "stranger").sign("mallory")


@cache
def certificates() -> Certificates:
    return Certificates(Path(mkdtemp(prefix="tailrace-certificates-")))


def tls_settings() -> dict[str, str]:
    ours = certificates()
    return {
        "ssl.keystore.location": str(ours.broker.joined()),
        "ssl.truststore.location": str(ours.authority.certificate),
    }


def client_settings(listener: str, **more: str) -> dict[str, str]:
    trusted = {"ssl.truststore.location": str(certificates().authority.certificate)}
    alice = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD}
    chosen = {
        "TLS": {"security.protocol": "SSL", **trusted},
        "LOGIN": {"security.protocol": "SASL_PLAINTEXT", **alice},
        "BOTH": {"security.protocol": "SASL_SSL", **trusted, **alice},
        "OPEN": {},
    }[listener]
    return chosen | {name.replace("_", "."): text for name, text in more.items()}


class SecuredWorld(World):
    def __init__(self) -> None:
        super().__init__(background=RealBackground())
        self.ports = replace(self.ports, tls=RealTls(), web=RealWeb())
        self._connections: list[Connection] = []
        self._writers: list[asyncio.StreamWriter] = []

    def port_of(self, listener: str) -> int:
        return next(each.port for each in self.broker.listeners if each.name == listener)

    async def log_in(self, listener: str, settings: dict[str, str] | None = None) -> Connection:
        """Raises KafkaError if it is not let in."""
        ports, login = real_ports(), None
        security = parse_security(client_settings(listener) if settings is None else settings)
        dialer: Dialer = ports.network
        if security.tls is not None:
            tls = RealTls()
            dialer = tls.dialer(dialer, tls.read_identity(security.tls, listens=False))
        if security.sasl is not None:
            login = SaslLogin(security.sasl, ports)
        address = Address("127.0.0.1", self.port_of(listener))
        connection = await open_connection(dialer, address, limits=LIMITS, login=login)
        self._connections.append(connection)
        return connection

    async def call_raw(self, listener: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raw = await asyncio.open_connection("127.0.0.1", self.port_of(listener))
        self._writers.append(raw[1])
        return raw

    @property
    def principals(self) -> list[str]:
        """Of those who were let in, in order of arrival."""
        return [str(each.principal) for acceptor in self.broker.acceptors for each in acceptor.connections]  # type: ignore[attr-defined]

    @property
    def at_the_door_count(self) -> int:
        return sum(len(each._at_the_door) for each in self.broker.acceptors)

    async def wait_nobody_at_the_door(self) -> None:
        async with asyncio.timeout(5):
            while self.at_the_door_count:
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def secured(files: Mapping[str, bytes] = {}, **settings: str) -> AsyncIterator[SecuredWorld]:
    """`files` lie on its disk beforehand."""
    world = SecuredWorld()
    for path, data in files.items():
        world.disk.make_folder(path.rpartition("/")[0])
        world.disk.replace(path, data)
    given = {name.replace("__", "-").replace("_", "."): text for name, text in settings.items()}
    broker: Broker = await world.start(LISTENERS | tls_settings() | given)
    try:
        yield world
    finally:
        await world.close()
        await broker.stop()
        world.ports.background.close()

"""A cluster whose listeners ask who comes, under faults: nodes show certificates to each other and log in to
controllers, users come and go, and strangers try every port.

guests     log in by SCRAM over TLS as users, with a password that is theirs, was theirs, or never was; and as nobody,
           who does not exist
operator   sets, changes and deletes the credentials of users. One whose change may still be under way is left alone
stranger   asks something at each guarded port without a login, or with a certificate that nobody has signed

What is checked
- Whoever is let in had that password, by the credentials that the node had at some moment of the login; whoever is
  refused had not.
- Nobody is answered without a login.
- A change of a credential that was confirmed is there at the end.

What credentials a node had and when is noted after each of its turns (`look`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tailrace.client.connection import Address, ConnectionLimits, open_connection
from tailrace.client.metadata import Cluster
from tailrace.client.security.login import SaslLogin
from tailrace.client.security.settings import Mechanism, SaslSettings
from tailrace.client.security.users import delete_credential, set_credential
from tailrace.controller.security.credentials import derive_keys, salt_password
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Dialer, Ports, Stream
from tailrace.model.security import ClientAuth, ScramMechanism, Store, TlsSettings
from tailrace.sim.checks.history import demand
from tailrace.sim.clients.workload import Clients
from tailrace.sim.cluster import CONTROLLER_LISTENER, CONTROLLER_PORT, Node, SimCluster, World
from tailrace.sim.doors.tls import SimTls
from tailrace.sim.random import SimRandom
from tailrace.sim.rights.rights import GUARDED_LISTENER, GUARDED_PORT
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse
from tailrace.wire.apis.quorum import DescribeQuorumRequest
from tailrace.wire.frame import encode_request

_NODES, _NODES_PORT = "NODES", 9096
DOOR, _DOOR_PORT = "DOOR", 9097
_AUTHORITY = "ours"
_USERS_COUNT = 2
_PASSWORDS = ("first", "second")
_NOBODY = "nobody"
_SCRAM = ScramMechanism.SCRAM_SHA_256
_NODE, _NODE_PASSWORD = "node", "simulated"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_LIMITS = ConnectionLimits(connect_timeout_ms=1500, request_timeout_ms=3000)
_TRY_PAUSE_SECONDS = 0.3
_CHANGE_PAUSE_SECONDS = 1.0
# How long a stranger waits for an answer that must not come.
_ANSWER_SECONDS = 1.0
_HEARD_SECONDS = 1.0


def door_settings(role: str) -> dict[str, str]:
    """Over those of rights."""
    protocols = {"PLAINTEXT": "PLAINTEXT", CONTROLLER_LISTENER: "SASL_PLAINTEXT"}
    listener = CONTROLLER_LISTENER.lower()
    settings = {
        "super.users": f"User:ANONYMOUS;User:{_NODE};User:CN=node",
        "ssl.keystore.location": f"{_AUTHORITY}/CN=node",
        "ssl.truststore.location": _AUTHORITY,
        f"listener.name.{listener}.plain.sasl.jaas.config": (
            f'{_PLAIN} username="{_NODE}" password="{_NODE_PASSWORD}" user_{_NODE}="{_NODE_PASSWORD}";'
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "connection.login.max.ms": "3000",
    }
    protocols |= {GUARDED_LISTENER: "SASL_PLAINTEXT", _NODES: "SSL", DOOR: "SASL_SSL"}
    settings["listener.security.protocol.map"] = ",".join(f"{each}:{text}" for each, text in protocols.items())
    if "broker" in role:
        settings |= {
            "inter.broker.listener.name": _NODES,
            f"listener.name.{_NODES.lower()}.ssl.client.auth": "required",
            f"listener.name.{DOOR.lower()}.sasl.enabled.mechanisms": _SCRAM.mechanism_name,
        }
    return settings


def door_listeners(name: str) -> list[str]:
    return [f"{_NODES}://{name}:{_NODES_PORT}", f"{DOOR}://{name}:{_DOOR_PORT}"]


def node_login(ports: Ports) -> SaslLogin:
    """As whom nodes come to controllers."""
    return SaslLogin(SaslSettings(Mechanism.PLAIN, username=_NODE, password=_NODE_PASSWORD), ports)


class Doors:
    """`start` it when the cluster is ready."""

    def __init__(self, world: World, cluster: SimCluster, clients: Clients, random: SimRandom) -> None:
        self.let_in_count = self.refused_count = self.unanswered_count = 0
        self._world = world
        self._cluster = cluster
        self._clients = clients
        self._random = random
        self._tls = SimTls(random.fork())
        for node in cluster.nodes:
            node.tls = SimTls(random.fork())
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        # By node: since when it has had which passwords of users, and the map of its image that they were taken from.
        self._known: dict[str, list[tuple[float, dict[str, str]]]] = {}
        self._seen: dict[str, object] = {}
        self._passwords: dict[bytes, str] = {}  # By salt and stored key, of all that were ever looked at.
        self._confirmed: dict[str, str | None] = {}  # None: confirmed not to be there.
        self._users = [f"user-{number}" for number in range(_USERS_COUNT)]  # Those who are changed come last.

    def look(self, node: Node) -> None:
        quorum = getattr(node.broker, "quorum", None)
        if quorum is not None and self._seen.get(node.name) is not quorum.image.scram_credentials:
            self._seen[node.name] = quorum.image.scram_credentials
            passwords = self._read(quorum.image.scram_credentials)
            self._known.setdefault(node.name, []).append((self._world.loop.now, passwords))

    def _read(self, credentials: Mapping[tuple[str, int], Any]) -> dict[str, str]:
        found = {}
        for (user, _mechanism), credential in credentials.items():
            mark = credential.salt + credential.stored_key
            if mark not in self._passwords:
                for password in _PASSWORDS:
                    salted = salt_password(_SCRAM, password, credential.salt, credential.iterations)
                    if derive_keys(_SCRAM, salted).stored_key == credential.stored_key:
                        self._passwords[mark] = password
            found[user] = self._passwords[mark]
        return found

    async def start(self) -> None:
        for name, work in (("users-admin", self._change), ("guest-1", self._come), ("guest-2", self._come)):
            process, cluster = self._clients.connect(name)
            self._tasks.append(process.spawn(work(cluster), name=name))
        process, cluster = self._clients.connect("stranger")
        self._tasks.append(process.spawn(self._intrude(cluster), name="stranger"))

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Once all is healed. What was confirmed is so in the images of all brokers."""
        self._is_stopping = True
        _done, pending = await asyncio.wait(self._tasks, timeout=60)
        demand(not pending, "those who come to the doors end in time")
        self.check()
        await asyncio.sleep(_HEARD_SECONDS)
        for user, password in self._confirmed.items():
            for node in self._cluster.brokers:
                assert node.broker is not None, "all is healed"
                found = self._read(node.broker.image.scram_credentials).get(user)
                demand(found == password, "a confirmed change of a user stays", user=user, node=node.name, found=found)

    def story(self) -> str:
        return f", {self.let_in_count} let in, {self.refused_count} refused at the door"

    # ---- the operator

    async def _change(self, cluster: Cluster) -> None:
        while not self._is_stopping:
            await asyncio.sleep(self._random.between(0, 2 * _CHANGE_PAUSE_SECONDS))
            user = self._random.choice(self._users[-_USERS_COUNT:])
            password = None if self._random.random() < 0.3 else self._random.choice(_PASSWORDS)
            if password is None and self._confirmed.get(user) is None:
                continue
            self._confirmed.pop(user, None)
            try:
                if password is None:
                    await delete_credential(cluster, user, _SCRAM)
                else:
                    await set_credential(cluster, user, _SCRAM, password, salt=self._random.uuid())
                self._confirmed[user] = password
            except KafkaError:
                # It may be made at any time from then on, before or after the next change.
                self._users.remove(user)
                self._users = [user, *self._users, f"user-{len(self._users) + 1}"]
        cluster.close()

    # ---- the users

    async def _come(self, cluster: Cluster) -> None:
        while not self._is_stopping:
            await asyncio.sleep(self._random.between(0, 2 * _TRY_PAUSE_SECONDS))
            node = self._random.choice(self._cluster.brokers)
            user = _NOBODY if self._random.random() < 0.2 else self._random.choice(self._users[-2 * _USERS_COUNT :])
            password = self._random.choice(_PASSWORDS)
            login = SaslLogin(SaslSettings(Mechanism.SCRAM_SHA_256, username=user, password=password), cluster.ports)
            since = self._world.loop.now
            try:
                connection = await open_connection(
                    self._dialer(cluster, f"{_AUTHORITY}/CN=guest"),
                    Address(node.name, _DOOR_PORT),
                    client_id=user,
                    limits=_LIMITS,
                    login=login,
                )
            except KafkaError as error:
                if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                    self._judge(node, since, user, password, was_refused=True)
                continue
            self._judge(node, since, user, password, was_refused=False)
            try:
                await connection.call(MetadataRequest(topics=[]), MetadataResponse)
            except KafkaError:
                pass
            connection.close()
        cluster.close()

    def _judge(self, node: Node, since: float, user: str, password: str, *, was_refused: bool) -> None:
        self.refused_count += was_refused
        self.let_in_count += not was_refused
        known = self._known.get(node.name, [])
        states = [state for time, state in known if time <= since][-1:] + [
            state for time, state in known if time > since
        ]
        verdicts = {state.get(user) == password for state in states} or {False}
        promise = "nobody is refused who has the password" if was_refused else "nobody is let in without the password"
        demand((not was_refused) in verdicts, promise, node=node.name, user=user, since=f"{since:.3f}")

    # ---- the stranger

    async def _intrude(self, cluster: Cluster) -> None:
        quorum = DescribeQuorumRequest(topics=[])
        while not self._is_stopping:
            await asyncio.sleep(self._random.between(0, 2 * _TRY_PAUSE_SECONDS))
            node = self._random.choice(self._cluster.nodes)
            is_controller = not node.is_broker or (node.is_controller and self._random.random() < 0.3)
            port = CONTROLLER_PORT if is_controller else self._random.choice((GUARDED_PORT, _NODES_PORT, _DOOR_PORT))
            dialer: Dialer = cluster.ports.network
            if port in (_NODES_PORT, _DOOR_PORT) and self._random.random() < 0.8:
                # With a certificate of nobody, or none. At the door of users it is asked for neither.
                certificate = self._random.choice(("-", "theirs/CN=node"))
                dialer = self._dialer(cluster, "-" if port == _DOOR_PORT else certificate)
            message = self._random.choice((MetadataRequest(topics=None), quorum))
            frame = encode_request(message.api_key, 0 if message is quorum else 4, 1, "stranger", message)
            try:
                async with asyncio.timeout(2):
                    stream = await dialer.connect(node.name, port)
            except (OSError, TimeoutError):
                continue
            answer = await _ask(stream, b"".join(bytes(part) for part in frame))  # type: ignore[arg-type] # Bytes only.
            demand(not answer, "nobody is answered without a login", node=node.name, port=port)
            self.unanswered_count += 1
        cluster.close()

    def _dialer(self, cluster: Cluster, certificate: str) -> Dialer:
        settings = TlsSettings(
            authorities=Store("", path=_AUTHORITY),
            certificates=Store("", path=certificate),
            client_auth=ClientAuth.NONE,
        )
        return self._tls.dialer(cluster.ports.network, self._tls.read_identity(settings, listens=False))


async def _ask(stream: Stream, frame: bytes) -> bytes:
    """What is answered; nothing, as it should be."""
    buffer, heard = memoryview(bytearray(100)), b""
    deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
    try:
        stream.send([frame])
        while not heard and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
            try:
                count = stream.recv_into(buffer)
            except BlockingIOError:
                continue
            if not count:
                break
            heard += buffer[:count]
    except OSError:
        pass
    finally:
        stream.close()
    return heard

"""ACLs that an operator gives and takes during faults, and somebody who tries all the time what they allow.

`alice` logs in by SASL on a listener of its own. She writes, describes and creates at one broker after the other; and
Envelopes that name her are sent to controllers, as a broker would send them. Nodes and the operator do not log in, and
are super users.

What is checked
- Whoever is let through was allowed to, by the ACLs that the node which judged had at some moment of the request.
- Whoever is refused was not, at some moment of it.
- A change of an ACL that was confirmed is there at the end.

What ACLs a node had and when is noted after each of its turns (`look`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.admin import Admin
from tailrace.client.connection import Address, Connection, ConnectionLimits, open_connection
from tailrace.client.metadata import Cluster
from tailrace.client.security.login import SaslLogin
from tailrace.client.security.settings import Mechanism, SaslSettings
from tailrace.controller.security.authorizer import Resource
from tailrace.model.acls import WILDCARD, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.config import STANDARD_AUTHORIZER
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Network, Ports
from tailrace.model.security import Principal
from tailrace.sim.checks.history import demand
from tailrace.sim.cluster import CONTROLLER_PORT, Node, SimCluster, World
from tailrace.sim.random import SimRandom
from tailrace.sim.rights.model import is_allowed
from tailrace.wire.apis.admin import CreateTopicsRequest, CreateTopicsResponse
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse
from tailrace.wire.apis.quorum import EnvelopeRequest, EnvelopeResponse
from tailrace.wire.frame import decode_response, encode_request
from tailrace.wire.principals import encode_principal
from tailrace.wire.records import build_batch

if TYPE_CHECKING:
    from tailrace.sim.clients.workload import Clients

GUARDED_PORT = 9095
GUARDED_LISTENER = "GUARDED"
_TOPIC, _NEW_TOPIC = "guarded", "made-up"
_WHO = Principal("User", "alice")
_PASSWORD = "simulated"  # noqa: S105 - of nobody
_SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
_BROKER_SETTINGS = {
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{GUARDED_LISTENER}:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    f"listener.name.{GUARDED_LISTENER.lower()}.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{_PASSWORD}";'
    ),
    "inter.broker.listener.name": "PLAINTEXT",
}
_LIMITS = ConnectionLimits(connect_timeout_ms=1000, request_timeout_ms=3000)
# How long a broker that is well may take to hear of a change.
_HEARD_SECONDS = 1.0
_TRY_PAUSE_SECONDS = 0.15
_CHANGE_PAUSE_SECONDS = 0.4
_CREATION_VERSION = 7
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# The topic is not known yet where it was asked for: nobody was judged.
_UNJUDGED = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_HOST = "10.1.2.3"
_HOST_BYTES = bytes([10, 1, 2, 3])

Attempt = Callable[["_Asker", Node], Coroutine[Any, Any, None]]


def rights_settings(role: str) -> dict[str, str]:
    return _SETTINGS | (_BROKER_SETTINGS if "broker" in role else {})


class Rights:
    """`start` it when the cluster is ready."""

    def __init__(
        self,
        world: World,
        cluster: SimCluster,
        clients: Clients,
        random: SimRandom,
        *,
        node_login: Callable[[Ports], SaslLogin | None] = lambda _ports: None,
    ) -> None:
        """`node_login` where nodes log in to controllers."""
        self.node_login = node_login
        self.tried_count = self.refused_count = 0
        self._world = world
        self._cluster = cluster
        self._clients = clients
        self._random = random
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        # By node: since when it has had which ACLs, and the map of its image that they were taken from.
        self._known: dict[str, list[tuple[float, tuple[Acl, ...]]]] = {}
        self._seen: dict[str, object] = {}
        # True: confirmed to be there; False: not to be there.
        self._confirmed: dict[Acl, bool] = {}
        self._given: list[Acl] = []  # In the order in which they were tried to be given.
        self._unknown: set[Acl] = set()  # A change of it failed, and may be made at any time from then on.

    def look(self, node: Node) -> None:
        quorum = getattr(node.broker, "quorum", None)
        if quorum is not None and self._seen.get(node.name) is not quorum.image.acls:
            acls = self._seen[node.name] = quorum.image.acls
            self._known.setdefault(node.name, []).append((self._world.loop.now, tuple(acls.values())))

    async def start(self) -> None:
        process, cluster = self._clients.connect("rights-admin")
        topic_id = await process.spawn(self._create_topic(cluster), name="rights-admin")
        self._tasks.append(process.spawn(self._change(cluster), name="giver"))
        for name in ("alice-1", "alice-2"):
            process, own = self._clients.connect(name)
            asker = _Asker(self, own, self._random.fork(), topic_id)
            self._tasks.append(process.spawn(asker.run(), name=name))

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def stop(self) -> None:
        """Once all is healed. What was confirmed is so in the images of all brokers."""
        self._is_stopping = True
        _done, pending = await asyncio.wait(self._tasks, timeout=30)
        demand(not pending, "those who try their rights end in time")
        self.check()
        await asyncio.sleep(_HEARD_SECONDS)
        for acl, is_there in self._confirmed.items():
            for node in self.brokers:
                assert node.broker is not None, "all is healed"
                demand(
                    (acl in node.broker.image.acl_ids) == is_there,
                    "a confirmed change of an ACL stays",
                    acl=acl,
                    is_there=is_there,
                    node=node.name,
                )

    def story(self) -> str:
        return f", {self.tried_count} tried, {self.refused_count} refused"

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def now(self) -> float:
        return self._world.loop.now

    @property
    def brokers(self) -> Sequence[Node]:
        return self._cluster.brokers

    @property
    def controllers(self) -> Sequence[Node]:
        return [node for node in self._cluster.nodes if node.is_controller]

    # ---- the operator

    async def _create_topic(self, cluster: Cluster) -> bytes:
        return (await Admin(cluster).create_topic(_TOPIC, partition_count=1)).id

    async def _change(self, cluster: Cluster) -> None:
        admin = AclAdmin(cluster)
        while not self._is_stopping:
            await asyncio.sleep(self._random.between(0, 2 * _CHANGE_PAUSE_SECONDS))
            is_given = self._random.random() < 0.5 or not self._given
            acl = self._choose() if is_given else self._random.choice(self._given)
            self._confirmed.pop(acl, None)
            if is_given:
                self._given.append(acl)
            else:
                self._given.remove(acl)
            try:
                if is_given:
                    await admin.create([acl])
                else:
                    await admin.delete(AclFilter(*acl))
            except KafkaError:
                self._unknown.add(acl)
                continue
            if acl not in self._unknown:
                self._confirmed[acl] = is_given
        cluster.close()

    def _choose(self) -> Acl:
        name, pattern_type = self._random.choice(
            (
                (_TOPIC, PatternType.LITERAL),
                (_NEW_TOPIC, PatternType.LITERAL),
                (_TOPIC[:3], PatternType.PREFIXED),
                (WILDCARD, PatternType.LITERAL),
            )
        )
        return Acl(
            Kind.TOPIC,
            name,
            pattern_type,
            str(_WHO),
            WILDCARD,
            self._random.choice((Operation.WRITE, Operation.DESCRIBE, Operation.CREATE, Operation.ALL)),
            Permission.DENY if self._random.random() < 0.25 else Permission.ALLOW,
        )

    # ---- the checks

    def judge(self, node: Node, since: float, operation: Operation, name: str, *, was_refused: bool) -> None:
        """An answer has come from a node, to a request that was sent at `since`."""
        self.tried_count += 1
        self.refused_count += was_refused
        known = self._known.get(node.name, [])
        before = [acls for time, acls in known if time <= since][-1:]
        during = [acls for time, acls in known if time > since]
        resource = Resource(Kind.TOPIC, name)
        verdicts = {is_allowed(acls, str(_WHO), _HOST, operation, resource) for acls in (*before, *during)}
        promise = (
            "nobody is refused what all ACLs allowed" if was_refused else "nothing is done that no ACL has allowed"
        )
        demand(
            (not was_refused) in verdicts,
            promise,
            node=node.name,
            operation=operation.name,
            topic=name,
            since=f"{since:.3f}",
            now=f"{self.now:.3f}",
        )


class _Asker:
    """A client that is alice, at all brokers in turn; and one that speaks of her to controllers."""

    def __init__(self, rights: Rights, cluster: Cluster, random: SimRandom, topic_id: bytes) -> None:
        self._rights = rights
        self._network: Network = cluster.ports.network
        self._random = random
        self._topic_id = topic_id
        settings = SaslSettings(Mechanism.PLAIN, username=_WHO.name, password=_PASSWORD)
        self._login = SaslLogin(settings, cluster.ports)
        self._node_login = rights.node_login(cluster.ports)
        self._connections: dict[tuple[str, int], Connection] = {}

    async def run(self) -> None:
        attempts: list[Attempt] = [_Asker._write, _Asker._write, _Asker._describe, _Asker._create, _Asker._envelope]
        while not self._rights.is_stopping:
            await asyncio.sleep(self._random.between(0, 2 * _TRY_PAUSE_SECONDS))
            attempt = self._random.choice(attempts)
            is_envelope = attempt is _Asker._envelope
            node = self._random.choice(list(self._rights.controllers if is_envelope else self._rights.brokers))
            try:
                await attempt(self, node)
            except KafkaError:
                self._forget(node)
        for connection in self._connections.values():
            connection.close()

    async def _connect(self, node: Node, port: int = GUARDED_PORT) -> Connection:
        place = node.name, port
        if place not in self._connections:
            login = self._login if port == GUARDED_PORT else self._node_login
            self._connections[place] = await open_connection(
                self._network, Address(node.name, port), client_id=_WHO.name, limits=_LIMITS, login=login
            )
        return self._connections[place]

    def _forget(self, node: Node) -> None:
        for place in [place for place in self._connections if place[0] == node.name]:
            self._connections.pop(place).close()

    async def _write(self, node: Node) -> None:
        """Several in a row, so that the broker takes the short way with the later ones."""
        connection = await self._connect(node)
        batch = build_batch([(0, 1_767_225_600_000, None, b"guarded", ())])
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=_TOPIC, topic_id=self._topic_id, partition_data=[data])
        for _ in range(1 + self._random.randrange(4)):
            since = self._rights.now
            request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
            answer = await connection.call(request, ProduceResponse)
            code = answer.responses[0].partition_responses[0].error_code
            if code not in _UNJUDGED:
                self._rights.judge(node, since, Operation.WRITE, _TOPIC, was_refused=code == _REFUSED)

    async def _describe(self, node: Node) -> None:
        connection, since = await self._connect(node), self._rights.now
        asked = MetadataRequest.MetadataRequestTopic(name=_TOPIC)
        request = MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
        (topic,) = (await connection.call(request, MetadataResponse)).topics
        self._rights.judge(node, since, Operation.DESCRIBE, _TOPIC, was_refused=topic.error_code == _REFUSED)

    async def _create(self, node: Node) -> None:
        """Judged by the broker, and again by the controller: so a refusal may be either's."""
        connection, since = await self._connect(node), self._rights.now
        (topic,) = (await connection.call(_creation(), CreateTopicsResponse)).topics
        if topic.error_code != _REFUSED:
            self._rights.judge(node, since, Operation.CREATE, _NEW_TOPIC, was_refused=False)

    async def _envelope(self, node: Node) -> None:
        connection, since = await self._connect(node, CONTROLLER_PORT), self._rights.now
        request = _creation()
        frame = encode_request(request.api_key, _CREATION_VERSION, 1, "broker", request)
        answer = await connection.call(
            EnvelopeRequest(
                request_data=b"".join(bytes(part) for part in frame)[4:],  # type: ignore[arg-type] # Bytes only.
                request_principal=encode_principal(_WHO),
                client_host_address=_HOST_BYTES,
            ),
            EnvelopeResponse,
        )
        if not answer.error_code:
            _, inner = decode_response(request.api_key, _CREATION_VERSION, answer.response_data or b"")
            assert isinstance(inner, CreateTopicsResponse), "what is inside answers what was inside"
            was_refused = inner.topics[0].error_code == _REFUSED
            self._rights.judge(node, since, Operation.CREATE, _NEW_TOPIC, was_refused=was_refused)


def _creation() -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(name=_NEW_TOPIC, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)

"""Several whole brokers of the simulator, and peers that can say anything to them; the test is the world's process.

Every test of it is `simulated`: it runs on a loop of its own, in virtual time. What the tests ask of a node is in
`tailrace.sim.cluster.Node`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from tailrace.broker.broker import Broker
from tailrace.model.ids import Uuid, parse_uuid
from tailrace.sim.cluster import CLIENT_PORT, CONTROLLER_LISTENER, CONTROLLER_PORT, Node, SimCluster, World
from tailrace.sim.loop import SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom
from tailrace.sim.trace import Trace
from tests.unit.broker.world import Peer
from tests.unit.simulated import StreamWriter, simulated

__all__ = ["ClusterWorld", "running_cluster", "simulated"]

PATIENCE_SECONDS = 30.0
LISTENER_PORTS = {"PLAINTEXT": CLIENT_PORT, CONTROLLER_LISTENER: CONTROLLER_PORT, "REPLICAS": 9094}
LISTENER_PORTS |= {"LOGIN": 9095, "SESSIONS": 9096}  # Where the settings name them.
_FOLDER = "data"
_CLIENT_HOST = "client"
# Short times, so that a death is noticed soon.
QUICK = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.fetch.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "200",
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "1500",
    "replica.lag.time.max.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


class ClusterWorld:
    def __init__(self, roles: list[str], settings: dict[str, str]) -> None:
        """With inter.broker.listener.name among the settings, brokers have a listener of that name besides."""
        loop, random = cast(SimLoop, asyncio.get_running_loop()), SimRandom(1)
        self.network = SimNetwork(loop, random.fork())
        self.peers: list[Peer] = []
        self._world = World(loop, self.network, random, Trace(loop))
        self._settings = settings
        self._client_listeners = dict.fromkeys(("PLAINTEXT", settings.get("inter.broker.listener.name", "PLAINTEXT")))
        self._servers = ",".join(
            f"{_host(node_id)}:{CONTROLLER_PORT}" for node_id, text in enumerate(roles, 1) if "controller" in text
        )
        self.nodes = {node_id: self._make(node_id, text) for node_id, text in enumerate(roles, 1)}
        self._cluster = SimCluster(self._world, list(self.nodes.values()))
        self._cluster.format()

    def _make(self, node_id: int, roles: str) -> Node:
        names = [*self._client_listeners] if "broker" in roles else []
        names += [CONTROLLER_LISTENER] if "controller" in roles else []
        values = {
            "node.id": str(node_id),
            "process.roles": roles,
            "listeners": ",".join(f"{name}://{_host(node_id)}:{LISTENER_PORTS[name]}" for name in names),
            "controller.listener.names": CONTROLLER_LISTENER,
            "controller.quorum.bootstrap.servers": self._servers,
            "log.dirs": _FOLDER,
            **QUICK,
            **self._settings,
        }
        return Node(self._world, _host(node_id), values)

    def add(self, roles: str) -> Node:
        """A node that joins later; a controller among them is no voter yet."""
        node_id = len(self.nodes) + 1
        node = self.nodes[node_id] = self._make(node_id, roles)
        self._cluster.wipe(node)
        return node

    def wipe(self, node_id: int) -> None:
        """A new disk, which knows its cluster and nothing else."""
        self._cluster.wipe(self.nodes[node_id])

    @property
    def loop(self) -> SimLoop:
        return self._world.loop

    @property
    def cluster_id(self) -> str:
        return self._cluster.cluster_id

    def directory_id(self, node: Node) -> Uuid:
        return parse_uuid(self._cluster.directory_ids[node.name, _FOLDER])

    async def start(self, node_id: int) -> Broker:
        node = self.nodes[node_id]
        node.start()
        await self.wait(lambda: node.is_ready or not node.is_up, f"node {node_id} is ready")
        if node.refusal is not None:
            raise node.refusal
        assert node.broker is not None
        return node.broker

    async def start_all(self) -> None:
        await asyncio.gather(*(self.start(node_id) for node_id in self.nodes))

    async def stop(self, node_id: int) -> None:
        await self.nodes[node_id].stop()

    async def stop_all(self) -> None:
        """Brokers first: they hand over to each other as long as there is a controller."""
        for is_last in (False, True):
            nodes = [node for node in self.nodes.values() if node.is_broker is not is_last]
            await asyncio.gather(*(node.stop() for node in nodes))

    async def kill(self, node_id: int) -> None:
        self.nodes[node_id].kill()

    @property
    def running(self) -> list[Broker]:
        return [node.broker for node in self.nodes.values() if node.broker is not None]

    @property
    def active(self) -> Broker:
        return next(broker for broker in self.running if broker.quorum.is_active)

    async def connect(self, node_id: int, listener: str = "PLAINTEXT", *, host: str = _CLIENT_HOST) -> Peer:
        """`host` is where the client is."""
        port = self.network.port(host, self._world.loop.world)
        stream = await port.connect(_host(node_id), LISTENER_PORTS[listener])
        reader = asyncio.StreamReader()
        self.peers.append(Peer(reader, cast(asyncio.StreamWriter, StreamWriter(stream, reader))))
        return self.peers[-1]

    async def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            lines = "\n".join(self._world.trace.lines)
            raise AssertionError(f"waited in vain until {what}\n{lines}") from None

    def check(self) -> None:
        assert [node.failure for node in self.nodes.values()] == [None] * len(self.nodes)


@asynccontextmanager
async def running_cluster(*roles: str, settings: dict[str, str] | None = None) -> AsyncIterator[ClusterWorld]:
    world = ClusterWorld(list(roles or ("broker,controller",) * 3), settings or {})
    await world.start_all()
    yield world
    for peer in world.peers:
        await peer.close()
    await world.stop_all()
    world.check()


def _host(node_id: int) -> str:
    return f"node-{node_id}"

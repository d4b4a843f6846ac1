"""Several brokers in one process, each on a disk of its own, that speak to each other over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from socket import socket
from typing import Any

from tailrace.broker.broker import Broker
from tailrace.broker.quorum.snapshots import store_bootstrap_snapshot
from tailrace.log.checkpoints import write_meta_properties
from tailrace.model.config import parse_broker_config
from tailrace.model.ids import Uuid, uuid_text
from tailrace.model.ports import Listener, Ports, Stream
from tailrace.real.clock import RealClock
from tailrace.real.network import RealNetwork
from tailrace.sim.background import SimBackground
from tailrace.sim.disk import SimDisk
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.stored import VotersRecord
from tests.unit.broker.world import Peer

CLUSTER_ID = "clusterclusterclusterA"
PATIENCE_SECONDS = 15.0
# Short times, so that a death is noticed soon; long enough for a busy machine.
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


class CutNetwork:
    """The real network of one node, until the node is cut off from it."""

    def __init__(self) -> None:
        self._network = RealNetwork()
        self._open: list[Stream | Listener] = []
        self._is_cut = False

    async def listen(self, host: str, port: int, accept: Callable[[Stream], None], **sizes: Any) -> Listener:
        def take(stream: Stream) -> None:
            self._open.append(stream)
            accept(stream)

        listener = await self._network.listen(host, port, take, **sizes)
        self._open.append(listener)
        return listener

    async def connect(self, host: str, port: int) -> Stream:
        if self._is_cut:
            raise ConnectionRefusedError
        stream = await self._network.connect(host, port)
        self._open.append(stream)
        return stream

    def cut(self) -> None:
        self._is_cut = True
        for each in self._open:
            each.close()


class Node:
    """What outlives a broker: its disk, its ports and its settings."""

    def __init__(self, node_id: int, roles: str, ports: dict[str, int]) -> None:
        self.node_id = node_id
        self.roles = roles
        self.listener_ports = ports
        self.directory_id = Uuid(bytes(12) + (1000 + node_id).to_bytes(4, "big"))
        self.clock = RealClock()
        self.disk = SimDisk(self.clock)
        self.random = SimRandom(node_id)
        self.broker: Broker | None = None
        self.network = CutNetwork()

    def connect_ports(self) -> Ports:
        """For a new process on this node."""
        self.network = CutNetwork()
        return Ports(
            clock=self.clock,
            random=self.random,
            disk=self.disk,
            network=self.network,
            background=SimBackground(),
        )

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


class ClusterWorld:
    def __init__(self, roles: list[str], settings: dict[str, str]) -> None:
        """With inter.broker.listener.name among the settings, brokers have a listener of that name besides."""
        self.settings = settings
        self._client_listeners = dict.fromkeys(("PLAINTEXT", settings.get("inter.broker.listener.name", "PLAINTEXT")))
        self.nodes: dict[int, Node] = {}
        for node_id, text in enumerate(roles, 1):
            names = [*self._client_listeners] if "broker" in text else []
            names += ["CONTROLLER"] if "controller" in text else []
            self.nodes[node_id] = Node(node_id, text, dict(zip(names, _free_ports(len(names)), strict=True)))
        self.peers: list[Peer] = []
        self._dead: list[Broker] = []
        for node in self.nodes.values():
            self.format(node)

    def add(self, roles: str) -> Node:
        """A node that joins later; a controller among them is no voter yet."""
        node_id = len(self.nodes) + 1
        names = [*self._client_listeners] if "broker" in roles else []
        names += ["CONTROLLER"] if "controller" in roles else []
        node = self.nodes[node_id] = Node(node_id, roles, dict(zip(names, _free_ports(len(names)), strict=True)))
        _write_identity(node)
        return node

    def wipe(self, node_id: int) -> None:
        """A new disk, which knows its cluster and nothing else."""
        node = self.nodes[node_id]
        node.disk = SimDisk(node.clock)
        node.directory_id = Uuid(node.random.uuid())
        _write_identity(node)

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_controller]

    def format(self, node: Node) -> None:
        _write_identity(node)
        voters = [
            VotersRecord.Voter(
                voter_id=each.node_id,
                voter_directory_id=each.directory_id,
                endpoints=[
                    VotersRecord.Endpoint(name="CONTROLLER", host="127.0.0.1", port=each.listener_ports["CONTROLLER"])
                ],
                kraft_version_feature=VotersRecord.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            )
            for each in self.controllers
        ]
        if node.is_controller:
            store_bootstrap_snapshot(node.disk, "data/__cluster_metadata-0", voters, timestamp_ms=0)

    async def start(self, node_id: int) -> Broker:
        node = self.nodes[node_id]
        servers = ",".join(f"127.0.0.1:{each.listener_ports['CONTROLLER']}" for each in self.controllers)
        values = {
            "node.id": str(node_id),
            "process.roles": node.roles,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in node.listener_ports.items()),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "log.dirs": "data",
            **QUICK,
            **self.settings,
        }
        broker = Broker(parse_broker_config(values), node.connect_ports())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await broker.start()
        node.broker = broker
        return broker

    async def start_all(self) -> None:
        await asyncio.gather(*(self.start(node_id) for node_id in self.nodes))

    async def stop(self, node_id: int) -> None:
        broker, self.nodes[node_id].broker = self.nodes[node_id].broker, None
        if broker is not None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await broker.stop()

    async def stop_all(self) -> None:
        """Brokers first: they hand over to each other as long as there is a controller."""
        for is_last in (False, True):
            nodes = [node.node_id for node in self.nodes.values() if (node.roles == "controller") == is_last]
            await asyncio.gather(*map(self.stop, nodes))

    async def kill(self, node_id: int) -> None:
        """Nothing that it does from now on reaches its disk or its peers."""
        node = self.nodes[node_id]
        assert node.broker is not None
        node.network.cut()
        node.disk.crash()
        self._dead.append(node.broker)
        node.broker = None

    async def bury(self) -> None:
        """Ends the tasks of those that were killed, which know nothing of it."""
        for broker in self._dead:
            broker.lifecycle = None
            await broker.stop()

    @property
    def running(self) -> list[Broker]:
        return [node.broker for node in self.nodes.values() if node.broker is not None]

    @property
    def active(self) -> Broker:
        return next(broker for broker in self.running if broker.quorum.is_active)

    async def connect(self, node_id: int) -> Peer:
        port = self.nodes[node_id].listener_ports["PLAINTEXT"]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self.peers.append(Peer(reader, writer))
        return self.peers[-1]

    async def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"waited in vain until {what}") from None


@asynccontextmanager
async def running_cluster(*roles: str, settings: dict[str, str] | None = None) -> AsyncIterator[ClusterWorld]:
    world = ClusterWorld(list(roles or ("broker,controller",) * 3), settings or {})
    try:
        await world.start_all()
        yield world
    finally:
        for peer in world.peers:
            await peer.close()
        await world.bury()
        await world.stop_all()


def _write_identity(node: Node) -> None:
    node.disk.make_folder("data")
    write_meta_properties(
        node.disk,
        "data",
        {
            "version": "1",
            "cluster.id": CLUSTER_ID,
            "node.id": str(node.node_id),
            "directory.id": uuid_text(node.directory_id),
        },
    )


def _free_ports(count: int) -> list[int]:
    """Taken together, so that they differ; voters name their addresses before they listen."""
    sockets = [socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports

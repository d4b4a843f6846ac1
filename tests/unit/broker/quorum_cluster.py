"""Several nodes of a metadata quorum under virtual time: voters and observers that call each other without sockets.

Loop, clocks, disks and helper threads are the simulator's. Its whole nodes (`cluster_world`) would not do: a process
ends when its metadata log fails, where these tests look at what the quorum does then, and brokers that register and
send heartbeats would write to the log beside the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from tailrace.broker.quorum.quorum import Quorum
from tailrace.broker.quorum.snapshots import store_bootstrap_snapshot
from tailrace.controller.image import MetadataImage
from tailrace.model.config import BrokerConfig, Endpoint
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.model.ports import Ports
from tailrace.sim.background import SlowBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.cluster import voter_of
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import Process, SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom
from tailrace.wire.compile import decode, encode
from tailrace.wire.schema import Message

T = TypeVar("T")
R = TypeVar("R", bound=Message)
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
FOLDER = "/data/__cluster_metadata-0"
PATIENCE_SECONDS = 30.0
# A node's port is its id, that of its second controller listener is this much above.
SECOND_LISTENER = 100


class Node:
    """`quorum` is that of the process that runs now."""

    def __init__(self, cluster: Cluster, node_id: int, *, is_voter: bool, settings: dict[str, Any]) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.directory_id = Uuid(bytes(15) + bytes([node_id]))
        self.process: Process | None = None
        self.quorum: Quorum | None = None
        self.published: list[MetadataImage] = []
        self.random = SimRandom(100 + node_id)
        self.disk = SimDisk(cluster)  # type: ignore[arg-type]  # Which tells the time.
        self.disk.make_folder("/data")
        self.disk.sync_folder("/")
        self.config = BrokerConfig(
            node_id=node_id,
            log_dirs=("/data",),
            process_roles=("controller",) if is_voter else ("broker",),
            listeners=(Endpoint("CONTROLLER" if is_voter else "PLAINTEXT", "node", node_id),),
            controller_listener_names=("CONTROLLER",),
            controller_quorum_bootstrap_servers=cluster.bootstrap,
            **settings,
        )

    async def start(self) -> Quorum:
        loop = self.cluster.loop
        process = self.process = loop.process(f"node-{self.node_id}")
        clock = ProcessClock(process)
        # They call each other as `Calls` lets them. On the network nobody listens: connections are refused.
        network = self.cluster.network.port(f"node-{self.node_id}", process)
        ports = Ports(clock, self.random, self.disk, network, SlowBackground(self.random))
        quorum = Quorum(
            self.config,
            ports,
            cluster_id=CLUSTER_ID,
            directory_id=self.directory_id,
            peers=Calls(self.cluster, self),  # type: ignore[arg-type]
        )
        quorum.subscribe(lambda _old, new: self.published.append(new))
        self.published = []
        await process.spawn(quorum.start(), name="start")
        self.quorum = quorum
        return quorum

    def kill(self) -> None:
        """As kill -9 does: what was written stays."""
        assert self.process is not None
        self.process.kill()
        self.process = self.quorum = None
        self.disk.crash()

    async def stop(self) -> None:
        assert self.process is not None
        assert self.quorum is not None
        await self.process.spawn(self.quorum.close(), name="stop")
        self.process.kill()
        self.process = self.quorum = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In this node's process; NOT_CONTROLLER if it dies."""
        process = self.process
        assert process is not None
        task = process.spawn(work, name="request")
        while not task.done():
            await asyncio.wait((task,), timeout=0.05)
            if not process.is_alive:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, f"node {self.node_id} died")
        return task.result()


class Calls:
    """What a node has of its peers, in place of connections. Requests and answers pass through their bytes."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self._cluster = cluster
        self._node = node

    async def call_address(
        self, host: str, port: int, request: Message, response_type: type[R], *, timeout_ms: int, channel: str = ""
    ) -> R:
        assert host == "node"
        target = self._cluster.nodes[port % SECOND_LISTENER]
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.sleep(self._cluster.delay_seconds)
                if self._cluster.is_cut(self._node, target) or target.process is None or target.quorum is None:
                    raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {port} cannot be reached")
                process = target.process
                connection = f"{self._node.node_id} {channel}"
                call = target.quorum.driver.handle(_through_bytes(request, type(request)), peer=connection)
                answer = process.spawn(call, name=f"{type(request).__name__} of {self._node.node_id}")
                while not answer.done():
                    await asyncio.wait((answer,), timeout=0.05)
                    if not process.is_alive:
                        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {port} died")
                await asyncio.sleep(self._cluster.delay_seconds)
                if self._cluster.is_cut(target, self._node):
                    raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"node {port} cannot be reached")
                return _through_bytes(answer.result(), response_type)
        except TimeoutError:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no answer in time") from None


def _through_bytes(message: Message, kind: type[R]) -> R:
    version = kind.versions[-1]
    return decode(kind, version, bytes(encode(message, version)))


class Cluster:
    def __init__(self, loop: SimLoop, *, voters: int, observers: int = 0, **settings: Any) -> None:
        self.loop = loop
        self.delay_seconds = 0.001
        self.network = SimNetwork(loop, SimRandom(99))
        self.cut_off: set[int] = set()
        ids = list(range(1, voters + 1))
        self.bootstrap = tuple(f"node:{node_id}" for node_id in ids)
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, voters + observers + 1):
            self.nodes[node_id] = Node(self, node_id, is_voter=node_id <= voters, settings=settings)
        for node_id in ids:
            self.format(node_id)

    def format(self, node_id: int) -> None:
        voters = [
            voter_of(each, self.nodes[each].directory_id, host="node", port=each)
            for each in range(1, len(self.bootstrap) + 1)
        ]
        store_bootstrap_snapshot(self.nodes[node_id].disk, FOLDER, voters, timestamp_ms=1)

    def monotonic_ms(self) -> float:
        return self.loop.now * 1000

    def wall_ms(self) -> int:
        return int(self.loop.now * 1000)

    def is_cut(self, one: Node, other: Node) -> bool:
        return one.node_id in self.cut_off or other.node_id in self.cut_off

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    @property
    def running(self) -> list[Quorum]:
        return [node.quorum for node in self.nodes.values() if node.quorum is not None]

    async def wait_active(self, *, but: int = 0) -> Node:
        """The node that is the active controller and is not cut off."""

        def find() -> Node | None:
            for node in self.nodes.values():
                is_there = node.node_id not in self.cut_off and node.node_id != but
                if is_there and node.quorum is not None and node.quorum.is_active:
                    return node
            return None

        await wait_until(lambda: find() is not None)
        found = find()
        assert found is not None
        return found

    async def submit(self, request: Message) -> Message:
        """To the active controller, again while it moves."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                node = await self.wait_active()
                assert node.quorum is not None
                try:
                    return await node.run(node.quorum.submit_local(request))
                except KafkaError as error:
                    if error.code is not ErrorCode.NOT_CONTROLLER:
                        raise
                await asyncio.sleep(0.01)

    async def wait_equal(self) -> MetadataImage:
        """Until all nodes that run have the same image."""
        await wait_until(lambda: len({quorum.image.next_offset for quorum in self.running}) == 1)
        images = [quorum.image for quorum in self.running]
        assert all(image == images[0] for image in images)
        return images[0]


async def wait_until(condition: Callable[[], bool], *, step_seconds: float = 0.01) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(step_seconds)


def run(story: Callable[[SimLoop], Awaitable[None]], *, seed: int = 1) -> None:
    """Plays a test on a loop of its own."""
    loop = SimLoop(SimRandom(seed))

    async def play() -> None:
        await story(loop)

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()

"""The nodes of a simulated cluster: each is a `Broker` as shipped, in a process of its own on a host with a disk.

A node is started, stopped cleanly, killed, paused, loses power or its whole disk. What a node does is up to the broker;
here it is only given its ports, its settings and its fate. `format` does for a simulated disk what the command of that
name does for a real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.broker.broker import Broker
from tailrace.broker.quorum.snapshots import store_bootstrap_snapshot
from tailrace.log.checkpoints import write_meta_properties
from tailrace.model.config import BrokerConfig, parse_broker_config
from tailrace.model.errors import KafkaError, StorageError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, Uuid, uuid_text
from tailrace.model.ports import ObjectStores, Ports, Tls
from tailrace.sim.background import SlowBackground
from tailrace.sim.clock import ProcessClock, SimClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import Process, SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom
from tailrace.sim.trace import Trace
from tailrace.wire.apis.stored_records import VotersRecord

# The metadata lie in the first.
FOLDERS = ("/data", "/data-2")
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
CONTROLLER_LISTENER = "CONTROLLER"
_CLOCK_DRIFT_MAX = 0.01
_WALL_SKEW_MS_MAX = 2000.0
_STOP_SECONDS_MAX = 60.0
_FORMATTED_MS = 1_767_225_600_000


class World(NamedTuple):
    """What all hosts share."""

    loop: SimLoop
    network: SimNetwork
    random: SimRandom
    trace: Trace


class Node:
    """One host with one node. `broker` is that of the present process, if one is up."""

    def __init__(self, world: World, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.settings = dict(settings)
        self.node_id = int(settings["node.id"])
        self.broker: Broker | None = None
        self.process: Process | None = None
        self.is_ready = False
        self.lives = 0
        self.failure: BaseException | None = None  # An assertion of the broker's own that failed.
        self.is_stopping = False
        self.is_sabotaged = False  # Its disk was made to fail in this life: it may complain.
        self.is_damaged = False  # Its disk has lost something that is not known to be there again: it may complain.
        self.refusal: Exception | None = None  # Why the last life ended before it was ready.
        # Looks at a process that dies amid a turn: after it, when all others are looked at, nothing is left to see.
        self.witness: Callable[[Node], None] = lambda _node: None
        # How far its clocks may be wrong, in speed and by the wall; each life draws anew.
        self.clock_drift_max = _CLOCK_DRIFT_MAX
        self.wall_skew_ms_max = _WALL_SKEW_MS_MAX
        self.tls: Tls | None = None  # Where it shows certificates.
        self.objects: ObjectStores | None = None  # Where there is remote storage.
        self._world = world
        self._random = world.random.fork()
        self.disk = SimDisk(SimClock())
        self.background = SlowBackground(self._random.fork())

    def __repr__(self) -> str:
        return f"<Node {self.name}>"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.settings.get("process.roles", "broker")

    @property
    def is_controller(self) -> bool:
        return "controller" in self.settings.get("process.roles", "controller")

    @property
    def may_complain(self) -> bool:
        """Its disk is to blame for what it reports, and for what is wrong with it."""
        return self.is_sabotaged or self.is_damaged

    @property
    def is_up(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        assert self.process is None, "it runs already"
        world, random = self._world, self._random
        self.lives += 1
        self.is_ready, self.is_stopping, self.is_sabotaged = False, False, self.disk.is_faulty
        self.refusal = None
        world.network.begin_host(self.name)
        self.disk.crash()
        rate = 1 + random.between(-self.clock_drift_max, self.clock_drift_max)
        self.process = world.loop.process(self.name, rate=rate)
        wall_skew_ms = random.between(-self.wall_skew_ms_max, self.wall_skew_ms_max)
        clock = ProcessClock(self.process, wall_skew_ms=wall_skew_ms)
        self.disk.clock = clock
        ports = Ports(
            clock=clock,
            random=random.fork(),
            disk=self.disk,
            network=world.network.port(self.name, self.process),
            background=self.background,
            tls=self.tls,
            objects=self.objects,
        )
        self.broker = Broker(self.config, ports)
        world.trace.note(self.name, f"starts, life {self.lives}")
        self.process.spawn(self._live(self.broker), name=f"life of {self.name}")

    @property
    def config(self) -> BrokerConfig:
        return parse_broker_config(self.settings)

    async def _live(self, broker: Broker) -> None:
        try:
            await broker.start()
            self.is_ready = True
            await broker.wait_failed()
        except (KafkaError, StorageError, OSError) as error:
            # As a process would: it says why, and ends.
            self._world.trace.note(self.name, f"cannot start: {error}")
            self.refusal = error
        except AssertionError as error:
            self.failure = error
        self._world.loop.at(self._world.loop.now, self._end_of_life, broker)

    def _end_of_life(self, broker: Broker) -> None:
        if self.broker is broker:
            self.kill()

    async def stop(self) -> None:
        """Cleanly, or by force if that takes too long."""
        process, broker = self.process, self.broker
        if process is None or broker is None or not self.is_ready:
            self.kill()
            return
        self._world.trace.note(self.name, "is told to stop")
        self.is_stopping = True
        process.resume()
        stopping = process.spawn(broker.stop(), name=f"stop of {self.name}")
        await asyncio.wait({stopping}, timeout=_STOP_SECONDS_MAX)
        if self.process is not process:
            return  # It was killed meanwhile.
        if not stopping.done():
            self._world.trace.note(self.name, "does not stop")
        elif (error := stopping.exception()) is not None:
            self._world.trace.note(self.name, f"failed to stop: {error!r}")
            if not self.may_complain:
                self.failure = error
        self._end()

    def kill(self) -> None:
        """The process dies; what it has written stays."""
        if self.process is not None:
            self._world.trace.note(self.name, "dies")
            self._end()

    def lose_power(self) -> None:
        """The host dies; what was not synced may be lost. Nobody hears of it."""
        self._world.trace.note(self.name, "loses power")
        self._world.network.end_host(self.name)
        self._end()
        self.disk.power_loss(self._random)

    def die_in_disk_operation(self) -> None:
        """Soon, in the middle of one."""
        self.disk.die_after(
            self._random.randrange(50), torn_bytes=self._random.randrange(2000), on_death=self._die_in_disk_operation
        )

    def _die_in_disk_operation(self) -> None:
        self._world.trace.note(self.name, "dies in an operation of its disk")
        self.witness(self)
        self._end()

    def _end(self) -> None:
        process, self.process, self.broker, self.is_ready = self.process, None, None, False
        if process is not None:
            process.kill()
            self._world.network.end_process(process)

    def pause(self, *, at_work: bool = False) -> None:
        if self.process is not None:
            self._world.trace.note(self.name, "is paused" + (" at work" if at_work else ""))
            self.process.pause(at_work=at_work)

    def resume(self) -> None:
        """At full speed."""
        process = self.process
        if process is not None and (process.is_paused or process.pauses_at_work or process.turn_seconds):
            self._world.trace.note(self.name, "goes on")
            process.resume()
            process.turn_seconds = 0.0

    def slow_down(self, turn_seconds: float) -> None:
        if self.process is not None:
            self._world.trace.note(self.name, f"is slow: {turn_seconds * 1000:.0f} ms a turn")
            self.process.turn_seconds = turn_seconds

    def wipe(self) -> None:
        """A new, empty disk."""
        assert self.process is None, "the disk is in use"
        self._world.trace.note(self.name, "gets an empty disk")
        self.disk = SimDisk(SimClock())


class SimCluster:
    """`format` it, then `start_all`."""

    def __init__(self, world: World, nodes: Sequence[Node]) -> None:
        self.world = world
        self.nodes = tuple(nodes)
        # What a person does before a node that has refused to start is started again.
        self.attend: Callable[[Node], None] = lambda _node: None
        self.directory_ids: dict[tuple[str, str], str] = {}  # by node and folder, as they were formatted
        self.cluster_id = uuid_text(Uuid(world.random.uuid()))

    def format(self) -> None:
        voters = [
            voter_of(node.node_id, self.world.random.uuid(), host=node.name, port=CONTROLLER_PORT)
            for node in self.controllers
        ]
        directories = {voter.voter_id: voter.voter_directory_id for voter in voters}
        for node in self.nodes:
            directory_id = directories.get(node.node_id) or self.world.random.uuid()
            self._format(node, directory_id, voters if node.is_controller else ())

    def wipe(self, node: Node) -> None:
        """A new, empty disk. What was a voter is none any more: the quorum knows it by its directory too."""
        node.wipe()
        self._format(node, self.world.random.uuid(), ())

    def _format(self, node: Node, directory_id: bytes, voters: Sequence[VotersRecord.Voter]) -> None:
        for folder in node.config.log_dirs:
            node.disk.make_folder(folder)
            properties = {
                "cluster.id": self.cluster_id,
                "node.id": str(node.node_id),
                "directory.id": uuid_text(Uuid(directory_id)),
            }
            write_meta_properties(node.disk, folder, properties)
            self.directory_ids[node.name, folder] = properties["directory.id"]
            directory_id = self.world.random.uuid()
        if voters:
            folder = f"{FOLDERS[0]}/{CLUSTER_METADATA_TOPIC}-0"
            store_bootstrap_snapshot(node.disk, folder, voters, timestamp_ms=_FORMATTED_MS)

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes if node.is_broker]

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes if node.is_controller]

    def start_all(self) -> None:
        for node in self.nodes:
            self.start(node)

    def start(self, node: Node) -> None:
        """If it is not up."""
        if not node.is_up:
            if node.refusal is not None:
                self.attend(node)
            node.start()

    async def stop_all(self) -> None:
        """Brokers before controllers, as an operator would."""
        for node in sorted(self.nodes, key=lambda each: each.is_controller):
            await node.stop()

    async def wait_ready(self, timeout_seconds: float) -> bool:
        """Whether all nodes are ready in time."""
        loop = self.world.loop
        deadline = loop.now + timeout_seconds
        while not all(node.is_ready for node in self.nodes):
            if loop.now >= deadline:
                return False
            await asyncio.sleep(0.05)
        return True


def voter_of(node_id: int, directory_id: bytes, *, host: str, port: int) -> VotersRecord.Voter:
    """As `format` writes it down for the first start of a quorum."""
    return VotersRecord.Voter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=[VotersRecord.Endpoint(name=CONTROLLER_LISTENER, host=host, port=port)],
        kraft_version_feature=VotersRecord.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )

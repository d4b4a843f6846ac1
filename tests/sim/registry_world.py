"""Registries on a simulated broker: the one that writes is killed, paused or cut off at any step of what it does.

A step is a turn of its process: whatever it does without waiting. So a fault between any two turns is a fault between
any two steps that others can see. What a registry has answered is in the ledger; what a dead one would have answered
is not. In the end the topic itself is read, record by record.

What must hold (Broken is raised where it does not):
- an id is one schema, for ever, and a version of a subject too;
- what was answered is in the topic, as it was answered;
- versions of a subject have no gaps, and no schema is there twice;
- no record of the topic is damaged to a registry that reads it from its beginning.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

from tailrace.apps.registry.errors import RegistryError
from tailrace.apps.registry.service import NotWriterError, Registry
from tailrace.apps.registry.settings import parse_registry_settings
from tailrace.apps.registry.state import records
from tailrace.apps.registry.state.deciding import NewSchema
from tailrace.apps.registry.topic.election import Identity
from tailrace.client.connection import Address
from tailrace.client.consumer import EARLIEST, Consumer
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Producer
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Ports
from tailrace.sim.background import SlowBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.cluster import (
    CLIENT_PORT,
    CONTROLLER_LISTENER,
    CONTROLLER_PORT,
    FOLDERS,
    Node,
    SimCluster,
    World,
)
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import Process, SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom
from tailrace.sim.trace import Trace

TOPIC = TopicPartition("_schemas", PartitionIndex(0))
NODE = "node"
SUBJECT = "orders-value"
_PATIENCE_SECONDS = 120.0
_PAUSE_SECONDS = 0.05
_READING_LATENCY_MS = 40.0
_SETTINGS = {
    "schema.registry.session.timeout.ms": "1000",
    "schema.registry.heartbeat.interval.ms": "200",
    "kafkastore.timeout.ms": "3000",
    # Every registration may come, whatever was before.
    "schema.compatibility.level": "NONE",
}


class Broken(AssertionError):
    """Something that must hold does not."""


class Told(NamedTuple):
    """What somebody who registered was answered."""

    text: str
    id: int
    version: int


def schema(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": []}, separators=(",", ":"))


class Host:
    """One registry, or the next one in its place."""

    def __init__(self, registries: Registries, name: str) -> None:
        self.name = name
        # Another host to the network, so that what is written may be read late.
        self.reading_host = f"{name}-reading"
        self.registry: Registry | None = None
        self.process: Process | None = None
        self._registries = registries

    def start(self, *, is_eligible: bool = True) -> None:
        world = self._registries.world
        for source, target in ((self.reading_host, NODE), (NODE, self.reading_host)):
            world.network.slow(source, target, latency_ms=_READING_LATENCY_MS)
        self.process = world.loop.process(self.name)
        self.process.spawn(self._live(is_eligible=is_eligible), name=f"life of {self.name}")

    async def _live(self, *, is_eligible: bool) -> None:
        background = SlowBackground(self._registries.world.random.fork())
        identity = Identity("http", self.name, 8081, is_eligible)
        cluster = self._registries.cluster(self.name, self.process)
        reading = self._registries.cluster(self.reading_host, self.process)
        settings = parse_registry_settings({**_SETTINGS, **self._registries.settings})
        registry = Registry(cluster, reading, settings, identity, background)
        self.registry = registry
        await registry.start()
        await registry.reader.failed

    @property
    def is_writer(self) -> bool:
        return self.registry is not None and self.registry.is_writer

    def kill(self) -> None:
        process, self.process, self.registry = self.process, None, None
        if process is not None:
            process.kill()
            self._registries.world.network.end_process(process)

    def begin_registering(self, name: str) -> None:
        """By somebody who asks this registry once."""
        if self.process is not None and self.registry is not None:
            self.process.spawn(self._register(self.registry, name), name=f"registering {name}")

    async def _register(self, registry: Registry, name: str) -> None:
        new = NewSchema("AVRO", schema(name))
        try:
            found = await registry.register(SUBJECT, new, normalize=False, force=False)
        except (NotWriterError, RegistryError):
            return
        self._registries.ledger.append(Told(new.text, found.id, found.version))


class Registries:
    def __init__(self, seed: int, settings: dict[str, str]) -> None:
        self.settings = settings
        loop, random = cast(SimLoop, asyncio.get_running_loop()), SimRandom(seed)
        self.world = World(loop, SimNetwork(loop, random.fork()), random, Trace(loop))
        self.ledger: list[Told] = []
        self.node = Node(self.world, NODE, _node_settings())
        self._cluster = SimCluster(self.world, [self.node])
        self._cluster.format()
        # The smallest address is elected, if it is there.
        self.first, self.second = Host(self, "registry-1"), Host(self, "registry-2")
        # After so many turns of one of them something happens.
        self._turns_left = -1
        self._victim = self.first
        self._fault: Callable[[], None] = lambda: None
        loop.after_turn = self._after_turn

    def cluster(self, host: str, process: Process | None) -> Cluster:
        owner = process or self.world.loop.world
        clock = ProcessClock(owner)
        ports = Ports(
            clock=clock,
            random=self.world.random.fork(),
            disk=SimDisk(clock),
            network=self.world.network.port(host, owner),
            background=SlowBackground(self.world.random.fork()),
        )
        return Cluster(ports, [Address(NODE, CLIENT_PORT)], client_id=host)

    def strike(self, host: Host, turns: int, fault: Callable[[], None]) -> None:
        """The fault comes after so many turns of a registry that writes, or is about to."""
        self._victim, self._turns_left, self._fault = host, turns, fault

    @property
    def has_struck(self) -> bool:
        return self._turns_left < 0

    def _after_turn(self, process: Process) -> None:
        if process is self._victim.process and self._victim.is_writer and self._turns_left >= 0:
            self._turns_left -= 1
            if self._turns_left < 0:
                # In the world's own time, as whoever kills a process is outside it.
                self.world.loop.at(self.world.loop.now, self._fault)

    def cut(self, host: Host) -> None:
        for one, other in ((NODE, host.name), (host.name, NODE)):
            self.world.network.cut(one, other)

    def mend(self, host: Host) -> None:
        """What was under way arrives now."""
        for one, other in ((NODE, host.name), (host.name, NODE)):
            self.world.network.mend(one, other)

    async def start(self) -> None:
        self.node.start()
        await self.wait(lambda: self.node.is_ready, "the broker is ready")
        self.second.start()
        self.first.start()
        await self.wait(lambda: self.first.is_writer, "the first registry writes")

    async def write_as_another(self, record: records.Record) -> None:
        """As a registry of another kind writes: plainly, under no epoch."""
        cluster = self.cluster("another", None)
        async with Producer(cluster) as producer:
            await producer.send(TOPIC.topic, record.value, key=record.key, partition=TOPIC.partition)
        cluster.close()

    async def wait(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while not condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise Broken(f"waited in vain until {what}") from None

    async def register(self, name: str, *hosts: Host) -> None:
        """Until one of them has answered, as clients do."""
        text = schema(name)
        loop = self.world.loop
        deadline = loop.time() + _PATIENCE_SECONDS
        while not any(each.text == text for each in self.ledger):
            if loop.time() > deadline:
                raise Broken(f"nobody registers {name}")
            for host in hosts:
                if host.is_writer:
                    host.begin_registering(name)
            await asyncio.sleep(_PAUSE_SECONDS)

    # ---- what must hold

    async def check(self) -> None:
        found = await self.read_topic()
        texts: dict[int, str] = {}
        ids: dict[str, int] = {}
        versions: dict[int, Told] = {}
        for offset, key, value in found:
            if key.kind != records.SCHEMA or value is None:
                continue
            told = Told(value.text, value.id, key.version)
            if texts.setdefault(value.id, value.text) != value.text:
                raise Broken(f"id {value.id} twice: offset {offset} makes it {value.text}, it was {texts[value.id]}")
            if ids.setdefault(value.text, value.id) != value.id:
                raise Broken(f"{value.text} has the ids {ids[value.text]} and {value.id}")
            if versions.setdefault(key.version, told) != told:
                raise Broken(
                    f"version {key.version} lost: offset {offset} makes it {told}, it was {versions[key.version]}"
                )
        if sorted(versions) != list(range(1, len(versions) + 1)):
            raise Broken(f"versions have gaps: {sorted(versions)}")
        if len({each.text for each in versions.values()}) != len(versions):
            raise Broken(f"a schema has two versions: {versions}")
        for told in self.ledger:
            if versions.get(told.version) != told:
                raise Broken(f"lost: {told} was answered, and version {told.version} is {versions.get(told.version)}")

    async def read_topic(self) -> list[tuple[int, records.Key, records.SchemaValue | None]]:
        cluster = self.cluster("client", None)
        consumer = Consumer(cluster)
        try:
            await consumer.assign({TOPIC: (await consumer.offsets_at([TOPIC], EARLIEST))[TOPIC]})
            found = []
            last = Host(self, "reader")
            last.start(is_eligible=False)
            await self.wait(lambda: last.registry is not None and last.registry.reader.position > 0, "it is read")
            assert last.registry is not None
            while not found or found[-1][0] + 1 < last.registry.reader.position:
                for record in (await consumer.poll(100)).get(TOPIC, []):
                    key = records.read_key(record.key)
                    assert key is not None
                    is_schema = key.kind == records.SCHEMA and record.value is not None
                    value = records.read_schema(record.value) if is_schema and record.value is not None else None
                    found.append((record.offset, key, value))
            if last.registry.reader.damaged:
                raise Broken(f"{last.registry.reader.damaged} records are damaged to a registry")
            last.kill()
            return found
        finally:
            await consumer.close()
            cluster.close()


@asynccontextmanager
async def registries(
    seed: int = 1, settings: dict[str, str] | None = None, *, is_checked: bool = True
) -> AsyncIterator[Registries]:
    found = Registries(seed, settings or {})
    await found.start()
    yield found
    if is_checked:
        await found.check()
    found.first.kill()
    found.second.kill()
    await found.node.stop()
    assert found.node.failure is None


def _node_settings() -> dict[str, str]:
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{NODE}:{CLIENT_PORT},{CONTROLLER_LISTENER}://{NODE}:{CONTROLLER_PORT}",
        "controller.listener.names": CONTROLLER_LISTENER,
        "controller.quorum.bootstrap.servers": f"{NODE}:{CONTROLLER_PORT}",
        "log.dirs": FOLDERS[0],
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
    }

"""Damage of disks in a run: one node at a time, the next one only when all that is committed is on that disk again.

    one         the node's process is killed or stopped, its disk damaged, the process started again
    all         the same of all processes at once; the damaged node is back first most of the time, the others later
    hidden      either, with a wound that the node cannot see by itself: nothing else goes wrong until it is back, and
                all processes are started within a moment, as only the others can tell what is missing
    running     a closed segment is damaged while its process goes on

What is promised of it, with three replicas, two of which have every acknowledged record (`min.insync.replicas`):

    one disk damaged in any way, any processes killed before, during and after it       nothing is lost
    the same, and another disk damaged, replaced, or without power before it is whole   not promised: not done here
    one disk cut where it cannot see it, and the others away for long                   not promised: not done here
    one disk replaced and all processes killed while a topic is made (`unmade`)         nothing is lost; it may have no
                                                                                        leader until one is asked for

A node that refuses to start, as it should where its identity or its metadata are damaged, is attended to: what was lost
is put back, or it gets an empty disk. Holds no broker logic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.clients.workload import Clients
from tailrace.sim.cluster import Node, SimCluster
from tailrace.sim.damage.unmade import UnmadePartitions
from tailrace.sim.damage.wounds import Wound, Wounds
from tailrace.sim.faults import Faults
from tailrace.sim.random import SimRandom

_PAUSE_SECONDS_MAX = 3.0
_CALM_SECONDS_MAX = 15.0
_REFILL_SECONDS_MAX = 15.0
_AWAY_SECONDS_MAX = 6.0
_STOP_SECONDS_MAX = 3.0
# All candidates are back before the controller stops waiting for the rest.
_HIDDEN_AWAY_SECONDS_MAX = 1.0
_LATEST_SECONDS = 20.0
_TRIES = 20

Shape = Callable[[], Awaitable[None]]


class Damage:
    def __init__(
        self, cluster: SimCluster, replicas: ReplicaChecks, clients: Clients, faults: Faults, random: SimRandom
    ) -> None:
        self.count = 0
        self.unmade = UnmadePartitions(cluster, replicas, clients)
        self._cluster = cluster
        self._replicas = replicas
        self._faults = faults
        self._random = random
        self._stopping: list[asyncio.Task[None]] = []
        self._shapes: tuple[Shape, ...] = (
            *((self._damage_one,) * 3),
            *((self._damage_one_of_all,) * 5),
            *((self._damage_unseen,) * 2),
            *((self._damage_running,) * 3),
        )

    async def run(self, seconds: float) -> None:
        """Until the time is over and something was damaged, if that is allowed at all."""
        cluster = self._cluster
        cluster.attend = self._attend
        end = cluster.world.loop.now + seconds
        while cluster.world.loop.now < end or (not self.count and cluster.world.loop.now < end + _LATEST_SECONDS):
            await self._sleep(_PAUSE_SECONDS_MAX)
            if not self._faults.has_losses():
                await self._random.choice(self._shapes)()
        for task in self._stopping:
            task.cancel()

    def damaged(self) -> list[str]:
        """What is still missing, and where."""
        self._faults.has_losses()
        return [f"{self._replicas.find_missing(node)}" for node in self._cluster.nodes if node.is_damaged]

    # ---- when

    async def _damage_one(self) -> None:
        node, partition = self._pick()
        await self._stop([node])
        if self._inflict(node, self._pick_wound(node, partition)):
            await self._sleep(_AWAY_SECONDS_MAX / 2)
        self._cluster.start(node)

    async def _damage_one_of_all(self) -> None:
        node, partition = self._pick()
        await self._stop(self._random.shuffled(self._cluster.nodes))
        is_damaged = self._inflict(node, self._pick_wound(node, partition))
        await self._start_all(node, _AWAY_SECONDS_MAX if is_damaged else _HIDDEN_AWAY_SECONDS_MAX)

    async def _damage_unseen(self) -> None:
        async with self._faults.held(_CALM_SECONDS_MAX) as is_calm:
            if not is_calm:
                return
            node, partition = self._pick()
            is_all = self._random.random() < 0.7
            # A clean stop would tell of it.
            for each in self._cluster.nodes if is_all else [node]:
                each.kill()
            self._inflict(node, self._pick_wound(node, partition, is_hidden=True))
            await self._start_all(node, _HIDDEN_AWAY_SECONDS_MAX)
            await self._faults.wait_whole(_REFILL_SECONDS_MAX)

    async def _damage_running(self) -> None:
        node, partition = self._pick()
        broker = node.broker
        replica = None if broker is None or not node.is_ready else broker.replicas.partitions.get(partition)
        if replica is not None:
            with node.disk.observed():
                wound = self._wounds(node).of_closed_segment(partition, replica.high_watermark)
            if wound is not None:
                self._inflict(node, wound, is_running=True)

    async def _stop(self, nodes: list[Node]) -> None:
        """By force, or cleanly one after the other: brokers before controllers, as an operator would."""
        if self._random.random() < 0.65:
            for node in nodes:
                node.kill()
        else:
            for node in sorted(nodes, key=lambda each: each.is_controller):
                # Another fault may kill it meanwhile, and start it again: whoever stops it would not hear of that soon.
                stopping = asyncio.ensure_future(node.stop())
                self._stopping.append(stopping)
                await asyncio.wait({stopping}, timeout=_STOP_SECONDS_MAX)

    async def _start_all(self, first: Node, away_seconds: float) -> None:
        """Controllers that are apart come at once: without them nobody leads anything."""
        nodes = self._random.shuffled([node for node in self._cluster.nodes if node is not first])
        if self._random.random() < 0.7:
            nodes.insert(0, first)
        else:
            nodes.append(first)
        for node in sorted(nodes, key=lambda each: each.is_broker):
            if node.is_broker and node is not nodes[0]:
                await self._sleep(away_seconds / len(self._cluster.brokers))
            self._cluster.start(node)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(self._random.random() * seconds)

    # ---- where

    def _pick(self) -> tuple[Node, TopicPartition]:
        """A node and one of its partitions: one that it leads, more often than not."""
        image = self._replicas.image
        assert image is not None, "topics were created"
        partitions = [
            (TopicPartition(topic.name, PartitionIndex(index)), state)
            for topic in image.topics.values()
            for index, state in topic.partitions.items()
        ]
        partition, state = self._random.choice(partitions)
        chosen = self._random.choice(state.replicas)
        if state.leader >= 0 and self._random.random() < 0.6:
            chosen = state.leader
        nodes = {node.node_id: node for node in self._cluster.nodes}
        if self._random.random() < 0.1:
            return self._random.choice(self._cluster.nodes), partition
        return nodes[chosen], partition

    def _pick_wound(self, node: Node, partition: TopicPartition, *, is_hidden: bool = False) -> Wound | None:
        if node.is_up:
            return None  # Some other fault is over, and has started it.
        wounds = self._wounds(node)
        kinds: list[Callable[[], Wound | None]] = [lambda: wounds.of_log(partition)] * 8
        if not is_hidden:
            kinds += [lambda: wounds.of_partition_folder(partition)] * 3
            kinds += [lambda: wounds.of_side_file(partition)] * 2
            kinds += [wounds.of_all_partitions, wounds.of_small_file]
            if self._may_harm_metadata(node):
                kinds += [wounds.of_identity, wounds.of_metadata, wounds.of_metadata, wounds.of_metadata]
        with node.disk.observed():
            for _ in range(_TRIES):
                wound = self._random.choice(kinds)()
                if wound is not None and wound.is_hidden == is_hidden:
                    return wound
        return None

    def _may_harm_metadata(self, node: Node) -> bool:
        """As long as all other controllers are voters: with one of them gone before, nobody could be elected without
        the vote of the damaged one."""
        return not node.is_controller or bool(self._faults.wipes_left)

    def _wounds(self, node: Node) -> Wounds:
        return Wounds(node.disk, node.config.log_dirs, self._random)

    # ---- what

    def _inflict(self, node: Node, wound: Wound | None, *, is_running: bool = False) -> bool:
        if wound is None or node.is_up != is_running or self._faults.has_losses():
            return False
        self.count += 1
        self._note(f"the disk of {node.name} {wound.text}{', which it cannot see' if wound.is_hidden else ''}")
        node.is_damaged = True
        self._faults.note_loss(node)
        wound.inflict()
        return True

    def _attend(self, node: Node) -> None:
        """It has refused to start. A new disk is always a remedy, as every other replica is whole."""
        if node.is_damaged:
            self._faults.wipes_left = 0
            self.unmade.note_loss(node)
            self._cluster.wipe(node)

    def _note(self, text: str) -> None:
        self._cluster.world.trace.note("world", text)

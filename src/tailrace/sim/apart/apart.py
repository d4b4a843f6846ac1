"""Faults that take brokers and controllers apart, for longer than a lease and a session: one at a time, for two of them
together would leave nobody whom the controllers could make leader.

headless      most controllers, or all, are dead, stopped or cut off; brokers live on
blind         some brokers see no controller, and go on among themselves
lonely        a leader is alone in sync, and then cut off while the others come back
stop leader   a leader is stopped; what its followers had sent lies in its buffers when it goes on
refused       the other controllers are refused by the active one and elect another at once, while brokers reach both
denied        a broker and the controllers refuse each other, as if each were dead; clients and other brokers reach it

All but the two in the middle are for runs in which controllers are nodes of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tailrace.broker.broker import Broker
from tailrace.controller.image import PartitionImage
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.cluster import Node, SimCluster
from tailrace.sim.random import SimRandom

APART_KINDS = ("headless", "headless", "blind", "blind", "blind", "lonely", "stop leader", "refused", "denied")

_APART_SECONDS = (3.0, 12.0)
_STOPPED_SECONDS = 7.0
_LONELY_SECONDS = (6.0, 13.0)
# How long the controllers may take to find out that a leader is alone in sync.
_LONELY_LOOKS_MAX = 80
_LOOK_SECONDS = 0.1

# Pairs of hosts, and how long.
Cut = Callable[[list[tuple[str, str]], float], Awaitable[None]]


class Apart:
    def __init__(self, cluster: SimCluster, replicas: ReplicaChecks, random: SimRandom, cut: Cut) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._random = random
        self._cut = cut
        self._is_under_way = False
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "headless": partial(self._alone, self._lose_controllers),
            "blind": partial(self._alone, self._blind_brokers),
            "lonely": partial(self._alone, self._leave_leader_alone),
            "stop leader": partial(self._alone, self._stop_leader),
            "refused": partial(self._alone, self._refuse_controllers),
            "denied": partial(self._alone, self._deny_broker),
        }

    async def _alone(self, fault: Callable[[], Awaitable[None]]) -> None:
        if self._is_under_way:
            return
        self._is_under_way = True
        try:
            await fault()
        finally:
            self._is_under_way = False

    async def _lose_controllers(self) -> None:
        controllers = self._random.shuffled([node for node in self._cluster.controllers if not node.is_broker])
        majority = len(self._cluster.controllers) // 2 + 1
        if len(controllers) < majority:
            return
        chosen = controllers[: self._random.choice((majority, len(controllers)))]
        how = self._random.choice(("kill", "kill", "pause", "cut"))
        self._note(f"{how}: controllers {' '.join(node.name for node in chosen)}")
        seconds = self._random.between(*_APART_SECONDS)
        if how == "cut":
            await self._cut_off(chosen, self._cluster.nodes, seconds)
            return
        for node in chosen:
            node.kill() if how == "kill" else node.pause()
        await asyncio.sleep(seconds)
        for node in chosen:
            node.resume() if how == "pause" else self._cluster.start(node)

    async def _blind_brokers(self) -> None:
        brokers = self._random.shuffled([node for node in self._cluster.brokers if not node.is_controller])
        controllers = [node for node in self._cluster.controllers if not node.is_broker]
        blind = brokers[: self._random.choice((1, 1, 2, len(brokers)))]
        await self._cut_off(blind, controllers, self._random.between(*_APART_SECONDS))

    async def _leave_leader_alone(self) -> None:
        """Whoever has all that was confirmed leads in its place."""
        leads = self._leads()
        if not leads:
            return
        name, index, state = self._random.choice(leads)
        leader = self._node(state.leader)
        others = [node for node in self._cluster.nodes if node.node_id in state.replicas and node is not leader]
        self._note(f"leaves {leader.name} alone with {name}-{index}")
        for node in others:
            node.kill()
        for _ in range(_LONELY_LOOKS_MAX):
            if self._in_sync(name, index) == (state.leader,):
                break
            await asyncio.sleep(_LOOK_SECONDS)
        for node in others:
            self._cluster.start(node)
        await self._cut_off([leader], self._cluster.nodes, self._random.between(*_LONELY_SECONDS))

    async def _stop_leader(self) -> None:
        """It hears of its successor a second after it goes on."""
        leads = self._leads()
        if not leads:
            return
        leader = self._node(self._random.choice(leads)[2].leader)
        controllers = [node for node in self._cluster.controllers if node is not leader]
        leader.pause()
        await asyncio.gather(
            self._cut_off([leader], controllers, _STOPPED_SECONDS + 1), self._go_on_after(leader, _STOPPED_SECONDS)
        )

    async def _refuse_controllers(self) -> None:
        active = next(
            (node for node in self._cluster.controllers if node.broker is not None and _is_active(node.broker)), None
        )
        if active is None or active.is_broker:
            return
        others = [node for node in self._cluster.controllers if node is not active]
        self._note(f"{active.name} and the other controllers refuse each other")
        await self._refuse(active, others)

    async def _deny_broker(self) -> None:
        broker = self._random.choice([node for node in self._cluster.brokers if not node.is_controller])
        self._note(f"{broker.name} and the controllers refuse each other")
        await self._refuse(broker, [node for node in self._cluster.controllers if not node.is_broker])

    async def _refuse(self, node: Node, others: Sequence[Node]) -> None:
        network = self._cluster.world.network
        for other in others:
            network.refuse(node.name, other.name)
        await asyncio.sleep(self._random.between(*_APART_SECONDS))
        for other in others:
            network.allow(node.name, other.name)

    async def _go_on_after(self, node: Node, seconds: float) -> None:
        await asyncio.sleep(seconds)
        node.resume()

    def _leads(self) -> list[tuple[str, int, PartitionImage]]:
        """Partitions with a leader whom others follow."""
        image = self._replicas.image
        return [
            (topic.name, index, state)
            for topic in (image.topics.values() if image is not None else ())
            for index, state in topic.partitions.items()
            if state.leader >= 0 and len(state.replicas) > 1
        ]

    def _in_sync(self, topic: str, index: int) -> tuple[int, ...]:
        image = self._replicas.image
        found = image.topics.get(topic) if image is not None else None
        return found.partitions[index].isr if found is not None and index in found.partitions else ()

    def _node(self, node_id: int) -> Node:
        return next(node for node in self._cluster.nodes if node.node_id == node_id)

    async def _cut_off(self, some: Sequence[Node], others: Sequence[Node], seconds: float) -> None:
        """Both ways; with several of `some`, from each other too if they are among the others."""
        pairs = [(one.name, other.name) for one in some for other in others if one is not other]
        await self._cut(list(dict.fromkeys([*pairs, *((target, source) for source, target in pairs)])), seconds)

    def _note(self, text: str) -> None:
        self._cluster.world.trace.note("world", text)


def _is_active(broker: Broker) -> bool:
    return getattr(broker, "quorum", None) is not None and broker.quorum.is_active

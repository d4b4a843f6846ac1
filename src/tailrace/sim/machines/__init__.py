"""Machines with several brokers each, which are lost together: how they are told, and where replicas must lie then.

With two replicas needed for an acknowledgement, and no two of a partition on one machine, the loss of a machine takes
nothing that was acknowledged: `checks.final` looks at that, and here is looked at what it rests on. Replicas that a
person has chosen may lie together, until a balancer has been there.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from tailrace.sim.checks.history import demand
from tailrace.sim.checks.replicas import ReplicaChecks
from tailrace.sim.cluster import Node, World

_LOOK_SECONDS = 0.5
_RULE = "replicas lie on different machines"


def machine_settings(brokers: int, on_each: int) -> dict[str, str]:
    """Each simulated node has a host of its own, so the setting must tell which of them share a machine."""
    names = [f"machine-{first}:{first}-{first + on_each - 1}" for first in range(1, brokers + 1, on_each)]
    return {"tailrace.machines": ",".join(names)}


def machine_number(node: Node, on_each: int) -> int:
    return (node.node_id - 1) // on_each


class MachineRun:
    def __init__(
        self, world: World, replicas: ReplicaChecks, *, machines: int, on_each: int, by_hand: Container[str]
    ) -> None:
        """`by_hand` are topics of which somebody chooses the replicas."""
        self._world = world
        self._replicas = replicas
        self._machines = machines
        self._on_each = on_each
        self._by_hand = by_hand
        self._next_look = 0.0
        # How many partitions there are, and those whose replicas lie together.
        self._partitions = 0
        self._crowded: dict[str, Sequence[int]] = {}

    async def start(self) -> None:
        """Nothing of it runs by itself."""

    def look(self, node: Node) -> None:
        """What matters is the metadata, which all nodes share."""

    def check(self) -> None:
        if self._world.loop.now < self._next_look or self._replicas.image is None:
            return
        self._next_look = self._world.loop.now + _LOOK_SECONDS
        crowded: dict[str, Sequence[int]] = {}
        count = 0
        for topic in self._replicas.image.topics.values():
            for index, state in topic.partitions.items():
                count += 1
                wanted = [node_id for node_id in state.replicas if node_id not in state.removing_replicas]
                found = {(node_id - 1) // self._on_each for node_id in wanted}
                if len(found) < min(self._machines, len(wanted)):
                    crowded[f"{topic.name}-{index}"] = wanted
                    is_placed = topic.name not in self._by_hand
                    demand(not is_placed, _RULE, partition=f"{topic.name}-{index}", replicas=wanted)
        self._partitions, self._crowded = count, crowded

    async def stop(self) -> None:
        """Once all is healed, and a balancer has had its time."""
        demand(self._partitions > 0, "there are partitions whose machines were looked at")
        demand(not self._crowded, _RULE, crowded=self._crowded)

    def story(self) -> str:
        return f", {self._partitions} partitions on {self._machines} machines"

"""Who sees processes die and tells the controllers: the supervisor that half of a cluster's nodes have, so to speak.

It tells what it finds in the folders of the dead, as `tailrace up` does, but its word may be on its way for so long
that the successor of the dead is at work by then. Of hosts without power it hears nothing.
"""

from __future__ import annotations

import asyncio

from tailrace.broker.cluster.deaths import Incarnation, find_dead, find_way, report_deaths
from tailrace.client.connection import Address
from tailrace.model.config import BrokerConfig
from tailrace.model.ports import Ports
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.cluster import CONTROLLER_PORT, Node, SimCluster
from tailrace.sim.random import SimRandom

_HOST = "supervisor"
_SEEN_SHARE = 0.5
_LATE_SHARE = 0.3
_LATE_SECONDS_MAX = 6.0


class Deaths:
    def __init__(self, cluster: SimCluster, random: SimRandom) -> None:
        self._cluster = cluster
        self._random = random

    def note(self, node: Node) -> None:
        """Its process was killed just now."""
        if node.is_up or not node.is_broker or node.disk.is_faulty or self._random.random() >= _SEEN_SHARE:
            return
        node.disk.crash()  # The kernel gives back the locks of the dead.
        dead = find_dead(node.disk, node.config.log_dirs, node.node_id)
        if dead is not None:
            late = self._random.random() < _LATE_SHARE
            delay_seconds = self._random.between(0, _LATE_SECONDS_MAX) if late else 0.0
            process = self._cluster.world.loop.process(f"{_HOST} of {node.name} in life {node.lives}")
            ports = Ports(
                clock=ProcessClock(process),
                random=self._random,
                disk=node.disk,
                network=self._cluster.world.network.port(_HOST, process),
                background=SimBackground(),
                tls=node.tls,
            )
            process.spawn(self._tell(dead, delay_seconds, node.config, ports), name=_HOST)

    async def _tell(self, dead: Incarnation, delay_seconds: float, config: BrokerConfig, ports: Ports) -> None:
        await asyncio.sleep(delay_seconds)
        controllers = [Address(node.name, CONTROLLER_PORT) for node in self._cluster.controllers]
        code = await report_deaths(await find_way(config, ports), controllers, [dead])
        note = f"told of the death of broker {dead.node_id} in epoch {dead.broker_epoch}: {code.name}"
        self._cluster.world.trace.note("world", note)

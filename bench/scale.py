"""`python -m bench.scale`: how a cluster's reactions grow with its size, in the virtual time of the simulator.

Measures what elections and metadata cost, not how fast this machine is: the deaths of a broker and of the active
controller, the virtual time until every partition has a live leader that all brokers know of, the records that it took,
and what many partitions at once take. The processor time that the simulation took is told beside it.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from tailrace.client.admin import Admin
from tailrace.sim.clients.workload import Clients, Ledger
from tailrace.sim.cluster import Node, SimCluster, World
from tailrace.sim.faults import is_active_controller
from tailrace.sim.loop import SimLoop
from tailrace.sim.network import SimNetwork
from tailrace.sim.random import SimRandom
from tailrace.sim.scenario import Plan, nodes_of
from tailrace.sim.trace import Trace

SIZES = ((10, 200), (25, 500), (50, 1000))
MANY = (10, 10_000)
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.01
# CreateTopics with more would exceed metadata.max.batch.bytes.
_PARTITIONS_PER_TOPIC = 500


class Scale:
    def __init__(self, brokers: int) -> None:
        random = SimRandom(1)
        self.loop = SimLoop(random.fork())
        self.world = World(self.loop, SimNetwork(self.loop, random.fork()), random, Trace(self.loop))
        plan = Plan(brokers=brokers, is_dedicated=True)
        self.cluster = SimCluster(self.world, nodes_of(self.world, plan))

    def run(self, story: Callable[["Scale"], Awaitable[Any]]) -> tuple[Any, float]:
        started = time.process_time()
        with self.world.trace.listening():
            result = self.loop.run_until_complete(self._run(story))
        self.loop.close()
        return result, time.process_time() - started

    async def _run(self, story: Callable[["Scale"], Awaitable[Any]]) -> Any:
        self.cluster.format()
        self.cluster.start_all()
        assert await self.cluster.wait_ready(_PATIENCE_SECONDS), "the cluster does not start"
        return await story(self)

    async def create_partitions(self, count: int) -> tuple[float, int]:
        """Virtual seconds until every broker knows all of them and their leaders lead, and metadata records."""
        process, client = Clients(self.world, self.cluster, Ledger()).connect("admin")
        admin = Admin(client)

        async def create() -> None:
            for start in range(0, count, _PARTITIONS_PER_TOPIC):
                wanted = min(_PARTITIONS_PER_TOPIC, count - start)
                await admin.create_topic(f"topic-{start}", partition_count=wanted, replication_factor=3)

        start, records = self.loop.now, self._metadata_end()
        await process.spawn(create(), name="admin")
        await self._wait(lambda: all(self._knows_leaders(node, count) for node in self.cluster.brokers))
        return self.loop.now - start, self._metadata_end() - records

    async def kill(self, node: Node) -> tuple[float, int]:
        """Virtual seconds until all others know a live leader of every partition, and metadata records."""
        count = sum(len(topic.partitions) for topic in self._image().topics.values())
        start, records = self.loop.now, self._metadata_end()
        node.kill()
        await self._wait(
            lambda: (
                any(map(is_active_controller, self.cluster.nodes))
                and all(self._knows_leaders(each, count, without=node) for each in self.cluster.brokers if each.is_up)
            )
        )
        return self.loop.now - start, self._metadata_end() - records

    def active_controller(self) -> Node:
        return next(filter(is_active_controller, self.cluster.nodes))

    def _image(self) -> Any:
        return max((node.broker.image for node in self.cluster.nodes if node.broker), key=lambda each: each.next_offset)

    def _metadata_end(self) -> int:
        return self._image().next_offset

    def _knows_leaders(self, node: Node, count: int, without: Node | None = None) -> bool:
        assert node.broker is not None, "it is up"
        states = [state for topic in node.broker.image.topics.values() for state in topic.partitions.values()]
        dead = {-1, without.node_id if without is not None else -1}
        return len(states) == count and all(state.leader not in dead for state in states)

    async def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = self.loop.now + _PATIENCE_SECONDS
        while not is_done():
            assert self.loop.now < deadline, "it does not recover"
            await asyncio.sleep(_LOOK_SECONDS)


async def _deaths(scale: Scale, partitions: int) -> list[tuple[str, float, int]]:
    created = await scale.create_partitions(partitions)
    await asyncio.sleep(2)
    broker = await scale.kill(scale.cluster.brokers[0])
    await asyncio.sleep(2)
    controller = await scale.kill(scale.active_controller())
    return [("created", *created), ("a broker dies", *broker), ("the controller dies", *controller)]


def main() -> int:
    table = Table(title="in virtual time, with the default settings")
    table.add_column("brokers, partitions")
    for heading in ("", "virtual s", "metadata records", "processor s"):
        table.add_column(heading, justify="right")
    for brokers, partitions in (*SIZES, MANY):
        scale = Scale(brokers)
        if (brokers, partitions) == MANY:
            result, seconds = scale.run(lambda each, count=partitions: each.create_partitions(count))  # type: ignore[misc]
            rows = [("created", *result)]
        else:
            rows, seconds = scale.run(lambda each, count=partitions: _deaths(each, count))  # type: ignore[misc]
        for name, virtual, records in rows:
            table.add_row(f"{brokers}, {partitions}", name, f"{virtual:.2f}", f"{records:,}", f"{seconds:.0f}")
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Three nodes that get so little CPU that each turn of their loops is late, and of which one at a time is stopped.

Their active controller is not sure of its lead most of the time, and answers no heartbeat then. It hears them all the
same: once it had not, and fenced two live brokers in the first moment in which it might act, and again and again, so
that partitions took nothing for a minute and more.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from tailrace.client.connection import Address, Connection, open_connection
from tailrace.model.errors import KafkaError
from tailrace.sim.cluster import CLIENT_PORT
from tailrace.sim.loop import SimLoop
from tailrace.wire.apis.admin import CreateTopicsRequest
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse, ProduceRequest, ProduceResponse
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster, simulated
from tests.unit.broker.test_absences import USUAL_TIMES
from tests.unit.broker.world import batch

PARTITIONS = 12
STOPS = 30
STOPPED_SECONDS, GOING_SECONDS = 3.0, 1.0
# Nobody who is stopped for 3 s can be waited for by less than that; two in a row and a new leader add up to this.
LATE_SECONDS_MAX = 25.0
ANSWER_MS = 60_000


class Writer:
    """A record to one partition after the other, with acks=all, each until it is acknowledged; many at a time."""

    def __init__(self, connect: Callable[[int], Awaitable[Connection]], chance: random.Random) -> None:
        self.late_seconds: list[float] = []
        self.is_over = False
        self._connect = connect
        self._chance = chance
        self._connections: dict[int, asyncio.Future[Connection]] = {}
        self._leaders: dict[int, int] = {}

    async def run(self) -> None:
        writing = set()
        while not self.is_over:
            writing.add(asyncio.ensure_future(self._write(len(writing) % PARTITIONS)))
            await asyncio.sleep(0.2)
        await asyncio.wait(writing)

    async def _write(self, index: int) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not await self._is_taken(index):
            await self._look()
            await asyncio.sleep(0.1)
        self.late_seconds.append(loop.time() - began)

    async def _is_taken(self, index: int) -> bool:
        leader = self._leaders.get(index, -1)
        if leader < 0:
            return False
        data = ProduceRequest.PartitionProduceData(index=index, records=batch(b"x"))
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        try:
            connection = await self._connection(leader)
            answer = await connection.call(request, ProduceResponse, timeout_ms=ANSWER_MS, version_max=12)
        except KafkaError:
            return False
        return not answer.responses[0].partition_responses[0].error_code

    async def _look(self) -> None:
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        try:
            connection = await self._connection(self._chance.choice((1, 2, 3)))
            answer = await connection.call(request, MetadataResponse, timeout_ms=ANSWER_MS)
        except KafkaError:
            return
        self._leaders |= {each.partition_index: each.leader_id for each in answer.topics[0].partitions}

    async def _connection(self, node_id: int) -> Connection:
        known = self._connections.get(node_id)
        if known is None or (known.done() and (known.exception() is not None or not known.result().is_open)):
            known = self._connections[node_id] = asyncio.ensure_future(self._connect(node_id))
        return await asyncio.shield(known)


async def write_meanwhile(world: ClusterWorld, chance: random.Random, turn_seconds: float) -> list[float]:
    """How late each record was."""
    process = cast(SimLoop, asyncio.get_running_loop()).process("writer")
    port = world.network.port("writer", process)
    writer = Writer(lambda node_id: open_connection(port, Address(f"node-{node_id}", CLIENT_PORT)), chance)
    writing = process.spawn(writer.run(), name="writer")
    for node in world.nodes.values():
        node.slow_down(turn_seconds)
    for _ in range(STOPS):
        stopped = chance.choice([*world.nodes.values()]).process
        assert stopped is not None
        stopped.pause()
        await asyncio.sleep(STOPPED_SECONDS)
        stopped.resume()
        await asyncio.sleep(GOING_SECONDS)
    for node in world.nodes.values():
        node.resume()
    writer.is_over = True
    await writing
    return writer.late_seconds


def check(seed: int, turn_seconds: float) -> None:
    @simulated
    async def play() -> None:
        async with running_cluster(settings=USUAL_TIMES) as world:
            peer = await world.connect(1)
            topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=3)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
            assert (await peer.request(request, 7)).topics[0].error_code == 0
            await asyncio.sleep(5)
            late_seconds = await write_meanwhile(world, random.Random(seed), turn_seconds)
            assert len(late_seconds) > STOPS
            assert max(late_seconds) <= LATE_SECONDS_MAX

    play()


def test_writes_go_on_where_all_nodes_are_late() -> None:
    check(3, 0.2)


@pytest.mark.long
@pytest.mark.parametrize("turn_seconds", [0.02, 0.1, 0.15, 0.2])
@pytest.mark.parametrize("seed", range(1, 5))
def test_writes_go_on_however_late_they_are(seed: int, turn_seconds: float) -> None:
    check(seed, turn_seconds)

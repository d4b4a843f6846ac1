"""Simulated brokers with remote storage in a bucket, and a client that reads records one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.broker.tier.parts import TieredLog
from tailrace.replica.partition import Partition
from tailrace.sim.clock import ProcessClock
from tailrace.sim.objects import SimBucket, SimObjectStores
from tailrace.sim.random import SimRandom
from tailrace.sim.tier import TIER_SETTINGS
from tailrace.tier.recovery.plan import RecoveryPlan
from tailrace.wire.apis.admin import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from tailrace.wire.apis.data import ListOffsetsRequest
from tailrace.wire.records import iterate_headers, iterate_records
from tests.unit.broker.cluster_world import ClusterWorld
from tests.unit.broker.world import Peer, batch, create_topic, fetch, fetched, produce, produced

EARLIEST, LATEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -2, -1, -3, -4, -5, -6
BASE_MS = 1_767_225_600_000
SMALL = {"remote_storage_enable": "true", "internal_segment_bytes": "3000", "local_retention_bytes": "4000"}
ALONE = "broker,controller"
TOPIC = 2


class TieredWorld(ClusterWorld):
    def __init__(self, roles: list[str], settings: dict[str, str]) -> None:
        super().__init__(roles, {**TIER_SETTINGS, "log.initial.task.delay.ms": "100", **settings})
        self.recovered: RecoveryPlan | None = None  # The last that was made of the bucket.
        self.bucket = SimBucket(ProcessClock(self.loop.world), SimRandom(3))
        for node in self.nodes.values():
            node.objects = SimObjectStores(self.bucket)

    def partition(self, node_id: int, topic: str = "t") -> Partition:
        broker = self.nodes[node_id].broker
        assert broker is not None
        return broker.replicas.partitions[topic, 0]

    def part(self, node_id: int, topic: str = "t") -> TieredLog:
        found = self.partition(node_id, topic).tier
        assert isinstance(found, TieredLog)
        return found

    def leader(self, topic: str = "t") -> int:
        return next(
            node_id
            for node_id, node in self.nodes.items()
            if node.broker is not None
            and node.is_ready
            and (found := node.broker.replicas.partitions.get((topic, 0))) is not None
            and found.is_leader
        )

    @property
    def segments(self) -> list[str]:
        return sorted(name for name in self.bucket.objects if name.endswith(".segment"))

    async def fill(self, peer: Peer, count: int = 40, *, topic: str = "t", acks: int = -1) -> int:
        """Batches of one record, a second after each other; gives the end offset."""
        offset = 0
        for number in range(count):
            value = b"%06d" % number + b"x" * 400
            now_ms = BASE_MS + 1000 * number
            answer = produced(await peer.request(produce(topic, batch(value, now_ms=now_ms), acks=acks), 9))
            assert answer.error_code == 0, answer
            offset = answer.base_offset + 1
        return offset

    async def wait_tiered(self, node_id: int, topic: str = "t") -> int:
        """Until most of it is in the store alone; gives where the local log begins."""

        def is_settled() -> bool:
            log = self.partition(node_id, topic).log
            return log.log_start_offset > 0 and log.size_bytes < 8000

        await self.wait(is_settled, "most of the log lies in the store alone")
        return self.partition(node_id, topic).log.log_start_offset


@asynccontextmanager
async def running_tiered(*roles: str, **settings: str) -> AsyncIterator[TieredWorld]:
    world = TieredWorld(list(roles or (ALONE,)), {name.replace("_", "."): value for name, value in settings.items()})
    await world.start_all()
    yield world
    for peer in world.peers:
        await peer.close()
    await world.stop_all()
    world.check()


async def tiered_topic(world: TieredWorld, count: int = 40, **configs: str) -> Peer:
    """On a broker that is alone, most of it in the store."""
    peer = await world.connect(1)
    await create_topic(peer, "t", **{**SMALL, **configs})
    await world.fill(peer, count)
    await world.wait_tiered(1)
    return peer


async def list_offset(peer: Peer, timestamp: int, topic: str = "t", version: int = 11):
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
    return (await peer.request(ListOffsetsRequest(topics=topics), version)).topics[0].partitions[0]


async def read_all(peer: Peer, start: int, end: int, topic: str = "t", **fields) -> list[bytes]:
    """As a consumer does, with nothing twice and nothing left out."""
    offset, values, empty = start, [], 0
    while offset < end:
        data = fetched(await peer.request(fetch(topic, offset, max_wait_ms=500, **fields), 11))
        assert data.error_code == 0, data.error_code
        records = bytes(data.records or b"")
        empty = 0 if records else empty + 1
        assert empty < 20, f"nothing comes at offset {offset}"
        for position, header in iterate_headers(records, allow_partial=True):
            if header.next_offset <= offset:
                continue
            for record in iterate_records(memoryview(records)[position:], max_decompressed_bytes=1 << 20):
                if record.offset >= offset:
                    assert record.offset == offset, f"{record.offset} after {offset - 1}"
                    values.append(bytes(record.value or b""))
                    offset += 1
    return values


async def alter(peer: Peer, **settings: str) -> IncrementalAlterConfigsResponse.AlterConfigsResourceResponse:
    """Of topic t."""
    config = IncrementalAlterConfigsRequest.AlterableConfig
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[
            config(name=name.replace("_", "."), config_operation=0, value=value) for name, value in settings.items()
        ],
    )
    response = await peer.request(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return response.responses[0]

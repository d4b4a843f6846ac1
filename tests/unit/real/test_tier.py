"""The tier over real stores: segments of a real log go to a folder and to an S3 server of others, and come back."""

from __future__ import annotations

import asyncio
import os

import pytest

from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.config import TopicConfig
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.model.ports import Ports, StoreAwayError, StoreLimits
from tailrace.real.ports import real_ports
from tailrace.tier.format.names import TieredPartition, parse_name
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.keeping.local import LocalSegmentSource, view_of
from tailrace.tier.keeping.removal import Remover
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.pieces import Pieces, ReadLimits
from tailrace.tier.reading.reader import TierReader
from tailrace.tier.store.guard import GuardedObjects, GuardLimits
from tailrace.wire.records import iterate_headers
from tailrace.wire.schema import Message
from tests.unit.log.storage import make_batch
from tests.unit.real.test_objects import endpoint, options

__all__ = ["endpoint"]  # a fixture

OWNER = TieredPartition(Uuid(bytes(range(16))), PartitionIndex(0))
# S3 takes no parts below 5 MiB: a segment of more goes in two.
LIMITS = StoreLimits(request_timeout_ms=20_000, part_bytes=5 << 20)


class Leader:
    """Of one partition, with a metadata log that never fails."""

    def __init__(self, ports: Ports, folder: str, store: GuardedObjects) -> None:
        self.ports, self.store = ports, store
        config = TopicConfig(segment_bytes=6 << 20, max_message_bytes=1 << 20, message_timestamp_before_max_ms=1 << 60)
        partition = TopicPartition("orders", PartitionIndex(0))
        self.log = Log.open(ports.disk, ports.clock, f"{folder}/orders-0", config, topic_partition=partition)
        self.machine = TierMachine()
        throttle = Throttle(ports.clock)
        self.copier = Copier("cluster", 1, store, ports.clock, ports.random, throttle, ports.background)
        self.remover = Remover("cluster", 1, store, ports.clock, delay_ms=0)
        self.cache = PieceCache(ports.disk, ports.background, f"{folder}/cache", 64 << 20)
        throttle = Throttle(ports.clock)
        self.pieces = Pieces("cluster", store, self.cache, ports.background, throttle=throttle, limits=ReadLimits())
        self.reader = TierReader(self.pieces, ports.background, 1 << 20)

    async def append(self, record: Message) -> None:
        assert self.machine.replay(record, self.machine.next_offset)

    async def copy_all(self) -> None:
        for number in range(len(self.log.segments) - 1):
            source = LocalSegmentSource(self.ports.disk, self.ports.background, self.log, number)
            await self.copier.copy(self, "orders", OWNER, source, source.epochs, leader_epoch=0)


@pytest.fixture(params=["folder", "s3"])
async def leader(request, tmp_path):
    ports = real_ports()
    assert ports.objects is not None
    if request.param == "folder":
        objects = await ports.objects.open(f"file://{tmp_path}/tier", {}, LIMITS)
    else:
        address = request.getfixturevalue("endpoint")
        objects = await ports.objects.open(f"s3://tier/{tmp_path.name}", options(address), LIMITS)
    store = GuardedObjects(objects, ports.clock, ports.random, GuardLimits(tries=2))
    made = Leader(ports, f"{tmp_path}/data", store)
    await made.cache.open()
    yield made
    made.pieces.close()
    made.log.close(clean=False)
    ports.background.close()


async def test_a_log_goes_to_a_store_and_comes_back(leader: Leader) -> None:
    log = leader.log
    for number in range(170):
        value = os.urandom(100_000) if number % 10 else b"small"
        log.append_as_leader(
            make_batch(3, timestamp=1000 + number, value=value[:100_000]), leader_epoch=0, origin=Origin.CLIENT
        )
    assert len(log.segments) >= 3
    await leader.copy_all()
    tier = leader.machine.partitions[OWNER]
    coverage = view_of(log, tier, high_watermark=log.log_end_offset).coverage
    end_offset = log.segments[-1].base_offset
    assert coverage.end_from(0) == end_offset
    offset, read = 0, []
    while offset < end_offset:
        batches = await leader.reader.read(OWNER, coverage, offset, 1 << 20)
        read.append(batches)
        offset = [header for _, header in iterate_headers(batches)][-1].next_offset
    local = b"".join(each.file.read(0, each.size_bytes) for each in log.segments[:-1])
    assert b"".join(read) == local, "byte for byte"
    found = await leader.reader.find_time(OWNER, coverage, 1050)
    assert found is not None
    assert (found.timestamp, found.offset, found.leader_epoch) == log.offset_by_timestamp(1050, end_offset=end_offset)

    listed = await leader.store.list("cluster")
    assert {parse_name("cluster", each.name).segment_id for each in listed} == set(tier.visible)  # type: ignore[union-attr]
    await leader.remover.begin(leader, OWNER, tier, list(tier.visible.values()), leader_epoch=0)
    await asyncio.sleep(0.01)
    assert await leader.remover.finish(leader, OWNER, tier, leader_epoch=0) == len(listed)
    assert await leader.store.list("cluster") == []


async def test_a_store_that_is_gone_is_told_and_what_was_read_is_still_there(tmp_path, unused_tcp_port: int) -> None:
    ports = real_ports()
    assert ports.objects is not None
    objects = await ports.objects.open("s3://tier/x", options(f"http://127.0.0.1:{unused_tcp_port}"), LIMITS)
    store = GuardedObjects(objects, ports.clock, ports.random, GuardLimits(tries=2, backoff_ms=10))
    gone = Leader(ports, f"{tmp_path}/data", store)
    for _ in range(60):
        gone.log.append_as_leader(make_batch(1, value=bytes(200_000)), leader_epoch=0, origin=Origin.CLIENT)
    with pytest.raises(StoreAwayError, match="cannot be written"):
        await gone.copy_all()
    tier = gone.machine.partitions[OWNER]
    assert (len(tier.visible), len(tier.copying), len(tier.deleting)) == (0, 0, 1), "it was taken back"
    gone.log.close(clean=False)
    ports.background.close()

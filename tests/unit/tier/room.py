"""A log on the simulated disk, a bucket, and the tier between them: for tests of copying and reading."""

from __future__ import annotations

import asyncio

from tailrace.log.log import Log
from tailrace.log.validation import Origin
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import SimLoop
from tailrace.sim.objects import SimBucket, SimObjects
from tailrace.sim.random import SimRandom
from tailrace.tier.format.names import TieredPartition, segment_name
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.keeping.local import LocalSegmentSource, view_of
from tailrace.tier.keeping.removal import Remover
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.metadata.coverage import Coverage, RemoteSegment
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.partition import PartitionTier
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.pieces import Pieces, ReadLimits
from tailrace.tier.reading.reader import TierReader
from tailrace.tier.store.guard import GuardedObjects, GuardLimits
from tailrace.wire.schema import Message

CLUSTER = "cluster"
OWNER = TieredPartition(Uuid(bytes(range(16))), PartitionIndex(0))
CHUNK_BYTES = 256
DELAY_MS = 60_000


class Room:
    def __init__(self, **settings: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.clock = ProcessClock(loop.world)
        self.disk = SimDisk(self.clock)
        self.background = SimBackground()
        self.bucket = SimBucket(self.clock, SimRandom(1))
        self.throttle = Throttle(self.clock)
        limits = GuardLimits(tries=2, call_timeout_ms=1000)
        self.store = GuardedObjects(SimObjects(self.bucket), self.clock, SimRandom(2), limits)
        config = TopicConfig(
            **{
                "segment_bytes": 1500,
                "index_interval_bytes": 100,
                "message_timestamp_before_max_ms": 1 << 60,
                **settings,
            }
        )
        partition = TopicPartition("orders", PartitionIndex(0))
        self.log = Log.open(self.disk, self.clock, "/data/orders-0", config, topic_partition=partition)
        self.machine = TierMachine()
        self.written: list[Message] = []
        self.copier = Copier(
            CLUSTER, 1, self.store, self.clock, SimRandom(3), self.throttle, self.background, chunk_bytes=CHUNK_BYTES
        )
        self.remover = Remover(CLUSTER, 1, self.store, self.clock, DELAY_MS)
        self.cache = PieceCache(self.disk, self.background, "/cache", 1 << 20)
        self.read_limits = ReadLimits(piece_bytes=2 * CHUNK_BYTES, ahead_bytes=8 * CHUNK_BYTES)
        self.open_reader()

    def open_reader(self) -> None:
        """As after a restart: nothing is in memory."""
        self.pieces = Pieces(
            CLUSTER, self.store, self.cache, self.background, throttle=self.throttle, limits=self.read_limits
        )
        self.reader = TierReader(self.pieces, self.background, 1 << 20)

    @property
    def tier(self) -> PartitionTier:
        return self.machine.partitions.get(OWNER) or PartitionTier("orders")

    async def append(self, record: Message) -> None:
        """As MetadataLog."""
        self.written.append(record)
        if not self.machine.replay(record, self.machine.next_offset):
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    def produce(self, batch: memoryview, *, origin: Origin = Origin.CLIENT) -> None:
        self.log.append_as_leader(batch, leader_epoch=0, origin=origin)

    async def copy(self, number: int) -> RemoteSegment:
        source = LocalSegmentSource(self.disk, self.background, self.log, number)
        return await self.copier.copy(self, "orders", OWNER, source, source.epochs, leader_epoch=0)

    async def copy_all(self) -> None:
        for number in range(len(self.log.segments) - 1):
            await self.copy(number)

    @property
    def coverage(self) -> Coverage:
        return view_of(self.log, self.tier, high_watermark=self.log.log_end_offset).coverage

    def name(self, segment: RemoteSegment) -> str:
        return segment_name(CLUSTER, OWNER, segment.base_offset, segment.segment_id)

    def damage(self, segment: RemoteSegment, position: int) -> None:
        data = bytearray(self.bucket.objects[self.name(segment)].data)
        data[position] ^= 1
        self.bucket.store(self.name(segment), bytes(data))

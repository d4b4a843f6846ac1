"""Tiered storage in the simulator: brokers that lead in turn, a bucket with faults, and what must hold at any time.

Of a cluster there is only what the tier needs: three logs of one partition, of which one leads and one may lag, and
__remote_log_metadata as a list of records, whose writes may be slow, lost, or done and denied. Leaders run the tier's
own code as processes of the simulated loop: they are killed and stalled wherever they are. Their segments end at
different offsets. Now and then a replica is elected that misses the end of the log.

What must hold (Broken is raised where it does not):
- what is read from the tier is, byte for byte, what the leader's log holds;
- what is only in the tier can be read from there;
- a visible copy has its object;
- the log start never goes back, and moves by retention alone;
- once all is quiet, the bucket holds the visible copies and nothing else.
"""

from __future__ import annotations

import asyncio

from tailrace.log.log import Log
from tailrace.model.config import TopicConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition, Uuid
from tailrace.model.ports import StoreError
from tailrace.sim.background import SlowBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import Process, SimLoop
from tailrace.sim.objects import SimBucket, SimObjects, StoreFaults
from tailrace.sim.random import SimRandom
from tailrace.tier.format.names import TieredPartition, segment_name
from tailrace.tier.keeping import decisions
from tailrace.tier.keeping.copying import Copier
from tailrace.tier.keeping.local import LocalSegmentSource, view_of
from tailrace.tier.keeping.removal import Remover
from tailrace.tier.keeping.throttle import Throttle
from tailrace.tier.metadata import coverage
from tailrace.tier.metadata.machine import TierMachine
from tailrace.tier.metadata.partition import PartitionTier
from tailrace.tier.metadata.snapshot import read_snapshot, write_snapshot
from tailrace.tier.reading.cache import PieceCache
from tailrace.tier.reading.pieces import Pieces, ReadLimits
from tailrace.tier.reading.reader import GapError, TierReader
from tailrace.tier.store.circuit import CircuitLimits
from tailrace.tier.store.guard import GuardedObjects, GuardLimits
from tailrace.wire.apis.stored_records import REMOTE_LOG_RECORDS
from tailrace.wire.record_envelopes import decode_metadata_record, encode_metadata_record
from tailrace.wire.records import Record, build_batch, iterate_headers
from tailrace.wire.schema import Message

CLUSTER = "cluster"
PARTITION = TopicPartition("orders", PartitionIndex(0))
OWNER = TieredPartition(Uuid(bytes(range(16))), PartitionIndex(0))
PUT_TIMEOUT_MS = 5_000
DELETE_DELAY_MS = 20_000  # Longer than all tries of a put, and than a put that comes late.
LIMITS = GuardLimits(
    call_timeout_ms=500, put_timeout_ms=PUT_TIMEOUT_MS, tries=2, circuit=CircuitLimits(pause_ms=200, pause_max_ms=1000)
)
CHUNK_BYTES = 512
SEGMENT_MAX_BYTES = 1300


class Broken(AssertionError):
    """Something that must hold does not."""


class Topic:
    """__remote_log_metadata: what is committed."""

    def __init__(self, random: SimRandom) -> None:
        self.values: list[bytes] = []
        self.has_faults = True
        self._random = random

    async def write(self, record: Message) -> int:
        value = encode_metadata_record(record)
        await asyncio.sleep(self._random.between(0.001, 0.05))
        chance = self._random.random() if self.has_faults else 1.0
        if chance < 0.05:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.values.append(value)
        offset = len(self.values) - 1
        if chance < 0.08:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        await asyncio.sleep(self._random.between(0.0, 0.02))
        return offset


class Broker:
    """A replica of the partition. The log itself is kept whole; `local_start` says what would be gone."""

    def __init__(self, clock: ProcessClock, number: int, segment_bytes: int) -> None:
        self.number = number
        self.disk = SimDisk(clock)
        self.config = TopicConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=200,
            local_retention_bytes=2000,
            retention_bytes=15_000,
            retention_ms=-1,
            message_timestamp_before_max_ms=1 << 60,
        )
        self.log = Log.open(self.disk, clock, "/data/orders-0", self.config, topic_partition=PARTITION)
        self.local_start = 0
        self.log_start = 0

    def follow(self, leader: Broker) -> None:
        """All that the leader has, after a cut where the histories part."""
        self.log_start = max(self.log_start, leader.log_start)
        while True:
            epoch, end = leader.log.epochs.end_offset_for(self.log.epochs.latest, leader.log.log_end_offset)
            if self.log.epochs.latest < 0 or (epoch == self.log.epochs.latest and self.log.log_end_offset <= end):
                break
            before = self.log.log_end_offset
            self.log.truncate(min(end if epoch >= 0 else 0, leader.log.log_end_offset))
            own_epoch, own_end = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
            if own_epoch != epoch or own_end < end:
                self.log.truncate(max(own_end, 0))
            if self.log.log_end_offset == before:
                break
        # A segment that was cut is local as a whole.
        bases = [each.base_offset for each in self.log.segments]
        self.local_start = max((base for base in bases if base <= self.local_start), default=bases[0])
        while self.log.log_end_offset < leader.log.log_end_offset:
            found = leader.log.read(self.log.log_end_offset, 1 << 20, end_offset=leader.log.log_end_offset)
            assert found is not None
            self.log.append_as_follower(memoryview(bytearray(found.read())))


class Leader:
    """A process that leads in one epoch, and works at the tier."""

    def __init__(self, world: World, broker: Broker, epoch: int) -> None:
        self.world = world
        self.broker = broker
        self.epoch = epoch
        self.process: Process = world.loop.process(f"leader-{epoch}")
        self.clock = ProcessClock(self.process)
        self.machine = TierMachine()
        if world.random.random() < 0.5:
            self.machine = read_snapshot(write_snapshot(world.replayed()))
        random = world.random.fork()
        self.background = SlowBackground(random.fork())
        self.store = GuardedObjects(SimObjects(world.bucket), self.clock, random.fork(), LIMITS)
        throttle = Throttle(self.clock)
        self.copier = Copier(
            CLUSTER,
            broker.number,
            self.store,
            self.clock,
            random.fork(),
            throttle,
            self.background,
            chunk_bytes=CHUNK_BYTES,
        )
        self.remover = Remover(CLUSTER, broker.number, self.store, self.clock, DELETE_DELAY_MS)
        self.cache = PieceCache(broker.disk, self.background, "/cache", 8_000)
        limits = ReadLimits(piece_bytes=2 * CHUNK_BYTES, ahead_bytes=8 * CHUNK_BYTES)
        self.pieces = Pieces(CLUSTER, self.store, self.cache, self.background, throttle=throttle, limits=limits)
        self.reader = TierReader(self.pieces, self.background, 1 << 20)
        self.reads = 0
        self.has_settled = False  # It knows where the log starts.
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def is_current(self) -> bool:
        return self.world.leader is self

    @property
    def tier(self) -> PartitionTier:
        return self.machine.partitions.get(OWNER) or PartitionTier(PARTITION.topic)

    async def append(self, record: Message) -> None:
        """As MetadataLog."""
        offset = await self.world.topic.write(record)
        self.replay(offset)
        value = decode_metadata_record(self.world.topic.values[offset], REMOTE_LOG_RECORDS)
        if not self.machine.replay(value, offset):
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    async def catch_up(self) -> None:
        end = len(self.world.topic.values)
        await asyncio.sleep(0.01)
        self.replay(end)

    def replay(self, end: int) -> None:
        for offset in range(self.machine.next_offset, end):
            record = decode_metadata_record(self.world.topic.values[offset], REMOTE_LOG_RECORDS)
            self.machine.replay(record, offset)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            try:
                await self.work()
            except (OSError, KafkaError):
                continue  # The store, the records, or a segment that was cut while it was copied.

    async def work(self) -> None:
        """One round, as a leader's task does it. A leader that was stalled does not know yet that it leads no more."""
        broker, config = self.broker, self.broker.config
        await self.catch_up()
        view = self.view()
        number = decisions.decide_copy(view)
        if number is not None:
            number += len(broker.log.segments) - len(view.segments)
            source = LocalSegmentSource(broker.disk, self.background, broker.log, number)
            await self.copier.copy(self, PARTITION.topic, OWNER, source, source.epochs, leader_epoch=self.epoch)
        view = self.view()
        if self.is_current:
            broker.log_start = max(broker.log_start, self.tier.log_start_offset)
            gone = decisions.decide_local_expired(view, config, now_ms=self.clock.wall_ms())
            broker.local_start = view.segments[gone.count].base_offset
        view = self.view()
        expired, log_start_offset = decisions.decide_remote_expired(view, config, now_ms=self.clock.wall_ms())
        expired += decisions.decide_unreadable(
            [segment for segment in self.tier.visible.values() if segment not in expired],
            [(entry.epoch, entry.start_offset) for entry in broker.log.epochs.entries],
            log_start_offset=broker.log_start,
            log_end_offset=broker.log.log_end_offset,
        )
        await self.remover.begin(
            self, OWNER, self.tier, expired, leader_epoch=self.epoch, log_start_offset=log_start_offset
        )
        if self.is_current:
            broker.log_start = max(broker.log_start, self.tier.log_start_offset)
            self.has_settled = True
        under_way = self.copier.under_way
        await self.remover.begin_orphans(self, OWNER, self.machine, under_way=under_way, leader_epoch=self.epoch)
        await self.remover.finish(self, OWNER, self.tier, leader_epoch=self.epoch)
        if self.world.random.random() < 0.2:
            await self.remover.sweep(OWNER, self.machine, self.catch_up)

    def view(self) -> decisions.LogView:
        broker = self.broker
        whole = view_of(broker.log, self.tier, high_watermark=self.world.high_watermark(broker))
        segments = [segment for segment in whole.segments if segment.base_offset >= broker.local_start]
        return decisions.LogView(segments, self._coverage(), broker.log_start, whole.stable_offset)

    def _coverage(self) -> coverage.Coverage:
        log = self.broker.log
        return coverage.cover(
            self.tier.visible.values(),
            [(entry.epoch, entry.start_offset) for entry in log.epochs.entries],
            log_start_offset=self.broker.log_start,
            log_end_offset=log.log_end_offset,
        )

    async def read_all(self) -> None:
        """A cold reader, from the log start to where the local log begins; what it gets is compared at once."""
        await self.cache.open()
        while True:
            await asyncio.sleep(self.world.random.between(0.3, 3.0))
            offset = self.broker.log_start
            while self.is_current and offset < self.broker.local_start:
                log, covered = self.broker.log, self._coverage()
                if offset < self.broker.log_start:
                    break  # Retention was faster.
                try:
                    batches = await self.reader.read(OWNER, covered, offset, self.world.random.randrange(3000))
                except GapError:
                    break  # Retention goes on; `check` finds any other gap.
                except StoreError:
                    if self.world.is_quiet and offset >= self.broker.log_start:
                        raise
                    await asyncio.sleep(0.2)
                    continue
                if not batches or not self.is_current:
                    break
                offset = self.world.compare(log, batches, offset)
                self.reads += 1


class World:
    def __init__(self, seed: int) -> None:
        self.random = SimRandom(seed)
        self.loop = SimLoop(self.random.fork())
        self.clock = ProcessClock(self.loop.world)
        self.bucket = SimBucket(self.clock, self.random.fork())
        self.topic = Topic(self.random.fork())
        self.brokers = [Broker(self.clock, number, SEGMENT_MAX_BYTES - 350 * number) for number in range(3)]
        self.lagging: Broker | None = None
        self.epoch = 0
        self.is_quiet = False
        self.leader = Leader(self, self.brokers[0], 0)
        self.leaders = [self.leader]
        self.produced = 0
        self._starts: list[int] = [0]
        self._cut_bytes = 0  # What unclean elections have taken from the log.

    def run(self, seconds: int) -> None:
        try:
            self.loop.run_until_complete(self._run(seconds))
        finally:
            self.loop.close()

    async def _run(self, seconds: int) -> None:
        self._start(self.leader)
        for _ in range(seconds):
            await asyncio.sleep(1)
            self._disturb()
            self._produce()
            self.check()
        self._heal()
        await asyncio.sleep(5)  # Circuits close again.
        self.is_quiet = True
        # Late puts come, deletions wait for their delay, and a sweep finds the rest.
        for _ in range(2 * DELETE_DELAY_MS // 1000 + 60):
            await asyncio.sleep(1)
            self.check()
        self.check_end()

    def _kill(self, leader: Leader) -> None:
        if leader.process.is_alive:
            leader.process.kill()

    def _start(self, leader: Leader) -> None:
        leader.tasks = [
            leader.process.spawn(leader.run(), name="run"),
            leader.process.spawn(leader.read_all(), name="read"),
        ]

    def _produce(self) -> None:
        log = self.leader.broker.log
        for _ in range(self.random.randrange(12)):
            offset = log.log_end_offset
            value = self.random.uuid() * (1 + self.random.randrange(12))
            records = [
                Record(offset + i, 1000 + offset + i, b"k", value, ()) for i in range(1 + self.random.randrange(3))
            ]
            batch = bytearray(build_batch(records, base_offset=offset, leader_epoch=self.leader.epoch))
            log.append_as_follower(memoryview(batch))
            self.produced += len(records)
        self._replicate()

    def _replicate(self) -> None:
        for broker in self.brokers:
            if broker is not self.leader.broker and broker is not self.lagging:
                broker.follow(self.leader.broker)

    def _disturb(self) -> None:
        random = self.random
        chance = random.random()
        if chance < 0.25:
            away_ms = random.between(0, 20_000) if random.random() < 0.2 else 0
            self.bucket.faults = StoreFaults(
                delay_ms=(0, random.choice((5, 50, 300))),
                error_share=random.choice((0.0, 0.1, 0.4)),
                lie_share=random.choice((0.0, 0.2)),
                late_share=random.choice((0.0, 0.2)),
                late_effect_ms=random.choice((10_000, 40_000)),  # Before a deletion, and after it.
                short_share=random.choice((0.0, 0.2)),
                listing_lag_ms=random.choice((0, 3000)),
                away_until_ms=self.clock.monotonic_ms() + away_ms,
            )
        elif chance < 0.40:
            self._elect()
        elif chance < 0.55 and self.lagging is None:
            self.lagging = random.choice([each for each in self.brokers if each is not self.leader.broker])
        elif chance < 0.58:
            self.lagging = None

    def _elect(self) -> None:
        """The old leader is killed, or stalls for a while and goes on without knowing; or it is told."""
        old, fate = self.leader, self.random.random()
        if fate < 0.5:
            self._kill(old)
        elif fate < 0.8:
            old.process.pause()
            self.loop.call_later(self.random.between(0, 8), old.process.resume)
            self.loop.call_later(15, self._kill, old)
        else:
            self.loop.call_later(self.random.between(0, 2), self._kill, old)
        candidates = [each for each in self.brokers if each is not self.lagging]
        told = self.replayed().partitions.get(OWNER, PartitionTier(PARTITION.topic)).log_start_offset
        start_offset = max(told, *self._starts, *(each.log_start for each in self.brokers))
        if (
            self.lagging is not None
            and self.lagging.log.log_end_offset > start_offset  # Else a whole new history begins.
            and self.random.random() < 0.7
        ):
            candidates = [self.lagging]  # Unclean.
            self._cut_bytes += old.broker.log.size_bytes - self.lagging.log.size_bytes
            self.lagging = None
        self.epoch += 1
        broker = self.random.choice(candidates)
        if fate >= 0.5 and broker is old.broker:
            self._kill(old)  # A broker leads by one process at a time.
        self.leader = Leader(self, broker, self.epoch)
        self.leaders.append(self.leader)
        self._start(self.leader)

    def _heal(self) -> None:
        self.bucket.faults = StoreFaults()
        self.topic.has_faults = False
        self.lagging = None
        for leader in self.leaders:
            if leader is not self.leader:
                self._kill(leader)
        self._replicate()

    def high_watermark(self, broker: Broker) -> int:
        """What all replicas in sync have; of a leader that was replaced, what it knew."""
        return min(each.log.log_end_offset for each in self.brokers if each is broker or each is not self.lagging)

    def replayed(self) -> TierMachine:
        machine = TierMachine()
        for offset, value in enumerate(self.topic.values):
            machine.replay(decode_metadata_record(value, REMOTE_LOG_RECORDS), offset)
        return machine

    def compare(self, log: Log, batches: bytes, offset: int) -> int:
        """Gives the offset after what was read."""
        first = True
        for position, header in iterate_headers(batches):
            if first and not header.base_offset <= offset <= header.last_offset:
                raise Broken(f"a read at {offset} begins with {header.base_offset} to {header.last_offset}")
            first = False
            if header.base_offset >= log.log_end_offset:
                raise Broken(f"offset {header.base_offset} is no part of the log, which ends at {log.log_end_offset}")
            found = log.read(header.base_offset, 1, end_offset=log.log_end_offset)
            assert found is not None
            if found.file.read(found.position, header.size_bytes) != batches[position : position + header.size_bytes]:
                raise Broken(f"the tier has other bytes at offset {header.base_offset} than the log")
            offset = header.next_offset
        return offset

    # What must hold

    def check(self) -> None:
        for leader in self.leaders:
            for task in leader.tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        broker = self.leader.broker
        if not self.leader.has_settled:
            return
        tier = self.replayed().partitions.get(OWNER)
        visible = tier.visible if tier is not None else {}
        for segment in visible.values():
            if segment_name(CLUSTER, OWNER, segment.base_offset, segment.segment_id) not in self.bucket.objects:
                raise Broken(f"the object of the copy {segment.base_offset} to {segment.end_offset} is missing")
        covered = coverage.cover(
            visible.values(),
            [(entry.epoch, entry.start_offset) for entry in broker.log.epochs.entries],
            log_start_offset=broker.log_start,
            log_end_offset=broker.log.log_end_offset,
        )
        start_offset = max(broker.log_start, tier.log_start_offset if tier is not None else 0)
        if start_offset < broker.local_start and covered.end_from(start_offset) < broker.local_start:
            raise Broken(
                f"[{start_offset}, {broker.local_start}) is only in the tier, which has it up to "
                f"{covered.end_from(start_offset)}: {[piece[:2] for piece in covered.pieces]}"
            )
        self._check_start(start_offset, broker)

    def _check_start(self, start_offset: int, broker: Broker) -> None:
        before = self._starts[-1]
        if start_offset < before:
            raise Broken(f"the log starts at {start_offset}, and started at {before}")
        if start_offset > before:
            kept_bytes = sum(each.size_bytes for each in broker.log.segments if each.base_offset >= start_offset)
            if kept_bytes < broker.config.retention_bytes - 2 * SEGMENT_MAX_BYTES - self._cut_bytes:
                raise Broken(f"the log starts at {start_offset}, {kept_bytes} bytes before its end")
        self._starts.append(start_offset)

    def check_end(self) -> None:
        tier = self.leader.tier
        self.leader.replay(len(self.topic.values))
        expected = {
            segment_name(CLUSTER, OWNER, segment.base_offset, segment.segment_id) for segment in tier.visible.values()
        }
        lost = set(self.bucket.objects) - expected
        if lost:
            raise Broken(f"{len(lost)} objects that nobody refers to: {sorted(lost)[:3]}")
        if tier.copying or tier.deleting:
            raise Broken(f"{len(tier.copying)} copies and {len(tier.deleting)} deletions were never finished")
        view = self.leader.view()
        if decisions.decide_copy(view) is not None:
            raise Broken(f"copies were not made up to {view.stable_offset}: {view.copied_end_offset}")

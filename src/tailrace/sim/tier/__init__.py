"""A cluster with remote storage in a run: a bucket with faults, and what must hold of it.

All topics of the plan have remote storage, small segments, and keep little of them: most of what is read comes from the
bucket, by whoever leads or follows. The bucket is slow, fails, does what it denies, does it late, lists what is gone,
cuts answers short, and is away. What must hold:

- every copy that is visible by the records has its object, at any time;
- all that was acknowledged can be read by clients, which `checks.final` looks at: no log starts later than it began;
- once all is healed everything closed is copied, and the bucket holds the visible copies and nothing else;
- whoever replays the records from where their log begins, which is cut now and then, knows what the others know.
"""

from __future__ import annotations

import asyncio

from tailrace.broker.tier.metadata import records_of
from tailrace.log.log import Log
from tailrace.model.ids import REMOTE_LOG_METADATA_TOPIC
from tailrace.sim.checks.history import demand
from tailrace.sim.clock import ProcessClock
from tailrace.sim.cluster import Node, SimCluster, World
from tailrace.sim.objects import SimBucket, SimObjectStores, StoreFaults
from tailrace.sim.random import SimRandom
from tailrace.tier.format.names import MARKER_NAME, segment_name
from tailrace.tier.keeping.decisions import decide_copy
from tailrace.tier.metadata.machine import TierMachine

TIER_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.url": "s3://bucket/prefix",
    "remote.log.manager.task.interval.ms": "300",
    "log.retention.check.interval.ms": "500",
    "remote.log.deletion.delay.ms": "6000",
    "remote.log.sweep.interval.ms": "5000",
    "remote.log.storage.timeout.ms": "400",
    "remote.log.storage.upload.timeout.ms": "1500",
    "remote.fetch.max.wait.ms": "200",
    "remote.log.manifest.interval.ms": "1000",
    "remote.log.metadata.restate.records": "10",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
    "rlmm.config.remote.log.metadata.consume.wait.ms": "4000",
}
TIER_TOPIC = (
    ("remote.storage.enable", "true"),
    ("internal.segment.bytes", "3000"),
    ("local.retention.bytes", "4000"),
)
_LOOK_SECONDS = 0.5
_SETTLED_SECONDS_MAX = 60.0


class TierRun:
    def __init__(self, world: World, cluster: SimCluster, random: SimRandom) -> None:
        self._world = world
        self._cluster = cluster
        self._random = random
        self.bucket = SimBucket(ProcessClock(world.loop.world), random.fork())
        for node in cluster.nodes:
            node.objects = SimObjectStores(self.bucket)
        self._disturbing: asyncio.Task[None] | None = None
        self._next_look = 0.0
        self._copies = self._cuts = 0

    async def start(self) -> None:
        self._disturbing = asyncio.ensure_future(self._disturb())

    async def _disturb(self) -> None:
        random, clock = self._random, ProcessClock(self._world.loop.world)
        while True:
            await asyncio.sleep(random.between(0.2, 3.0))
            away_ms = random.between(0, 6_000) if random.random() < 0.15 else 0
            self.bucket.faults = StoreFaults(
                delay_ms=(0, random.choice((5, 30, 200))),
                error_share=random.choice((0.0, 0.0, 0.1, 0.4)),
                lie_share=random.choice((0.0, 0.2)),
                late_share=random.choice((0.0, 0.2)),
                late_effect_ms=random.choice((2_000, 12_000)),
                short_share=random.choice((0.0, 0.2)),
                listing_lag_ms=random.choice((0, 2000)),
                away_until_ms=clock.monotonic_ms() + away_ms,
            )

    def heal(self) -> None:
        if self._disturbing is not None:
            self._disturbing.cancel()
        self.bucket.faults = StoreFaults()

    # ---- what must hold

    def look(self, node: Node) -> None:
        """Of a node nothing: what it knows is looked at now and then."""

    def check(self) -> None:
        if self._world.loop.now >= self._next_look:
            self._next_look = self._world.loop.now + _LOOK_SECONDS
            missing = self._visible() - set(self.bucket.objects)
            demand(not missing, "every visible copy has its object", missing=sorted(missing)[:3])

    def _machines(self) -> list[TierMachine]:
        """Of each partition of the records that of the node that has come farthest."""
        newest: dict[int, TierMachine] = {}
        for node in self._cluster.brokers:
            tier = None if node.broker is None else node.broker.tier
            for index, part in tier.metadata.parts.items() if tier is not None else ():
                if index not in newest or part.machine.next_offset > newest[index].next_offset:
                    newest[index] = part.machine
        return list(newest.values())

    def _visible(self) -> set[str]:
        return {
            f"prefix/{segment_name(self._cluster.cluster_id, owner, segment.base_offset, segment.segment_id)}"
            for machine in self._machines()
            for owner, state in machine.partitions.items()
            for segment in state.visible.values()
        }

    async def stop(self) -> None:
        """Once all is healed."""
        deadline = self._world.loop.now + _SETTLED_SECONDS_MAX
        while problem := self._unsettled():
            demand(self._world.loop.now < deadline, "remote storage settles once all is healed", problem=problem)
            await asyncio.sleep(_LOOK_SECONDS)
        self._replay_anew()
        self._copies = len(self._visible())
        demand(self._copies > 0, "something was copied")

    def _replay_anew(self) -> None:
        for node in self._cluster.brokers:
            broker = node.broker
            if broker is None or broker.tier is None:
                continue
            for index, part in broker.tier.metadata.parts.items():
                partition = broker.replicas.partitions.get((REMOTE_LOG_METADATA_TOPIC, index))
                if partition is not None and partition.is_leader and part.is_ready:
                    self._cuts += partition.log.log_start_offset > 0
                    machine = _replayed(partition.log, part.machine.next_offset)
                    known = part.machine.partitions
                    same = machine.partitions.keys() == known.keys() and all(
                        tier.says_the_same(known[owner]) for owner, tier in machine.partitions.items()
                    )
                    demand(same, "who begins where the records of the tier are cut knows all of them", index=index)

    def _unsettled(self) -> str:
        for node in self._cluster.brokers:
            tier = None if node.broker is None else node.broker.tier
            for part in tier.parts.values() if tier is not None else ():
                name = part.partition.topic_partition
                if part.partition.is_leader and decide_copy(part.local_view()) is not None:
                    return f"{name} of {node.name} is not copied up to {part.partition.high_watermark}"
                covered = part.coverage().end_from(part.log_start_offset)
                if part.is_ready and covered < part.partition.log.log_start_offset:
                    return f"{name} of {node.name}: copies end at {covered}, the local log begins later"
        lost = {name for name in self.bucket.objects if name.endswith(".segment")} - self._visible()
        if lost:
            return f"{len(lost)} objects that nothing refers to: {sorted(lost)[:3]}"
        demand(f"prefix/{MARKER_NAME}" in self.bucket.objects, "the store has a marker")
        return ""

    def story(self) -> str:
        calls = self.bucket.calls
        return f", {calls['put']} puts, {calls['get']} gets, {self._copies} copies, {self._cuts} cuts"


def _replayed(log: Log, end_offset: int) -> TierMachine:
    machine = TierMachine()
    machine.next_offset = log.log_start_offset
    while machine.next_offset < end_offset:
        piece = log.read(machine.next_offset, 1 << 20, end_offset=end_offset)
        before = machine.next_offset
        for offset, record in records_of(piece.read(), before, 1 << 20) if piece is not None else ():
            machine.replay(record, offset)
        demand(machine.next_offset > before, "the records of the tier can be read", offset=before)
    return machine

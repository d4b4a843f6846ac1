"""Share groups on simulated clusters: members that stall, die, release, reject and acknowledge late, while brokers die.

What members are told is compared with what a queue promises: nothing is lost, nothing that was confirmed comes again,
nobody has what another one's lock holds, nothing is delivered too often, and the start offset never falls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from tailrace.client.connection import Address
from tailrace.client.groups.admin import GroupAdmin
from tailrace.client.metadata import Cluster
from tailrace.client.shares.consumer import ACCEPT, REJECT, RELEASE, Refusal, ShareConsumer, ShareOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Ports
from tailrace.sim.background import SimBackground
from tailrace.sim.clock import ProcessClock
from tailrace.sim.cluster import CLIENT_PORT
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import SimLoop
from tailrace.sim.random import SimRandom
from tailrace.verify.recorder import Settling
from tailrace.wire.apis.admin import CreateTopicsRequest, IncrementalAlterConfigsRequest
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.records import build_batch, iterate_headers, iterate_records
from tests.sim.share_ledger import (
    BACKOFF,
    DEAD_LETTERS,
    GROUP,
    KEY_ORDER,
    KEYS,
    LETTERS,
    LIMIT,
    LOCK_MS,
    PARTITIONS,
    TOPIC,
    Ledger,
)
from tests.unit.broker.cluster_world import ClusterWorld, running_cluster

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.delivery.count.limit": str(LIMIT),
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "2000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.assignment.interval.ms": "100",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
}


class Worker:
    """A member with habits that chance picks."""

    def __init__(self, name: str, cluster: Cluster, ledger: Ledger, random: SimRandom, *, is_good: bool) -> None:
        self.name = name
        self._cluster = cluster
        self._ledger = ledger
        self._random = random
        self._is_good = is_good
        self.is_leaving = False
        self._process = ledger.recorder.process(name)
        self._settling: Settling | None = None

    async def run(self) -> None:
        options = ShareOptions(GROUP, (TOPIC,), self.name, max_records=5 + self._random.randrange(20))
        consumer = ShareConsumer(self._cluster, options)
        try:
            await self._work(consumer)
        finally:
            consumer.abandon()
            self._ledger.note_gone(self.name)
            self._cluster.close()

    async def _work(self, consumer: ShareConsumer) -> None:
        said: dict[tuple[int, int], int] = {}
        said_ms, epochs = 0.0, [0] * PARTITIONS
        while not self.is_leaving:
            said_epochs = epochs
            asked_ms, epochs = self._ledger.now_ms(), [self._ledger.leader_epoch(each) for each in range(PARTITIONS)]
            records, refused = await consumer.poll(200)
            self._settle(said, refused, said_ms, said_epochs)
            self._process.taken(
                GROUP,
                [
                    (str(each.partition), each.record.offset, (each.record.value or b"").decode(), each.delivery_count)
                    for each in records
                ],
            )
            for record in records:
                self._ledger.note_delivered(self.name, asked_ms, epochs[record.partition.partition], record)
            if not self._is_good and self._random.random() < 0.2:
                await asyncio.sleep(self._random.between(0, 2 * LOCK_MS / 1000))
            said, said_ms = {}, self._ledger.now_ms()
            for record in records:
                kind = ACCEPT if self._is_good else self._random.choice((ACCEPT, ACCEPT, RELEASE, REJECT, None))
                self._ledger.note_said(record)
                if kind is not None:
                    said[record.partition.partition, record.record.offset] = kind
                    if kind == ACCEPT:
                        self._ledger.perhaps_accepted.add((record.partition.partition, record.record.offset))
                    if kind != RELEASE:
                        self._ledger.ended.add((record.partition.partition, record.record.offset))
                        self._ledger.unknown.add((record.partition.partition, record.record.offset))
                    consumer.acknowledge(record, kind)
            self._settling = self._ledger.begin_settling(self._process, said)
            if self._random.random() < 0.5:
                self._settle(said, await consumer.commit(), said_ms, epochs)
                said = {}
        self._settle(said, await consumer.close(), said_ms, epochs)

    def _settle(
        self, said: dict[tuple[int, int], int], refused: list[Refusal], said_ms: float, epochs: Sequence[int]
    ) -> None:
        """What was not refused counts."""
        lost = {(each.partition.partition, offset) for each in refused for offset in each.offsets}
        if self._settling is not None:
            self._settling.ok(refused=[(f"{TOPIC}-{at}", offset) for at, offset in lost])
            self._settling = None
        kept = {place: kind for place, kind in said.items() if place not in lost}
        self._ledger.note_confirmed(self.name, kept, said_ms, epochs)


class Run:
    def __init__(self, world: ClusterWorld, seed: int, group_settings: Mapping[str, str]) -> None:
        self.world = world
        self.random = SimRandom(seed)
        self.ledger = Ledger(world, group_settings)
        self._group_settings = group_settings
        self._takes_letters = True
        self._values = count()
        self.workers: dict[Worker, asyncio.Task[None]] = {}
        self._count = 0
        self._admin = self.connect()

    def connect(self) -> Cluster:
        self._count += 1
        loop = self.world.loop
        clock = ProcessClock(loop.world)
        ports = Ports(
            clock=clock,
            random=self.random.fork(),
            disk=SimDisk(clock),
            network=self.world.network.port(f"client-{self._count}", loop.world),
            background=SimBackground(),
        )
        return Cluster(ports, [Address(f"node-{node_id}", CLIENT_PORT) for node_id in self.world.nodes])

    async def prepare(self) -> None:
        async def create() -> None:
            topics = CreateTopicsRequest
            connection = await self._admin.any_connection()
            named = {TOPIC: PARTITIONS} | ({DEAD_LETTERS: 1} if self._has_letters else {})
            wanted = [
                topics.CreatableTopic(name=name, num_partitions=count, replication_factor=3)
                for name, count in named.items()
            ]
            answer = await connection.call(topics(topics=wanted, timeout_ms=5000), _response(topics), timeout_ms=10_000)
            assert all(each.error_code in (0, 36) for each in answer.topics), answer

        await self._admin.with_retries(create, timeout_ms=20_000)
        await self._configure(32, GROUP, {"share.auto.offset.reset": "earliest", **self._group_settings})
        if self._has_letters:
            await self._take_letters(True)

    async def _configure(self, kind: int, name: str, settings: Mapping[str, str]) -> None:
        async def configure() -> None:
            alter = IncrementalAlterConfigsRequest
            configs = [
                alter.AlterableConfig(name=each, value=value, config_operation=0) for each, value in settings.items()
            ]
            resource = alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            connection = await self._admin.any_connection()
            answer = await connection.call(alter(resources=[resource]), _response(alter), timeout_ms=10_000)
            assert answer.responses[0].error_code == 0, answer

        await self._admin.with_retries(configure, timeout_ms=60_000)

    @property
    def _has_letters(self) -> bool:
        return LETTERS.items() <= self._group_settings.items()

    async def _take_letters(self, takes: bool) -> None:
        self._takes_letters = takes
        await self._configure(2, DEAD_LETTERS, {"errors.deadletterqueue.group.enable": str(takes).lower()})

    async def produce(self, count: int) -> None:
        for number in range(count):
            partition = TopicPartition(TOPIC, PartitionIndex(number % PARTITIONS))
            await self._admin.with_retries(lambda each=partition: self._write(each), timeout_ms=60_000)  # type: ignore[misc]
            await asyncio.sleep(self.random.between(0, 0.1))

    async def _write(self, partition: TopicPartition) -> None:
        leader = await self._admin.leader_of(partition)
        connection = await self._admin.connection_to(leader.leader_id)
        request = ProduceRequest
        keys = [b"%d" % self.random.randrange(KEYS) for _ in range(1 + self.random.randrange(4))]
        values = [b"%d" % next(self._values) for _ in keys]
        records = build_batch(
            [
                (index, 1_767_225_600_000, key, value, ())
                for index, (key, value) in enumerate(zip(keys, values, strict=True))
            ]
        )
        sends = [self.ledger.producer.send(str(partition), value.decode()) for value in values]
        data = request.PartitionProduceData(index=partition.partition, records=memoryview(bytearray(records)))
        asked = request(
            acks=-1, timeout_ms=5000, topic_data=[request.TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        answer = await connection.call(asked, ProduceResponse, version_max=9, timeout_ms=10_000)
        told = answer.responses[0].partition_responses[0]
        if told.error_code:
            self._admin.forget_all()
            raise KafkaError(ErrorCode(told.error_code))
        self.ledger.produced.add((partition.partition, told.base_offset))
        for index, send in enumerate(sends):
            send.ok(told.base_offset + index)
        for index, key in enumerate(keys):
            self.ledger.written[partition.partition, key].append(told.base_offset + index)

    def join(self, *, is_good: bool = False) -> None:
        worker = Worker(f"w{self._count}", self.connect(), self.ledger, self.random.fork(), is_good=is_good)
        self.workers[worker] = asyncio.ensure_future(worker.run())

    async def disturb(self) -> None:
        while True:
            await asyncio.sleep(self.random.between(0.3, 1.5))
            alive = [worker for worker, task in self.workers.items() if not task.done() and not worker.is_leaving]
            match self.random.randrange(5 if self._has_letters else 4):
                case 0 if len(alive) < 5:
                    self.join()
                case 1 if len(alive) > 1:
                    self.random.choice(alive).is_leaving = True
                case 2 if len(alive) > 1:
                    self.workers[self.random.choice(alive)].cancel()  # It dies, and its connections with it.
                case 3:
                    await self.restart(1 + self.random.randrange(3))
                case 4:
                    await self._take_letters(not self._takes_letters)

    async def restart(self, node_id: int) -> None:
        await self.world.kill(node_id)
        await asyncio.sleep(self.random.between(0.1, 3.0))
        await self.world.start(node_id)

    async def watch(self) -> None:
        while True:
            self.ledger.look()
            await asyncio.sleep(0.05)

    async def drain(self) -> None:
        """Good members are left, until everything is done with."""
        if self._has_letters:
            await self._take_letters(True)
        for worker in self.workers:
            worker.is_leaving = True
        self.join(is_good=True)
        self.join(is_good=True)
        deadline_ms = self.ledger.now_ms() + 120_000
        while self.ledger.starts != (ends := self._ends()) or not all(ends.values()):
            assert self.ledger.now_ms() < deadline_ms, f"not emptied in time: {self.ledger.starts} of {ends}"
            await asyncio.sleep(0.3)
            self.ledger.look()
            for worker, task in list(self.workers.items()):
                if task.done():
                    del self.workers[worker]
                    if not task.cancelled():
                        task.result()
        for worker in self.workers:
            worker.is_leaving = True
        await asyncio.wait(self.workers.values())
        for task in self.workers.values():
            task.result()

    def _ends(self) -> dict[int, int]:
        """0 where nobody leads now."""
        return dict.fromkeys(range(PARTITIONS), 0) | {
            index: partition.high_watermark
            for broker in self.world.running
            for (topic, index), partition in broker.replicas.partitions.items()
            if topic == TOPIC and partition.is_leader
        }

    async def check_described(self) -> None:
        """As an administrator sees it."""
        admin = GroupAdmin(self._admin)
        described, offsets = await admin.describe(GROUP), await admin.share_offsets(GROUP)
        assert described.type == "share"
        assert [each.lag for each in offsets] == [0] * PARTITIONS
        assert {each.partition.partition: each.start_offset for each in offsets} == self.ledger.starts

    def check(self) -> None:
        missed = self.ledger.produced - self.ledger.delivered.keys()
        assert not missed, f"never delivered: {sorted(missed)}"
        ended = self.ledger.done.keys() | self.ledger.unknown
        given_up = {place for place, counts in self.ledger.delivered.items() if max(counts) == self.ledger.limit}
        lost = self.ledger.produced - ended - given_up
        assert not lost, f"delivered, and lost before anybody was done with it: {sorted(lost)}"
        if self._has_letters:
            silent = self.ledger.produced - self.ledger.perhaps_accepted - self.ledger.letters
            assert not silent, f"given up without a dead letter: {sorted(silent)}"

    def read_letters(self) -> None:
        if not self._has_letters:
            return
        (partition,) = [
            each
            for broker in self.world.running
            if (each := broker.replicas.partitions.get((DEAD_LETTERS, PartitionIndex(0)))) is not None
            and each.is_leader
        ]
        found = partition.read(0, 1 << 24, isolation_level=0, at_least_one_batch=True)
        data = b"" if found is None else found.read()
        for position, header in iterate_headers(data):
            for record in iterate_records(
                data[position : position + header.size_bytes], max_decompressed_bytes=1 << 20
            ):
                told = {name.removeprefix("__dlq.errors."): value.decode() for name, value in record.headers}
                place = int(told["partition"]), int(told["offset"])
                assert (told["topic"], told["group"]) == (TOPIC, GROUP)
                assert int(told["delivery.count"]) in self.ledger.delivered[place], told
                self.ledger.letters.add(place)


def _response(request: Any) -> Any:
    from tailrace.wire import apis

    return apis.response_type(request.api_key)


async def story(seed: int, records: int, group_settings: Mapping[str, str]) -> Ledger:
    async with running_cluster(settings=SETTINGS) as world:
        run = Run(world, seed, group_settings)
        await run.prepare()
        for _ in range(3):
            run.join()
        watching = asyncio.ensure_future(run.watch())
        disturbing = asyncio.ensure_future(run.disturb())
        await run.produce(records)
        disturbing.cancel()
        await asyncio.wait((disturbing,))
        if not disturbing.cancelled():
            disturbing.result()
        for node_id, node in world.nodes.items():
            if not node.is_up:
                await world.start(node_id)
        await run.drain()
        await run.check_described()
        if watching.done():
            watching.result()
        watching.cancel()
        run.read_letters()
        run.check()
        run.ledger.check_history()
        run._admin.close()
        return run.ledger


def simulate(seed: int, records: int = 120, group_settings: Mapping[str, str] | None = None) -> Ledger:
    loop = SimLoop(SimRandom(seed))
    try:
        return loop.run_until_complete(story(seed, records, group_settings or {}))
    finally:
        loop.close()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))])
def test_a_queue_keeps_its_promises(seed: int) -> None:
    ledger = simulate(seed, 60)
    assert len(ledger.done) > 100
    assert any(len(counts) > 1 for counts in ledger.delivered.values())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))])
def test_nothing_is_given_up_without_a_dead_letter_and_nothing_comes_back_too_soon(seed: int) -> None:
    ledger = simulate(seed, 60, LETTERS | BACKOFF)
    assert ledger.letters
    assert any(len(counts) > 1 for counts in ledger.delivered.values())


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))])
def test_records_of_a_key_go_out_one_after_the_other(seed: int) -> None:
    ledger = simulate(seed, 60, KEY_ORDER | LETTERS | BACKOFF)
    assert len(ledger.delivered) > 60

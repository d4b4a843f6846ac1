"""What clients do in a run, over our own client and the simulated network, and the ledger of what they were told.

Producers are idempotent and wait for all in-sync replicas; each record names its producer and its number, so that
order, loss and doubles show. Consumers read along. All of them are processes of their own on hosts of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from tailrace.client.connection import Address, Connection, ConnectionLimits, error_code
from tailrace.client.consumer import Consumer, ConsumerOptions
from tailrace.client.metadata import Cluster
from tailrace.client.producer import Delivered, Producer, ProducerOptions
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Ports
from tailrace.sim.background import SimBackground
from tailrace.sim.checks.history import demand
from tailrace.sim.clients.operators import Operator
from tailrace.sim.clock import ProcessClock
from tailrace.sim.cluster import CLIENT_PORT, SimCluster, World
from tailrace.sim.disk import SimDisk
from tailrace.sim.loop import Process
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.data import ProduceRequest, ProduceResponse
from tailrace.wire.apis.transactions import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.records import build_batch

_LIMITS = ConnectionLimits(connect_timeout_ms=1000, request_timeout_ms=4000)
_PRODUCER = ProducerOptions(linger_ms=2, request_timeout_ms=2000, delivery_timeout_ms=8000, batch_bytes=2000)
# Its records may be lost or doubled. They are what new leaders and followers disagree about.
_RECKLESS = _PRODUCER._replace(acks=1, idempotent=False)
_CONSUMER = ConsumerOptions(fetch_max_wait_ms=300, retry_timeout_ms=600_000, partition_max_bytes=20_000)
_VALUE_BYTES_MAX = 300
RECKLESS = "reckless"
_PIPELINE_BATCHES = 5
_PIPELINE_PATIENCE_MS = 60_000


class Ledger:
    """What clients know: which record stands at which offset, and which of them were acknowledged."""

    def __init__(self) -> None:
        self.acked: dict[TopicPartition, dict[int, bytes]] = {}
        # Acknowledged as a duplicate of something so old that its place is not known any more.
        self.acked_somewhere: dict[TopicPartition, dict[bytes, None]] = {}
        self.acked_count = 0
        self.failed_count = 0
        self.read_count = 0
        self.last_acked: dict[TopicPartition, float] = {}  # by the time of the world
        self.on_acked: Callable[[TopicPartition, int], None] = lambda _partition, _offset: None
        self._values: dict[TopicPartition, dict[int, bytes]] = {}

    def note_acked(self, where: Delivered, value: bytes, now: float) -> None:
        self.acked_count += 1
        self.last_acked[where.partition] = now
        if where.offset < 0:
            self.acked_somewhere.setdefault(where.partition, {})[value] = None
            return
        self.acked.setdefault(where.partition, {})[where.offset] = value
        self._place(where.partition, where.offset, value)
        self.on_acked(where.partition, where.offset)

    def note_read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        self.read_count += 1
        self._place(partition, offset, value)

    def judge_read(self, partition: TopicPartition, offsets: Sequence[int]) -> None:
        """A reader began at the beginning and was given the records at `offsets`."""
        passed = {offset for offset in self.acked.get(partition, {}) if offset < offsets[-1]}
        demand(
            passed.issubset(offsets),
            "a reader is not led past an acked record",
            partition=partition,
            missing=sorted(passed.difference(offsets))[:10],
        )

    def _place(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        known = self._values.setdefault(partition, {}).setdefault(offset, value)
        demand(known == value, "an offset holds one record", partition=partition, offset=offset, was=known, now=value)


class Clients:
    """The clients of a run: `start` what is wanted, `stop` ends them all."""

    def __init__(self, world: World, cluster: SimCluster, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger
        self._random = world.random.fork()
        self._bootstrap = [Address(node.name, CLIENT_PORT) for node in cluster.brokers]
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._count = 0
        self.operator: Operator | None = None

    def connect(self, name: str) -> tuple[Process, Cluster]:
        """A client process and what it knows of the cluster."""
        process = self._world.loop.process(name)
        clock = ProcessClock(process)
        ports = Ports(
            clock=clock,
            random=self._random.fork(),
            disk=SimDisk(clock),
            network=self._world.network.port(name, process),
            background=SimBackground(),
        )
        return process, Cluster(ports, self._random.shuffled(self._bootstrap), client_id=name, limits=_LIMITS)

    def start_producer(
        self, partitions: Sequence[TopicPartition], *, pause_ms: float, is_reckless: bool = False
    ) -> None:
        self._count += 1
        name = f"{RECKLESS if is_reckless else 'producer'}-{self._count}"
        process, cluster = self.connect(name)
        producing = self._produce(name, cluster, partitions, pause_ms, is_reckless=is_reckless)
        self._tasks.append(process.spawn(producing, name=name))

    def start_pipeline(self, partition: TopicPartition, *, pause_ms: float) -> None:
        self._count += 1
        name = f"pipeline-{self._count}"
        process, cluster = self.connect(name)
        pipeline = _Pipeline(name, cluster, partition, self._ledger, self._random.fork())
        running = pipeline.run(lambda: self._is_stopping, pause_ms, lambda: self._world.loop.now)
        self._tasks.append(process.spawn(running, name=name))

    def start_consumer(self, partitions: Sequence[TopicPartition]) -> None:
        self._count += 1
        name = f"consumer-{self._count}"
        process, cluster = self.connect(name)
        self._tasks.append(process.spawn(self._consume(cluster, partitions), name=name))

    def start_operator(self, operator: Operator) -> None:
        process, cluster = self.connect("operator")
        self.operator = operator
        self._tasks.append(process.spawn(operator.run(cluster), name="operator"))

    def start(self, name: str, run: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
        process, cluster = self.connect(name)
        self._tasks.append(process.spawn(run(cluster), name=name))

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def stop(self) -> None:
        """Producers finish what they have begun."""
        self._is_stopping = True
        if self.operator is not None:
            self.operator.stop()

    async def wait_stopped(self, timeout_seconds: float) -> None:
        if self._tasks:
            _done, pending = await asyncio.wait(self._tasks, timeout=timeout_seconds)
            demand(not pending, "clients end in time", waiting=sorted(task.get_name() for task in pending))
        for task in self._tasks:
            task.result()

    def check(self) -> None:
        """A client that has found something wrong has ended."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def _produce(
        self, name: str, cluster: Cluster, partitions: Sequence[TopicPartition], pause_ms: float, *, is_reckless: bool
    ) -> None:
        random = self._random.fork()
        number = 0
        producer = Producer(cluster, _RECKLESS if is_reckless else _PRODUCER)
        while not self._is_stopping:
            topic, partition = partitions[random.randrange(len(partitions))]
            number += 1
            value = b"%s:%d:" % (name.encode(), number) + bytes(random.randrange(_VALUE_BYTES_MAX))
            try:
                delivered = await producer.send(topic, value, partition=partition)
            except KafkaError:
                self._ledger.failed_count += 1
                await asyncio.sleep(0.2)
                continue
            if not is_reckless:
                delivered.add_done_callback(lambda future, value=value: self._note(future, value))  # type: ignore[misc]
            await asyncio.sleep(random.random() * pause_ms * 2 / 1000)
        await producer.flush()
        producer.close()
        cluster.close()

    def _note(self, delivered: asyncio.Future[Delivered], value: bytes) -> None:
        if delivered.cancelled() or delivered.exception() is not None:
            self._ledger.failed_count += 1
        else:
            self._ledger.note_acked(delivered.result(), value, self._world.loop.now)

    async def _consume(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
        consumer = Consumer(cluster, _CONSUMER)
        await consumer.assign(dict.fromkeys(partitions, 0))
        read: dict[TopicPartition, list[int]] = {partition: [-1] for partition in partitions}
        while not self._is_stopping:
            for partition, records in (await consumer.poll(300)).items():
                for record in records:
                    demand(record.offset > read[partition][-1], "records are read in order", partition=partition)
                    read[partition].append(record.offset)
                    self._ledger.note_read(partition, record.offset, record.value or b"")
        for partition, offsets in read.items():
            self._ledger.judge_read(partition, offsets)
        await consumer.close()
        cluster.close()

    async def read_all(self, ends: dict[TopicPartition, int]) -> dict[TopicPartition, dict[int, bytes]]:
        """Everything below the given ends, as a consumer that starts at the beginning gets it."""
        self._count += 1
        process, cluster = self.connect(f"reader-{self._count}")
        reading = process.spawn(self._read_all(cluster, ends), name=process.name)
        return await reading

    async def _read_all(
        self, cluster: Cluster, ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, dict[int, bytes]]:
        consumer = Consumer(cluster, _CONSUMER)
        found: dict[TopicPartition, dict[int, bytes]] = {partition: {} for partition in ends}
        await consumer.assign(dict.fromkeys(ends, 0))
        deadline = self._world.loop.now + 60
        while any(consumer.position(partition).offset < end for partition, end in ends.items()):
            demand(self._world.loop.now < deadline, "everything can be read in time")
            for partition, records in (await consumer.poll(500)).items():
                for record in records:
                    found[partition][record.offset] = record.value or b""
        await consumer.close()
        cluster.close()
        return found


class _Batch:
    """A batch of an idempotent producer; sent again with the same sequence until it is acknowledged."""

    __slots__ = ("answer", "data", "is_acked", "values")

    def __init__(self, values: list[bytes], identity: tuple[int, int], sequence: int, now_ms: int) -> None:
        self.values = values
        self.is_acked = False
        self.answer: asyncio.Task[ProduceResponse] | None = None
        self.data = build_batch(
            [(index, now_ms, None, value, ()) for index, value in enumerate(values)],
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
        )


class _Pipeline:
    """An idempotent producer of one partition with several batches under way, as most client libraries have them (ours
    has one). What fails is sent again in order, once the answers to all that was sent after it are there."""

    def __init__(
        self, name: str, cluster: Cluster, partition: TopicPartition, ledger: Ledger, random: SimRandom
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._partition = partition
        self._ledger = ledger
        self._random = random
        self._identity = (-1, -1)
        self._sequence = 0
        self._number = 0
        self._unacked: deque[_Batch] = deque()
        self._connection: Connection | None = None

    async def run(self, is_stopping: Callable[[], bool], pause_ms: float, now: Callable[[], float]) -> None:
        self._identity = await self._cluster.with_retries(self._identify, timeout_ms=_PIPELINE_PATIENCE_MS)
        while self._unacked or not is_stopping():
            if not is_stopping():
                self._fill()
            try:
                await self._send()
                await self._take_first(now())
            except KafkaError as error:
                demand(error.code.retriable, "a producer meets errors that pass", producer=self._name, error=error)
                await self._drain(now())
                self._cluster.forget(self._partition.topic)
                await asyncio.sleep(0.1)
            await asyncio.sleep(self._random.random() * pause_ms * 2 / 1000)
        self._cluster.close()

    async def _identify(self) -> tuple[int, int]:
        connection = await self._cluster.any_connection()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = await connection.call(request, InitProducerIdResponse, version_max=5)
        if answer.error_code:
            raise KafkaError(error_code(answer.error_code), "no producer id")
        return answer.producer_id, answer.producer_epoch

    def _fill(self) -> None:
        while len(self._unacked) < _PIPELINE_BATCHES:
            values = []
            for _ in range(1 + self._random.randrange(3)):
                self._number += 1
                values.append(b"%s:%d:" % (self._name.encode(), self._number))
            now_ms = self._cluster.ports.clock.wall_ms()
            self._unacked.append(_Batch(values, self._identity, self._sequence, now_ms))
            self._sequence += len(values)

    async def _send(self) -> None:
        leader = await self._cluster.leader_of(self._partition)
        connection = await self._cluster.connection_to(leader.leader_id)
        if connection is not self._connection:
            if any(batch.answer is not None for batch in self._unacked):
                return  # What is on its way by another one must not be overtaken.
            self._connection = connection
        for batch in self._unacked:
            if batch.answer is None and not batch.is_acked:
                data = ProduceRequest.PartitionProduceData(index=self._partition.partition, records=batch.data)
                topic = ProduceRequest.TopicProduceData(name=self._partition.topic, partition_data=[data])
                request = ProduceRequest(acks=-1, timeout_ms=2000, topic_data=[topic])
                call = connection.call(request, ProduceResponse, version_max=12)
                batch.answer = asyncio.ensure_future(call)

    async def _take_first(self, now: float) -> None:
        batch = self._unacked[0] if self._unacked else None
        if batch is None:
            return
        if not batch.is_acked:
            assert batch.answer is not None, "all are sent"
            await asyncio.wait({batch.answer})
            self._judge(batch, now)
        self._unacked.popleft()

    async def _drain(self, now: float) -> None:
        for batch in self._unacked:
            if batch.answer is not None:
                await asyncio.wait({batch.answer})
                with suppress(KafkaError):
                    self._judge(batch, now)

    def _judge(self, batch: _Batch, now: float) -> None:
        """Raises KafkaError unless the batch is acknowledged."""
        answer, batch.answer = batch.answer, None
        assert answer is not None, "it was sent"
        result = answer.result().responses[0].partition_responses[0]
        code = error_code(result.error_code)
        # librdkafka takes it for fatal where it meets the first batch. Where it meets one behind it, it begins a new
        # producer epoch, in which all that is not acknowledged is sent anew, and stored twice.
        is_lost = code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
        demand(
            not is_lost,
            "a leader knows what its producers had acknowledged",
            producer=self._name,
            partition=self._partition,
            error=code.name,
            batch=batch.values,
        )
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            result.base_offset = -1
        elif code is not ErrorCode.NONE:
            raise KafkaError(code, "not acknowledged")
        batch.is_acked = True
        for index, value in enumerate(batch.values):
            offset = result.base_offset + index if result.base_offset >= 0 else -1
            self._ledger.note_acked(Delivered(self._partition, offset, 0), value, now)


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, PartitionIndex(index)) for index in range(count)]

"""Tasks and drivers of queries without Spark, that die at a request of the test's choice."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from tailrace.client.consumer import EARLIEST, LATEST, Consumer, ConsumerOptions, Isolation
from tailrace.client.lanes import ANONYMOUS
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.transactions.producer import TransactionalProducer
from tailrace.model.errors import KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Stream
from tailrace.real.ports import real_ports
from tailrace.spark.sink.exactly_once.decision import ExactlyOnceError, Fingerprint, Part, Report
from tailrace.spark.sink.exactly_once.driver import Driver
from tailrace.spark.sink.exactly_once.settings import ExactlyOnceSettings
from tailrace.spark.sink.exactly_once.task import Task, TaskTransaction

T = TypeVar("T")

SETTINGS = ExactlyOnceSettings(retry_timeout_ms=10_000, decision_timeout_ms=1000, abort_timeout_ms=1000)
PARTITION_COUNT = 2
DEADLINE_S = 20

# The rows of each task.
Rows = Sequence[Sequence[bytes]]


class DiedError(BaseException):
    """Not an Exception: nothing in the process may handle its own death."""


class MortalNetwork:
    """The network of a process that dies when it sends its n-th request, before or just after the request has left."""

    def __init__(self, dies_at: int, *, is_sent: bool) -> None:
        self._network = real_ports().network
        self._left = dies_at
        self._is_sent = is_sent
        self._streams: list[Stream] = []
        self.died = asyncio.get_running_loop().create_future()

    async def connect(self, host: str, port: int) -> Stream:
        self._streams.append(await self._network.connect(host, port))
        return _MortalStream(self._streams[-1], self)

    def close(self) -> None:
        """As the kernel does for whoever died."""
        for stream in self._streams:
            stream.close()

    def spend(self, send: Callable[[], int]) -> int:
        if self.died.done():
            raise DiedError
        self._left -= 1
        if self._left > 0:
            return send()
        if self._is_sent:
            send()
        self.died.set_result(None)
        raise DiedError


class _MortalStream:
    def __init__(self, stream: Stream, network: MortalNetwork) -> None:
        self._stream = stream
        self._network = network

    def send(self, parts):
        return self._network.spend(lambda: self._stream.send(parts))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class SleepyNetwork:
    """The network of a process that is stopped when it sends its n-th request, and goes on with it once it is woken."""

    def __init__(self, sleeps_at: int) -> None:
        self._network = real_ports().network
        self._left = sleeps_at
        self._held: list[tuple[Stream, bytes]] = []
        self._is_woken = False
        self.fell_asleep = asyncio.get_running_loop().create_future()

    async def connect(self, host: str, port: int) -> Stream:
        return _SleepyStream(await self._network.connect(host, port), self)

    def hold(self, stream: Stream, parts) -> int:
        self._left -= 1
        if self._left > 0 or self._is_woken:
            return stream.send(parts)
        if not self.fell_asleep.done():
            self.fell_asleep.set_result(None)
        self._held.append((stream, b"".join(parts)))
        return len(self._held[-1][1])

    def wake(self) -> None:
        self._is_woken = True
        for stream, request in self._held:
            assert stream.send([request]) == len(request), "requests of this protocol are small"


class _SleepyStream:
    def __init__(self, stream: Stream, network: SleepyNetwork) -> None:
        self._stream = stream
        self._network = network

    def send(self, parts):
        return self._network.hold(self._stream, parts)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


async def until_it_dies(
    bootstrap: str, dies_at: int, action: Callable[[Cluster], Awaitable[T]], *, is_sent: bool
) -> tuple[T] | None:
    """What the action gives, or None if it died before."""
    network = MortalNetwork(dies_at, is_sent=is_sent)
    ports = dataclasses.replace(real_ports(), network=network)
    cluster = Cluster(ports, parse_bootstrap(bootstrap))
    task = asyncio.ensure_future(action(cluster))
    await asyncio.wait({task, network.died}, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
    if network.died.done():
        task.cancel()
    try:
        return (await task,)
    except (DiedError, asyncio.CancelledError):
        return None
    finally:
        cluster.close()
        network.close()


@dataclass(frozen=True)
class Query:
    """Writes batches as Spark would run them: tasks first, then the driver. `topic` is where rows go."""

    topic: str
    scope: str
    run: str
    settings: ExactlyOnceSettings = SETTINGS

    def replaced(self, **fields: object) -> "Query":
        return dataclasses.replace(self, **fields)

    async def write(self, cluster: Cluster, batch: int, rows: Rows) -> list[Report]:
        return [await self.write_part(cluster, batch, index, rows[index]) for index in range(len(rows))]

    async def write_part(self, cluster: Cluster, batch: int, index: int, values: Sequence[bytes]) -> Report:
        transaction = TaskTransaction(cluster, self.settings, Task(self.scope, batch, index))
        is_done = await transaction.is_done()
        identity = ANONYMOUS
        if values and not is_done:
            author = await transaction.begin()
            assert isinstance(author, TransactionalProducer)
            sent = [await author.send(self.topic, value, partition=index % PARTITION_COUNT) for value in values]
            await asyncio.gather(*sent)
            identity = await transaction.seal()
        fingerprint = Fingerprint(len(values), sum(map(crc32, values)))
        return Report(Part(index, identity, fingerprint), has_written=not is_done)

    def driver(self, cluster: Cluster) -> Driver:
        return Driver(cluster, self.settings, scope=self.scope, run=self.run)

    async def commit(self, cluster: Cluster, batch: int, reports: Sequence[Report]) -> None:
        await self.driver(cluster).commit(batch, reports)

    async def run_batch(self, cluster: Cluster, batch: int, rows: Rows) -> None:
        reports = await self.write(cluster, batch, rows)
        try:
            await self.commit(cluster, batch, reports)
        except (ExactlyOnceError, KafkaError):
            await self.driver(cluster).abort(batch, reports)
            raise


async def read_committed(cluster: Cluster, topic: str) -> list[bytes]:
    """Everything that is committed, once no transaction is open there any more."""
    partitions = [TopicPartition(topic, PartitionIndex(index)) for index in range(PARTITION_COUNT)]
    consumer = Consumer(cluster, ConsumerOptions(isolation=Isolation.READ_COMMITTED))
    values: list[bytes] = []
    async with asyncio.timeout(DEADLINE_S):
        ends = await Consumer(cluster).offsets_at(partitions, LATEST)
        await consumer.assign(await consumer.offsets_at(partitions, EARLIEST))
        while any(consumer.position(partition).offset < end for partition, end in ends.items()):
            for records in (await consumer.poll(100)).values():
                values += [record.value or b"" for record in records]
    await consumer.close()
    return sorted(values)

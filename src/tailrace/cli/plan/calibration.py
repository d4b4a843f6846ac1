"""What a broker costs on this machine, in less than a minute: brokers are started, written to and read from.

Processor time of the brokers is what counts, not the time that passes, so that neither the client, which is slower than
a broker, nor other work on the machine is part of the figures. Costs of two sizes tell what a request costs and
what a byte does. Clients have one request in flight each, as many clients that are seldom busy have.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple

from tailrace.client.admin import Admin
from tailrace.client.fetching import ConsumerOptions, FetchPosition, fetch_once
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.producer import Producer, ProducerOptions
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.real.cluster import open_cluster
from tailrace.testing import Broker
from tailrace.testing import Cluster as Brokers

_SECONDS = 3.0
_SMALL_BYTES, _LARGE_BYTES, _COPIED_BYTES = 1_000, 500_000, 64_000
_CLIENTS = 12
_LARGE_CLIENTS = 4
_MANY_CLIENTS = 48
_PARTITIONS = 1_000
_CONNECTIONS = 500
_DISK_BYTES, _CHUNK_BYTES = 256 << 20, 1 << 20
# Old segments go soon, so that memory is taken again and the disk does not fill.
_SETTINGS = {"log.retention.check.interval.ms": 100, "log.initial.task.delay.ms": 0}
_TOPIC = {"segment.bytes": str(64 << 20), "retention.bytes": str(128 << 20), "file.delete.delay.ms": "0"}
# Timers and freed memory come to rest.
_SETTLE_S = 0.5


class _Cost(NamedTuple):
    """The cost of one request with so many bytes."""

    cpu_s: float
    size_bytes: float


def calibrate(note: Callable[[str], None]) -> dict[str, float]:
    """The values of `Figures`, by name; `note` is told what is going on."""
    note("measuring the disk")
    values = {"disk_mb_per_s": _disk_bytes_per_s() / 1e6}
    note("measuring memory")
    with Broker(_SETTINGS, log_level="warning") as broker:
        values |= asyncio.run(_memory(broker))
    with Broker(_SETTINGS, log_level="warning") as broker:
        values |= asyncio.run(_of_one(broker, note))
    note("measuring three brokers")
    with Brokers(_SETTINGS, brokers=3, log_level="warning") as brokers:
        processes = [facts["process_id"] for name, facts in brokers.nodes.items() if name.startswith("broker-")]
        copied = asyncio.run(_of_three(brokers.bootstrap, processes))
    leader_s = values["produce_us_per_request"] / 1e6 + copied.size_bytes / 1e9 * values["produce_s_per_gb"]
    # What two followers add, on both sides.
    values["replicate_s_per_gb"] = max(0.0, (copied.cpu_s - leader_s) / 2) / copied.size_bytes * 1e9
    return {name: round(value, 4) for name, value in values.items()}


async def _memory(broker: Broker) -> dict[str, float]:
    """The memory of a broker that has done no work yet: one that has worked keeps freed memory and uses that first."""
    processes = [broker.process_id]
    cluster = open_cluster(parse_bootstrap(broker.bootstrap))
    try:
        idle = _resident_bytes(processes)
        connected = await _connection_bytes(broker.port, processes)
        partition = await _partition_bytes(cluster, processes)
    finally:
        cluster.close()
    return {"broker_mb": idle / 1e6, "connection_kb": connected / 1e3, "partition_kb": partition / 1e3}


async def _of_one(broker: Broker, note: Callable[[str], None]) -> dict[str, float]:
    processes = [broker.process_id]
    await _create_topic(broker.bootstrap, "small", partitions=_CLIENTS, replicas=1)
    await _create_topic(broker.bootstrap, "large", partitions=_LARGE_CLIENTS, replicas=1)
    note("measuring one broker: produce")
    small = await _produce(broker.bootstrap, processes, "small", _SMALL_BYTES, _CLIENTS)
    large = await _produce(broker.bootstrap, processes, "large", _LARGE_BYTES, _LARGE_CLIENTS)
    values = dict(zip(("produce_us_per_request", "produce_s_per_gb"), _fixed_and_growing(small, large), strict=True))
    note("measuring one broker: fetch")
    small = await _fetch(broker.bootstrap, processes, "small", _SMALL_BYTES, _CLIENTS)
    large = await _fetch(broker.bootstrap, processes, "large", _LARGE_BYTES, _LARGE_CLIENTS)
    return values | dict(zip(("fetch_us_per_request", "fetch_s_per_gb"), _fixed_and_growing(small, large), strict=True))


async def _of_three(bootstrap: str, processes: Collection[int]) -> _Cost:
    """With so many clients that followers find several batches whenever they ask, as those of a busy cluster do."""
    await _create_topic(bootstrap, "copied", partitions=_MANY_CLIENTS, replicas=3)
    return await _produce(bootstrap, processes, "copied", _COPIED_BYTES, _MANY_CLIENTS)


async def _create_topic(bootstrap: str, name: str, *, partitions: int, replicas: int) -> None:
    cluster = open_cluster(parse_bootstrap(bootstrap))
    try:
        await Admin(cluster).create_topic(name, partition_count=partitions, replication_factor=replicas, configs=_TOPIC)
    finally:
        cluster.close()


def _fixed_and_growing(small: _Cost, large: _Cost) -> tuple[float, float]:
    """Microseconds of a request without bytes, and seconds of a GB without requests."""
    growing = max(0.0, (large.cpu_s - small.cpu_s) / (large.size_bytes - small.size_bytes))
    return max(0.0, small.cpu_s - growing * small.size_bytes) * 1e6, growing * 1e9


async def _produce(bootstrap: str, processes: Collection[int], topic: str, size_bytes: int, clients: int) -> _Cost:
    """Each client writes to a partition of its own, one record in a batch."""
    options = ProducerOptions(linger_ms=0)
    value = os.urandom(size_bytes)

    producers: list[Producer] = []

    async def prepare(cluster: Cluster, partition: TopicPartition) -> Callable[[], Awaitable[int]]:
        producer = Producer(cluster, options)
        producers.append(producer)

        async def request() -> int:
            await (await producer.send(partition.topic, value, partition=partition.partition))
            return size_bytes

        return request

    try:
        return await _cost(bootstrap, processes, topic, clients, prepare)
    finally:
        for producer in producers:
            producer.close()


async def _fetch(bootstrap: str, processes: Collection[int], topic: str, size_bytes: int, clients: int) -> _Cost:
    """Each client writes a batch to a partition of its own, and reads it again and again."""
    options = ConsumerOptions(fetch_max_bytes=2 * _LARGE_BYTES, partition_max_bytes=1)

    async def prepare(cluster: Cluster, partition: TopicPartition) -> Callable[[], Awaitable[int]]:
        async with Producer(cluster, ProducerOptions(linger_ms=0)) as producer:
            delivered = await (await producer.send(topic, os.urandom(size_bytes), partition=partition.partition))
        leader = await cluster.leader_of(partition)
        position = FetchPosition(delivered.offset, leader.leader_epoch)

        async def request() -> int:
            answer = await fetch_once(cluster, leader.leader_id, {partition: position}, options)
            return len(answer.responses[0].partitions[0].records or b"")

        return request

    return await _cost(bootstrap, processes, topic, clients, prepare)


async def _cost(
    bootstrap: str,
    processes: Collection[int],
    topic: str,
    clients: int,
    prepare: Callable[[Cluster, TopicPartition], Awaitable[Callable[[], Awaitable[int]]]],
) -> _Cost:
    """The mean cost of a request that clients repeat for some seconds."""
    clusters = [open_cluster(parse_bootstrap(bootstrap)) for _ in range(clients)]
    try:
        requests = [
            await prepare(cluster, TopicPartition(topic, PartitionIndex(index)))
            for index, cluster in enumerate(clusters)
        ]
        # The first ones wait for connections, metadata and producer ids.
        await asyncio.gather(*(request() for request in requests))
        before_s, end = _cpu_s(processes), time.perf_counter() + _SECONDS
        done = await asyncio.gather(*(_repeat(request, end) for request in requests))
        spent_s = _cpu_s(processes) - before_s
    finally:
        for cluster in clusters:
            cluster.close()
    count = sum(count for count, _ in done)
    return _Cost(spent_s / count, sum(size for _, size in done) / count)


async def _repeat(request: Callable[[], Awaitable[int]], end: float) -> tuple[int, int]:
    count = size = 0
    while not count or time.perf_counter() < end:
        size += await request()
        count += 1
    return count, size


async def _partition_bytes(cluster: Cluster, processes: Collection[int]) -> float:
    """With a record in each: what was never written to has fewer files open."""
    before = _resident_bytes(processes)
    await Admin(cluster).create_topic("many", partition_count=_PARTITIONS, replication_factor=1)
    async with Producer(cluster) as producer:
        for index in range(_PARTITIONS):
            await producer.send("many", bytes(_SMALL_BYTES), partition=index)
    await asyncio.sleep(_SETTLE_S)
    return max(0.0, (_resident_bytes(processes) - before) / _PARTITIONS)


async def _connection_bytes(port: int, processes: Collection[int]) -> float:
    before = _resident_bytes(processes)
    connections = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(_CONNECTIONS)]
    try:
        await asyncio.sleep(_SETTLE_S)
        return max(0.0, (_resident_bytes(processes) - before) / _CONNECTIONS)
    finally:
        for connection in connections:
            connection.close()


def _disk_bytes_per_s() -> float:
    """The write speed of the disk with the temporary files, where the brokers of this calibration keep their data."""
    chunk = os.urandom(_CHUNK_BYTES)
    with tempfile.TemporaryFile() as file:
        start = time.perf_counter()
        for _ in range(_DISK_BYTES // _CHUNK_BYTES):
            file.write(chunk)
        file.flush()
        os.fdatasync(file.fileno())
        return _DISK_BYTES / (time.perf_counter() - start)


def _cpu_s(processes: Collection[int]) -> float:
    return sum(map(_cpu_s_of, processes))


def _cpu_s_of(process_id: int) -> float:
    with open(f"/proc/{process_id}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(processes: Collection[int]) -> int:
    return sum(map(_resident_bytes_of, processes))


def _resident_bytes_of(process_id: int) -> int:
    with open(f"/proc/{process_id}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

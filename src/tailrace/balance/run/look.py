"""The picture of a cluster, asked of its brokers by what every Kafka has: Metadata, DescribeCluster, DescribeLogDirs.

Sizes are those of the logs, the largest of a partition's replicas; a disk is what the volumes of a broker's folders
have, without what others keep there. Rates come from `Rates`, if somebody has measured them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.balance.plan.picture import BrokerState, PartitionState, Picture, Resource
from tailrace.client.admin import Admin, BrokerEntry, Reassignment
from tailrace.client.metadata import TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.model.machines import MachineBrokers, machine_of, parse_machine_brokers
from tailrace.wire.apis.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

_RESOURCE_BROKER = 4


class Rates(NamedTuple):
    """Bytes a second of each partition, and the share of its loop that each broker uses."""

    bytes_in: Mapping[TopicPartition, float] = {}
    bytes_out: Mapping[TopicPartition, float] = {}
    loops: Mapping[int, float] = {}


class Limits(NamedTuple):
    """What the brokers could do, where nothing tells: bytes a second of a broker's network, each way."""

    network: float | None = None


class Sight(NamedTuple):
    """What was seen at one moment."""

    brokers: tuple[BrokerEntry, ...]
    topics: tuple[TopicMetadata, ...]
    reassignments: Mapping[TopicPartition, Reassignment]

    @property
    def live(self) -> frozenset[int]:
        return frozenset(broker.node_id for broker in self.brokers if not broker.is_fenced)


class Disk(NamedTuple):
    capacity_bytes: float | None
    sizes: Mapping[TopicPartition, int]


async def look(admin: Admin) -> Sight:
    brokers = tuple(await admin.brokers())
    topics = tuple(await admin.topics())
    return Sight(brokers, topics, await admin.reassignments())


async def look_at_disks(admin: Admin, live: frozenset[int]) -> dict[int, Disk]:
    """Of the brokers that answer; one that has just died holds what its followers hold."""
    disks = {}
    for node_id in sorted(live):
        try:
            disks[node_id] = await _describe_disk(admin, node_id)
        except KafkaError as error:
            if not error.code.retriable:
                raise
    return disks


async def look_at_machines(admin: Admin, live: frozenset[int]) -> tuple[MachineBrokers, ...]:
    """What `tailrace.machines` of a live broker names; nothing at another Kafka, or for one who may not read it."""
    connection = await admin.cluster.connection_to(NodeId(min(live, default=-1)))
    wanted = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_RESOURCE_BROKER, resource_name=str(min(live)), configuration_keys=["tailrace.machines"]
    )
    answer = await connection.call(DescribeConfigsRequest(resources=[wanted]), DescribeConfigsResponse)
    named = [entry.value for result in answer.results for entry in result.configs if entry.value]
    return tuple(parse_machine_brokers(part.strip()) for text in named for part in text.split(","))


async def _describe_disk(admin: Admin, node_id: int) -> Disk:
    connection = await admin.cluster.connection_to(NodeId(node_id))
    answer = await connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), f"broker {node_id} does not tell of its logs")
    sizes: dict[TopicPartition, int] = {}
    volumes: set[tuple[int, int]] = set()
    is_known = True
    for folder in answer.results:
        if folder.error_code:
            continue
        is_known &= folder.total_bytes >= 0
        volumes.add((folder.total_bytes, folder.usable_bytes))
        for topic in folder.topics:
            for each in topic.partitions:
                if not each.is_future_key:
                    sizes[TopicPartition(topic.name, PartitionIndex(each.partition_index))] = each.partition_size
    if not is_known or not volumes:
        return Disk(None, sizes)
    # Folders of one volume count once. What is neither free nor ours belongs to somebody else.
    total, free = (sum(each) for each in zip(*volumes, strict=True))
    return Disk(float(min(total, free + sum(sizes.values()))), sizes)


def picture_of(
    sight: Sight,
    disks: Mapping[int, Disk],
    *,
    rates: Rates,
    limits: Limits,
    machines: Sequence[MachineBrokers] = (),
) -> Picture:
    brokers = [_broker_state(broker, disks.get(broker.node_id), limits, rates, machines) for broker in sight.brokers]
    sizes: dict[TopicPartition, int] = {}
    for disk in disks.values():
        for partition, size in disk.sizes.items():
            sizes[partition] = max(size, sizes.get(partition, 0))
    leads: dict[TopicPartition, int] = {}
    partitions = []
    for topic in sight.topics:
        for index, found in topic.partitions.items():
            partition = TopicPartition(topic.name, PartitionIndex(index))
            leads[partition] = found.leader_id
            ongoing = sight.reassignments.get(partition)
            partitions.append(
                PartitionState(
                    partition,
                    found.replicas if ongoing is None else ongoing.target,
                    size_bytes=float(sizes.get(partition, 0)),
                    in_rate=rates.bytes_in.get(partition, 0.0),
                    out_rate=rates.bytes_out.get(partition, 0.0),
                    pinned=None if ongoing is None else "another reassignment has it",
                )
            )
    return Picture(brokers, _with_loops(partitions, leads, rates))


def _broker_state(
    broker: BrokerEntry, disk: Disk | None, limits: Limits, rates: Rates, machines: Sequence[MachineBrokers]
) -> BrokerState:
    capacity: dict[Resource, float] = {}
    if disk is not None and disk.capacity_bytes:
        capacity[Resource.DISK] = disk.capacity_bytes
    if limits.network is not None:
        capacity |= {Resource.NETWORK_IN: limits.network, Resource.NETWORK_OUT: limits.network}
    if rates.loops:
        capacity[Resource.LOOP] = 1.0
    machine = machine_of(broker.node_id, [broker.host], machines)
    return BrokerState(broker.node_id, broker.rack, not broker.is_fenced, capacity, machine)


def _with_loops(
    partitions: list[PartitionState], leads: Mapping[TopicPartition, int], rates: Rates
) -> list[PartitionState]:
    """A broker's loop belongs to its partitions by the bytes that each makes it handle."""
    if not rates.loops:
        return partitions
    handled: dict[int, float] = {}
    for state in partitions:
        for node_id in state.replicas:
            handled[node_id] = handled.get(node_id, 0.0) + _handled(state, is_leader=node_id == leads[state.partition])
    costs = [rates.loops[node_id] / total for node_id, total in handled.items() if total and node_id in rates.loops]
    cost = sum(costs) / len(costs) if costs else 0.0
    return [
        state._replace(
            leader_loop=cost * _handled(state, is_leader=True), follower_loop=cost * _handled(state, is_leader=False)
        )
        for state in partitions
    ]


def _handled(state: PartitionState, *, is_leader: bool) -> float:
    return state.in_rate * len(state.replicas) + state.out_rate if is_leader else state.in_rate

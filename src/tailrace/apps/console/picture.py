"""One picture of the cluster: brokers, quorum, topics with their offsets and sizes, groups and how far they are.

Taken with as few requests as the protocol allows, each leader and each coordinator asked once. A broker that does not
answer leaves a gap and a line in `problems`; it never spoils the rest, since that is when somebody looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from tailrace.client.admin import Admin, BrokerEntry, QuorumDescription, Reassignment
from tailrace.client.connection import error_code
from tailrace.client.fetching import Isolation
from tailrace.client.groups.admin import GroupAdmin, ListedGroup
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, PartitionIndex, TopicPartition
from tailrace.wire.apis.admin import DescribeLogDirsRequest, DescribeLogDirsResponse
from tailrace.wire.apis.data import ListOffsetsRequest, ListOffsetsResponse
from tailrace.wire.apis.groups import OffsetFetchRequest, OffsetFetchResponse

T = TypeVar("T")

# How many groups one request asks for: an answer has each partition that each of them has committed.
_GROUPS_AT_ONCE = 100
# From version 10 on topics are named by id only.
_OFFSET_FETCH_VERSION_MAX = 9


@dataclass(frozen=True)
class Folder:
    """A data folder of a broker. Sizes are -1 where the broker does not tell."""

    broker_id: int
    path: str
    used_bytes: int
    total_bytes: int
    usable_bytes: int
    error: ErrorCode


@dataclass(frozen=True)
class Picture:
    taken_ms: int  # wall clock
    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerEntry, ...]
    quorum: QuorumDescription | None
    topics: Mapping[str, TopicMetadata]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    # Of each replica, by partition and broker.
    sizes: Mapping[TopicPartition, Mapping[int, int]]
    folders: tuple[Folder, ...]
    groups: Mapping[str, ListedGroup]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    moving: Mapping[TopicPartition, Reassignment]
    features: Mapping[str, int]  # With the level that the cluster has decided on.
    problems: tuple[str, ...] = field(default=())

    def records_of(self, topic: str) -> int:
        """How many offsets its partitions span: compaction and transactions leave gaps."""
        return sum(
            self.ends[each] - self.starts.get(each, 0) for each in self.partitions_of(topic) if each in self.ends
        )

    def end_of(self, topic: str) -> int:
        return sum(self.ends.get(each, 0) for each in self.partitions_of(topic))

    def bytes_of(self, topic: str) -> int:
        """On all replicas together."""
        return sum(sum(self.sizes.get(each, {}).values()) for each in self.partitions_of(topic))

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        found = self.topics.get(topic)
        return [TopicPartition(topic, PartitionIndex(index)) for index in (found.partitions if found else ())]

    def copied_of(self, partition: TopicPartition) -> tuple[int, int]:
        """How much of a partition on its way the replicas have that come, and how much they are to have."""
        sizes, move = self.sizes.get(partition, {}), self.moving[partition]
        whole = max((sizes.get(each, 0) for each in move.replicas if each not in move.adding), default=0)
        return sum(min(sizes.get(each, 0), whole) for each in move.adding), whole * len(move.adding)

    def lag_of(self, group_id: str) -> int | None:
        """In records, over the partitions that it has committed; None if it has committed none."""
        lags = [lag[group_id] for lag in self._lags.values() if group_id in lag]
        return sum(lags) if lags else None

    def groups_of(self, topic: str) -> Mapping[str, int]:
        """The groups that have committed offsets of the topic, with their lag in it."""
        return self._lags.get(topic, {})

    @cached_property
    def _lags(self) -> dict[str, dict[str, int]]:
        """By topic and group."""
        found: dict[str, dict[str, int]] = {}
        for group_id, offsets in sorted(self.committed.items()):
            for partition, offset in offsets.items():
                if partition in self.ends:
                    lags = found.setdefault(partition.topic, {})
                    lags[group_id] = lags.get(group_id, 0) + max(0, self.ends[partition] - offset)
        return found

    def offline(self) -> list[TopicPartition]:
        return [each for each, leader, _, _ in self._states() if leader < 0]

    def under_replicated(self) -> list[TopicPartition]:
        return [each for each, _, isr, replicas in self._states() if isr < replicas]

    def _states(self) -> Iterable[tuple[TopicPartition, int, int, int]]:
        for topic in self.topics.values():
            for index, found in topic.partitions.items():
                partition = TopicPartition(topic.name, PartitionIndex(index))
                yield partition, found.leader_id, len(found.isr), len(found.replicas)


async def take_picture(cluster: Cluster, *, groups_max: int) -> Picture:
    """Raises KafkaError if no broker answers at all."""
    problems: list[str] = []
    admin = Admin(cluster)
    brokers = await admin.brokers()
    topics = await cluster.refresh(None)
    quorum, moving, offsets, folders, groups = await asyncio.gather(
        _or_none(admin.describe_quorum(), problems),
        _or_none(admin.reassignments(), problems),
        _offsets(cluster, topics, problems),
        _folders(cluster, problems),
        _groups(cluster, problems, groups_max),
    )
    committed = await _committed(cluster, groups, problems)
    return Picture(
        taken_ms=int(cluster.ports.clock.wall_ms()),
        cluster_id=cluster.cluster_id or "",
        controller_id=cluster.controller_id,
        brokers=tuple(brokers),
        quorum=quorum,
        topics=dict(sorted(topics.items())),
        starts=offsets[0],
        ends=offsets[1],
        sizes=folders[1],
        folders=tuple(folders[0]),
        groups=groups,
        committed=committed,
        moving=moving or {},
        features=dict(sorted((await cluster.any_connection()).finalized_features.items())),
        problems=tuple(dict.fromkeys(problems)),
    )


async def _or_none(question: Awaitable[T], problems: list[str]) -> T | None:
    try:
        return await question
    except KafkaError as error:
        problems.append(error.message or error.code.name)
        return None


# --- offsets


async def _offsets(
    cluster: Cluster, topics: Mapping[str, TopicMetadata], problems: list[str]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    by_leader: dict[NodeId, dict[str, list[int]]] = {}
    for topic in topics.values():
        for index, found in topic.partitions.items():
            if found.leader_id >= 0:
                by_leader.setdefault(found.leader_id, {}).setdefault(topic.name, []).append(index)
    questions = [(node, led, when) for node, led in by_leader.items() for when in (EARLIEST, LATEST)]
    answers = await asyncio.gather(*(_or_none(ask_offsets(cluster, *each), problems) for each in questions))
    ends: dict[int, dict[TopicPartition, int]] = {EARLIEST: {}, LATEST: {}}
    for (_, _, when), answer in zip(questions, answers, strict=True):
        ends[when] |= answer or {}
    return ends[EARLIEST], ends[LATEST]


async def ask_offsets(
    cluster: Cluster, node_id: NodeId, led: Mapping[str, Sequence[int]], timestamp: int
) -> dict[TopicPartition, int]:
    """Of the partitions that this broker answers for: one that has moved meanwhile is told at the next picture."""
    connection = await cluster.connection_to(node_id)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=Isolation.READ_UNCOMMITTED,
        timeout_ms=cluster.limits.request_timeout_ms,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in indexes
                ],
            )
            for name, indexes in led.items()
        ],
    )
    answer = await connection.call(request, ListOffsetsResponse)
    return {
        TopicPartition(topic.name, PartitionIndex(result.partition_index)): result.offset
        for topic in answer.topics
        for result in topic.partitions
        if not result.error_code and result.offset >= 0
    }


# --- disks


async def _folders(cluster: Cluster, problems: list[str]) -> tuple[list[Folder], dict[TopicPartition, dict[int, int]]]:
    nodes = sorted(cluster.brokers)
    answers = await asyncio.gather(*(_or_none(_ask_folders(cluster, node), problems) for node in nodes))
    folders: list[Folder] = []
    sizes: dict[TopicPartition, dict[int, int]] = {}
    for node_id, answer in zip(nodes, answers, strict=True):
        for found in answer.results if answer is not None else ():
            used = 0
            for topic in found.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, PartitionIndex(each.partition_index))
                    sizes.setdefault(partition, {})[node_id] = each.partition_size
                    used += each.partition_size
            code = error_code(found.error_code)
            folders.append(Folder(node_id, found.log_dir, used, found.total_bytes, found.usable_bytes, code))
    return folders, sizes


async def _ask_folders(cluster: Cluster, node_id: NodeId) -> DescribeLogDirsResponse:
    connection = await cluster.connection_to(node_id)
    return await connection.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)


# --- groups


async def _groups(cluster: Cluster, problems: list[str], groups_max: int) -> dict[str, ListedGroup]:
    found = await _or_none(GroupAdmin(cluster).groups(), problems) or []
    if len(found) > groups_max:
        problems.append(f"there are {len(found)} groups, and the first {groups_max} are shown: see --groups-max")
    return {group.group_id: group for group in found[:groups_max]}


async def _committed(
    cluster: Cluster, groups: Mapping[str, ListedGroup], problems: list[str]
) -> dict[str, dict[TopicPartition, int]]:
    by_coordinator: dict[int, list[str]] = {}
    for group in groups.values():
        by_coordinator.setdefault(group.coordinator_id, []).append(group.group_id)
    questions = [
        _ask_committed(cluster, NodeId(node_id), ids[start : start + _GROUPS_AT_ONCE])
        for node_id, ids in by_coordinator.items()
        for start in range(0, len(ids), _GROUPS_AT_ONCE)
    ]
    found: dict[str, dict[TopicPartition, int]] = {}
    for answer in await asyncio.gather(*(_or_none(question, problems) for question in questions)):
        found |= answer or {}
    return found


async def _ask_committed(
    cluster: Cluster, node_id: NodeId, group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, int]]:
    connection = await cluster.connection_to(node_id)
    wanted = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=None) for each in group_ids]
    request = OffsetFetchRequest(groups=wanted, require_stable=False)
    answer = await connection.call(request, OffsetFetchResponse, version_max=_OFFSET_FETCH_VERSION_MAX)
    return {
        group.group_id: {
            TopicPartition(topic.name, PartitionIndex(each.partition_index)): each.committed_offset
            for topic in group.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }
        for group in answer.groups
        if not group.error_code
    }

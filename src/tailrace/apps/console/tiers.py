"""What lies in the tier of topics with remote storage, asked by Kafka's own questions when somebody looks.

    start         earliest (-2)         the first record that can be read
    local_start   earliest local (-4)   before it records lie in the store alone
    tiered_end    latest tiered (-5)    the last offset that was copied, and one more
    end           latest (-1)

What lies between `tiered_end` and `end` is not in the store yet: the segment that is written, and what waits its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.apps.console.picture import Picture, ask_offsets
from tailrace.client.metadata import Cluster
from tailrace.model.errors import KafkaError
from tailrace.model.ids import NodeId, TopicPartition
from tailrace.wire.apis.admin import DescribeConfigsRequest, DescribeConfigsResponse

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
_TOPIC, _BROKER = 2, 4
_ENABLED = "remote.storage.enable"
BROKER_SETTINGS = ("remote.log.storage.system.enable", "remote.log.storage.url", "remote.log.storage.recovery")


class PartitionTier(NamedTuple):
    partition: TopicPartition
    leader_id: int
    start: int
    local_start: int
    tiered_end: int
    end: int
    local_bytes: int

    @property
    def only_there(self) -> int:
        return max(0, self.local_start - self.start)

    @property
    def not_there(self) -> int:
        return max(0, self.end - max(self.tiered_end, self.start))


@dataclass(frozen=True)
class Tiers:
    partitions: Mapping[str, Sequence[PartitionTier]]  # By topic.
    brokers: Mapping[int, Mapping[str, str]]  # What each has of BROKER_SETTINGS.
    problems: tuple[str, ...]


async def look_at_tiers(cluster: Cluster, picture: Picture) -> Tiers:
    """A broker that does not answer, or does not know the question, leaves a gap and a problem."""
    problems: list[str] = []
    names = await _settings(cluster, None, _questions(_TOPIC, picture.topics, (_ENABLED,)), problems)
    tiered = [name for name, found in names.items() if found.get(_ENABLED) == "true"]
    # The picture may be of somebody else's connections: these have yet to learn where brokers are.
    await cluster.refresh(tiered)
    by_leader: dict[NodeId, dict[str, list[int]]] = {}
    for name in tiered:
        for index, found in picture.topics[name].partitions.items():
            if found.leader_id >= 0:
                by_leader.setdefault(found.leader_id, {}).setdefault(name, []).append(index)
    questions = [(node, led, when) for node, led in by_leader.items() for when in (EARLIEST_LOCAL, LATEST_TIERED)]
    answers = await asyncio.gather(*(_or_nothing(cluster, *each, problems) for each in questions))
    offsets: dict[int, dict[TopicPartition, int]] = {EARLIEST_LOCAL: {}, LATEST_TIERED: {}}
    for (_, _, when), answer in zip(questions, answers, strict=True):
        offsets[when] |= answer
    brokers = await asyncio.gather(
        *(
            _settings(
                cluster, NodeId(each.node_id), _questions(_BROKER, [str(each.node_id)], BROKER_SETTINGS), problems
            )
            for each in picture.brokers
            if not each.is_fenced
        )
    )
    return Tiers(
        {name: [_tier(picture, each, offsets) for each in picture.partitions_of(name)] for name in sorted(tiered)},
        {int(node): settings for found in brokers for node, settings in found.items()},
        tuple(dict.fromkeys(problems)),
    )


def _tier(
    picture: Picture, partition: TopicPartition, offsets: Mapping[int, Mapping[TopicPartition, int]]
) -> PartitionTier:
    leader_id = picture.topics[partition.topic].partitions[partition.partition].leader_id
    start = picture.starts.get(partition, 0)
    return PartitionTier(
        partition=partition,
        leader_id=leader_id,
        start=start,
        local_start=offsets[EARLIEST_LOCAL].get(partition, start),
        tiered_end=offsets[LATEST_TIERED].get(partition, start - 1) + 1,
        end=picture.ends.get(partition, 0),
        local_bytes=picture.sizes.get(partition, {}).get(leader_id, 0),
    )


async def _or_nothing(
    cluster: Cluster, node_id: NodeId, led: Mapping[str, Sequence[int]], timestamp: int, problems: list[str]
) -> dict[TopicPartition, int]:
    try:
        return await ask_offsets(cluster, node_id, led, timestamp)
    except KafkaError as error:
        problems.append(error.message or error.code.name)
        return {}


def _questions(kind: int, names: Iterable[str], keys: Sequence[str]) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=list(keys)) for name in names]
    )


async def _settings(
    cluster: Cluster, node_id: NodeId | None, request: DescribeConfigsRequest, problems: list[str]
) -> dict[str, dict[str, str]]:
    """By name of the topic or broker; of whom the visitor may not know them, nothing. Brokers tell their own."""
    try:
        connection = await (cluster.any_connection() if node_id is None else cluster.connection_to(node_id))
        answer = await connection.call(request, DescribeConfigsResponse)
    except KafkaError as error:
        problems.append(error.message or error.code.name)
        return {}
    return {
        result.resource_name: {entry.name: entry.value or "" for entry in result.configs}
        for result in answer.results
        if not result.error_code
    }

"""Partitions and their replicas: where they lie, where they are moving, and which offsets they have."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tailrace.apps.gateway.errors import GatewayError, not_found
from tailrace.apps.gateway.rest.clusters import CLUSTER
from tailrace.apps.gateway.rest.topics import TOPIC, topic_of
from tailrace.apps.gateway.web import Call, Operation, answer, gather
from tailrace.client.admin import Reassignment
from tailrace.client.fetching import Isolation
from tailrace.client.metadata import PartitionMetadata
from tailrace.client.offsets import EARLIEST, LATEST, list_offsets
from tailrace.model.ids import PartitionIndex, TopicPartition

_PARTITION = f"{TOPIC}/partitions/{{partition_id}}"


async def _list(call: Call) -> Response:
    cluster_id, topic = await call.cluster_id(), await topic_of(call)
    found = [_partition(call, cluster_id, topic.name, each) for each in topic.partitions.values()]
    return call.collection("KafkaPartitionList", (cluster_id, "topics", topic.name, "partitions"), found)


async def _get(call: Call) -> Response:
    cluster_id, (topic, partition) = await call.cluster_id(), await _asked(call)
    return answer(_partition(call, cluster_id, topic, partition))


async def _asked(call: Call) -> tuple[str, PartitionMetadata]:
    index = call.number("partition_id")
    topic = await topic_of(call)
    if index not in topic.partitions:
        raise GatewayError(404, 40402, f"Partition not found. Topic {topic.name} has {len(topic.partitions)}")
    return topic.name, topic.partitions[index]


def _partition(call: Call, cluster_id: str, topic: str, partition: PartitionMetadata) -> dict[str, Any]:
    place = (cluster_id, "topics", topic, "partitions", partition.partition)
    has_leader = partition.leader_id >= 0
    return call.resource(
        "KafkaPartition",
        place,
        f"/topic={topic}/partition={partition.partition}",
        cluster_id=cluster_id,
        topic_name=topic,
        partition_id=partition.partition,
        leader=call.related(*place, "replicas", partition.leader_id) if has_leader else None,
        replicas=call.related(*place, "replicas"),
        reassignment=call.related(*place, "reassignment"),
    )


async def _offsets(call: Call) -> Response:
    cluster_id, (topic, partition) = await call.cluster_id(), await _asked(call)
    where = TopicPartition(topic, PartitionIndex(partition.partition))
    cluster = call.caller.cluster
    earliest, latest = await gather(
        *(
            list_offsets(
                cluster,
                {where: time},
                isolation=Isolation.READ_UNCOMMITTED,
                timeout_ms=cluster.limits.request_timeout_ms,
            )
            for time in (EARLIEST, LATEST)
        )
    )
    place = (cluster_id, "topics", topic, "partitions", partition.partition, "offset")
    fields = {
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": partition.partition,
        "earliest_offset": earliest[where],
        "latest_offset": latest[where],
    }
    name = f"/topic={topic}/partition={partition.partition}/offset"
    return answer(call.resource("KafkaPartitionOffset", place, name, **fields))


# --- replicas


async def _list_replicas(call: Call) -> Response:
    cluster_id, (topic, partition) = await call.cluster_id(), await _asked(call)
    found = [_replica(call, cluster_id, topic, partition, node) for node in partition.replicas]
    place = (cluster_id, "topics", topic, "partitions", partition.partition, "replicas")
    return call.collection("KafkaReplicaList", place, found)


async def _get_replica(call: Call) -> Response:
    cluster_id, (topic, partition) = await call.cluster_id(), await _asked(call)
    node = call.number("broker_id")
    if node not in partition.replicas:
        raise not_found(f"broker {node} has no replica of {topic}-{partition.partition}")
    return answer(_replica(call, cluster_id, topic, partition, node))


async def _replicas_of_broker(call: Call) -> Response:
    cluster_id, node = await call.cluster_id(), call.number("broker_id")
    found = [
        _replica(call, cluster_id, topic.name, partition, node)
        for topic in await call.caller.admin.topics()
        for partition in topic.partitions.values()
        if node in partition.replicas
    ]
    return call.collection("KafkaReplicaList", (cluster_id, "brokers", node, "partition-replicas"), found)


def _replica(call: Call, cluster_id: str, topic: str, partition: PartitionMetadata, node: int) -> dict[str, Any]:
    index = partition.partition
    return call.resource(
        "KafkaReplica",
        (cluster_id, "topics", topic, "partitions", index, "replicas", node),
        f"/topic={topic}/partition={index}/replica={node}",
        cluster_id=cluster_id,
        topic_name=topic,
        partition_id=index,
        broker_id=node,
        is_leader=node == partition.leader_id,
        is_in_sync=node in partition.isr,
        broker=call.related(cluster_id, "brokers", node),
    )


# --- moves


async def _list_moves(call: Call) -> Response:
    cluster_id = await call.cluster_id()
    moves = await call.caller.admin.reassignments()
    found = [_move(call, cluster_id, where, each) for where, each in sorted(moves.items())]
    place = (cluster_id, "topics", "-", "partitions", "-", "reassignment")
    return call.collection("KafkaReassignmentList", place, found)


async def _moves_of_topic(call: Call) -> Response:
    cluster_id, topic = await call.cluster_id(), (await topic_of(call)).name
    moves = await call.caller.admin.reassignments()
    found = [_move(call, cluster_id, where, each) for where, each in sorted(moves.items()) if where.topic == topic]
    place = (cluster_id, "topics", topic, "partitions", "-", "reassignment")
    return call.collection("KafkaReassignmentList", place, found)


async def _move_of_partition(call: Call) -> Response:
    cluster_id, (topic, partition) = await call.cluster_id(), await _asked(call)
    where = TopicPartition(topic, PartitionIndex(partition.partition))
    move = (await call.caller.admin.reassignments()).get(where)
    if move is None:
        raise not_found(f"{where} is not moving")
    return answer(_move(call, cluster_id, where, move))


def _move(call: Call, cluster_id: str, where: TopicPartition, move: Reassignment) -> dict[str, Any]:
    place = (cluster_id, "topics", where.topic, "partitions", where.partition)
    return call.resource(
        "KafkaReassignment",
        (*place, "reassignment"),
        f"/topic={where.topic}/partition={where.partition}/reassignment",
        cluster_id=cluster_id,
        topic_name=where.topic,
        partition_id=where.partition,
        adding_replicas=list(move.adding),
        removing_replicas=list(move.removing),
        replicas=call.related(*place, "replicas"),
    )


OPERATIONS = (
    Operation(
        "GET",
        f"{CLUSTER}/topics/-/partitions/-/reassignment",
        _list_moves,
        "Partitions that are moving",
        answer="ReassignmentDataList",
    ),
    Operation("GET", f"{TOPIC}/partitions", _list, "The partitions of a topic", answer="PartitionDataList"),
    Operation(
        "GET",
        f"{TOPIC}/partitions/-/reassignment",
        _moves_of_topic,
        "Partitions of a topic that are moving",
        answer="ReassignmentDataList",
    ),
    Operation("GET", _PARTITION, _get, "A partition", answer="PartitionData"),
    Operation(
        "GET", f"{_PARTITION}/offset", _offsets, "Where a partition begins and ends", answer="PartitionWithOffsetsData"
    ),
    Operation(
        "GET",
        f"{_PARTITION}/reassignment",
        _move_of_partition,
        "Where a partition is moving",
        answer="ReassignmentData",
    ),
    Operation("GET", f"{_PARTITION}/replicas", _list_replicas, "Its replicas", answer="ReplicaDataList"),
    Operation("GET", f"{_PARTITION}/replicas/{{broker_id}}", _get_replica, "A replica", answer="ReplicaData"),
    Operation(
        "GET",
        f"{CLUSTER}/brokers/{{broker_id}}/partition-replicas",
        _replicas_of_broker,
        "The replicas of a broker",
        answer="ReplicaDataList",
    ),
)

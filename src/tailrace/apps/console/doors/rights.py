"""What a visitor may do, as the cluster says it (KIP-430). A cluster without an authorizer says: everything."""

from __future__ import annotations

from tailrace.client.metadata import Cluster
from tailrace.model.acls import Operation
from tailrace.model.errors import KafkaError
from tailrace.wire.apis.admin import DescribeClusterRequest, DescribeClusterResponse
from tailrace.wire.apis.data import MetadataRequest, MetadataResponse

# What a broker answers that does not tell.
_UNTOLD = -(1 << 31)


async def may_on_cluster(cluster: Cluster, operation: Operation) -> bool:
    """Whether the cluster's answer allows it; no answer allows nothing."""
    try:
        connection = await cluster.any_connection()
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await connection.call(request, DescribeClusterResponse)
    except KafkaError:
        return False
    return _has(answer.cluster_authorized_operations, operation)


async def may_on_topic(cluster: Cluster, topic: str, operation: Operation) -> bool:
    try:
        connection = await cluster.any_connection()
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        answer = await connection.call(request, MetadataResponse)
    except KafkaError:
        return False
    return any(_has(each.topic_authorized_operations, operation) for each in answer.topics if each.name == topic)


def _has(bits: int, operation: Operation) -> bool:
    return bits != _UNTOLD and bool(bits >> operation & 1)

"""What only brokers of Tailrace tell: their connections, the segments of their logs, the last lines of their audit log.

Each broker is asked over a connection of its own, since another Kafka hangs up when it meets a request that it does not
know. A broker that is away leaves a line in `problems`, not a gap in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from tailrace.client.connection import Connection, error_code
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, TopicPartition
from tailrace.wire.apis.own import (
    DescribeAuditRequest,
    DescribeAuditResponse,
    DescribeConnectionsRequest,
    DescribeConnectionsResponse,
    DescribeSegmentsRequest,
    DescribeSegmentsResponse,
)

T = TypeVar("T")

# Of one broker.
CONNECTIONS_MAX = 1000
AUDIT_LINES_MAX = 600
SEGMENTS_MAX = 1000

OneConnection = DescribeConnectionsResponse.Connection
AuditLine = DescribeAuditResponse.Line
Segment = DescribeSegmentsResponse.Segment


class Told(NamedTuple, Generic[T]):
    """By broker id."""

    found: dict[int, list[T]]
    totals: dict[int, int]
    problems: tuple[str, ...]


async def connections_of(cluster: Cluster) -> Told[OneConnection]:
    """Raises KafkaError UNSUPPORTED_VERSION if no broker is of Tailrace, or CLUSTER_AUTHORIZATION_FAILED."""

    async def ask(connection: Connection) -> tuple[list[OneConnection], int]:
        found: list[OneConnection] = []
        while len(found) < CONNECTIONS_MAX:
            request = DescribeConnectionsRequest(skip=len(found))
            answer = await connection.call(request, DescribeConnectionsResponse)
            _check(answer.error_code, answer.error_message)
            found += answer.connections
            if not answer.connections or len(found) >= answer.total_count:
                break
        return found, answer.total_count

    return await _ask_all(cluster, sorted(cluster.brokers), ask)


async def audit_lines_of(cluster: Cluster) -> Told[AuditLine]:
    """Newest first. Raises as `connections_of`."""

    async def ask(connection: Connection) -> tuple[list[AuditLine], int]:
        found: list[AuditLine] = []
        while len(found) < AUDIT_LINES_MAX:
            answer = await connection.call(DescribeAuditRequest(skip=len(found)), DescribeAuditResponse)
            _check(answer.error_code, answer.error_message)
            found += answer.lines
            if not answer.lines:
                break
        return found, len(found)

    return await _ask_all(cluster, sorted(cluster.brokers), ask)


async def segments_of(cluster: Cluster, partition: TopicPartition, replicas: Iterable[int]) -> Told[Segment]:
    """Oldest first, of each replica. Raises KafkaError."""

    async def ask(connection: Connection) -> tuple[list[Segment], int]:
        found: list[Segment] = []
        total = 0
        while len(found) < SEGMENTS_MAX:
            asked = DescribeSegmentsRequest.Partition(partition_index=partition.partition, skip=len(found))
            topic = DescribeSegmentsRequest.Topic(name=partition.topic, partitions=[asked])
            answer = await connection.call(DescribeSegmentsRequest(topics=[topic]), DescribeSegmentsResponse)
            _check(answer.error_code, None)
            part = answer.topics[0].partitions[0]
            _check(part.error_code, None)
            found += part.segments
            total = part.total_count
            if not part.segments or len(found) >= total:
                break
        return found, total

    return await _ask_all(cluster, [NodeId(each) for each in replicas if NodeId(each) in cluster.brokers], ask)


async def _ask_all(
    cluster: Cluster, nodes: list[NodeId], ask: Callable[[Connection], Awaitable[tuple[list[T], int]]]
) -> Told[T]:
    answers = await asyncio.gather(*(_ask(cluster, node, ask) for node in nodes), return_exceptions=True)
    found: dict[int, list[T]] = {}
    totals: dict[int, int] = {}
    problems = []
    for node, answer in zip(nodes, answers, strict=True):
        if isinstance(answer, KafkaError):
            if answer.code is not ErrorCode.NETWORK_EXCEPTION:
                raise answer
            problems.append(f"Broker {node}: {answer.message}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[int(node)], totals[int(node)] = answer
    return Told(found, totals, tuple(problems))


async def _ask(
    cluster: Cluster, node: NodeId, ask: Callable[[Connection], Awaitable[tuple[list[T], int]]]
) -> tuple[list[T], int]:
    connection = await cluster.open(cluster.brokers[node])
    try:
        return await ask(connection)
    except KafkaError as error:
        if error.code is not ErrorCode.NETWORK_EXCEPTION or connection.is_open:
            raise
        message = f"broker {node} hung up: only brokers of Tailrace tell this"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message) from None
    finally:
        connection.close()


def _check(code: int, message: str | None) -> None:
    if code:
        found = error_code(code)
        raise KafkaError(found, message or f"the broker does not tell it: {found.name}")

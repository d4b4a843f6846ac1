"""What the nodes tell of themselves: connections, the audit log, the segments of a partition."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.apps.console.doors.visitors import Visit
from tailrace.apps.console.nodes import Told, audit_lines_of, connections_of, segments_of
from tailrace.apps.console.web import Console, show
from tailrace.client.metadata import Cluster
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition

T = TypeVar("T")

_ROWS_MAX = 500


def routes(console: Console) -> Sequence[BaseRoute]:
    return (
        show("/connections", connections, console),
        show("/audit", audit, console),
        show("/topics/{name}/segments", segments, console),
    )


async def connections(console: Console, visit: Visit, request: Request) -> Response:
    told, untold = await _told(visit.cluster, connections_of)
    wanted = request.query_params.get("find", "").lower()
    rows = [
        (node, each)
        for node, found in told.found.items()
        for each in found
        if wanted in f"{each.principal} {each.client_id} {each.peer} {each.software} {each.listener}".lower()
    ]
    return console.html(
        request,
        "connections.html",
        user=visit.user,
        told=told,
        untold=untold,
        rows=rows[:_ROWS_MAX],
        count=len(rows),
        rows_max=_ROWS_MAX,
        find=request.query_params.get("find", ""),
    )


async def audit(console: Console, visit: Visit, request: Request) -> Response:
    told, untold = await _told(visit.cluster, audit_lines_of)
    wanted = request.query_params.get("find", "").lower()
    rows = [
        (node, each)
        for node, found in told.found.items()
        for each in found
        if wanted in f"{each.principal} {each.client_id} {each.host} {each.api} {each.what} {each.result}".lower()
    ]
    rows.sort(key=lambda row: row[1].at_ms, reverse=True)
    return console.html(
        request,
        "audit.html",
        user=visit.user,
        told=told,
        untold=untold,
        rows=rows[:_ROWS_MAX],
        count=len(rows),
        rows_max=_ROWS_MAX,
        find=request.query_params.get("find", ""),
    )


async def segments(console: Console, visit: Visit, request: Request) -> Response:
    name = request.path_params["name"]
    topic = (await visit.cluster.refresh([name]))[name]
    asked = request.query_params.get("partition", "0")
    index = int(asked) if asked.isascii() and asked.isdigit() else -1
    if index not in topic.partitions:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} has no partition {asked}")
    where, replicas = TopicPartition(name, PartitionIndex(index)), topic.partitions[index].replicas
    told, untold = await _told(visit.cluster, lambda cluster: segments_of(cluster, where, replicas))
    return console.html(
        request,
        "segments.html",
        user=visit.user,
        name=name,
        index=index,
        partitions=list(topic.partitions),
        leader=topic.partitions[index].leader_id,
        told=told,
        untold=untold,
    )


async def _told(cluster: Cluster, ask: Callable[[Cluster], Awaitable[Told[T]]]) -> tuple[Told[T], str | None]:
    """And why nothing was told, if so."""
    await cluster.refresh([])
    try:
        return await ask(cluster), None
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return Told({}, {}, ()), "Only brokers of Tailrace tell this, and this cluster has others."

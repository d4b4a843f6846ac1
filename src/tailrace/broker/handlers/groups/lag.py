"""DescribeGroupLag and LocateOffsets, APIs of our own: what is known of the lag of a group, and what leaders tell.

Without metrics.listeners a broker watches no lag, and knows no verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.metrics.lag.watch import locate
from tailrace.wire.apis.own import (
    DescribeGroupLagRequest,
    DescribeGroupLagResponse,
    LocateOffsetsRequest,
    LocateOffsetsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services


def handle_describe_group_lag(
    services: Services, _context: RequestContext, request: DescribeGroupLagRequest
) -> DescribeGroupLagResponse:
    # Refused where it is not coordinated: nothing is known of it there.
    services.coordination.groups.find(request.group_id)
    watch = services.lag_watch
    found = None if watch is None else watch().groups.get(request.group_id)
    if found is None:
        return DescribeGroupLagResponse()
    topics: dict[str, DescribeGroupLagResponse.Topic] = {}
    for (name, index), each in found.partitions.items():
        topic = topics.setdefault(name, DescribeGroupLagResponse.Topic(name=name))
        topic.partitions.append(
            DescribeGroupLagResponse.Partition(
                partition_index=index,
                committed_offset=each.committed,
                high_watermark=each.end,
                lag_ms=each.lag_ms,
                verdict=each.verdict.name,
            )
        )
    return DescribeGroupLagResponse(verdict=found.verdict.name, topics=list(topics.values()))


async def handle_locate_offsets(
    services: Services, _context: RequestContext, request: LocateOffsetsRequest
) -> LocateOffsetsResponse:
    watch = services.lag_watch
    return await locate(services.replicas, None if watch is None else watch().ends, request)

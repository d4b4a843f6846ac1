"""DescribeConnections, DescribeSegments, DescribeAudit and DescribeMirrors, APIs of our own: what a person wants to see
of this node.

Kafka tells none of it by its protocol. Answers are cut to what the loop makes in about a millisecond: who wants the
rest asks again with what to skip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.apis.own import (
    DescribeAuditRequest,
    DescribeAuditResponse,
    DescribeConnectionsRequest,
    DescribeConnectionsResponse,
    DescribeSegmentsRequest,
    DescribeSegmentsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.log.log import Log
    from tailrace.wire.apis.mirrors import DescribeMirrorsRequest, DescribeMirrorsResponse

_ITEMS_MAX = 200

Segment = DescribeSegmentsResponse.Segment
Partition = DescribeSegmentsResponse.Partition


def handle_describe_connections(
    services: Services, _context: RequestContext, request: DescribeConnectionsRequest
) -> DescribeConnectionsResponse:
    now_ms = services.ports.clock.monotonic_ms()
    return DescribeConnectionsResponse(
        total_count=services.roster.count,
        connections=[
            DescribeConnectionsResponse.Connection(
                peer=speaker.peer,
                listener=speaker.listener.name,
                principal=str(speaker.principal),
                client_id=said.client_id,
                software=said.software,
                connected_at_ms=said.at_ms,
                idle_ms=max(0, int(now_ms - speaker.last_active_ms)),
            )
            for speaker, said in services.roster.some(_ITEMS_MAX, skip=max(0, request.skip))
        ],
    )


def handle_describe_audit(
    services: Services, _context: RequestContext, request: DescribeAuditRequest
) -> DescribeAuditResponse:
    lines = services.audit_trail.newest(_ITEMS_MAX, skip=max(0, request.skip))
    return DescribeAuditResponse(lines=[DescribeAuditResponse.Line(**line._asdict()) for line in lines])


def handle_describe_mirrors(
    services: Services, _context: RequestContext, request: DescribeMirrorsRequest
) -> DescribeMirrorsResponse:
    """The links of this cluster, and how far the mirrors are that are led here."""
    return services.mirrors.describe(request.link_name)


def handle_describe_segments(
    services: Services, _context: RequestContext, request: DescribeSegmentsRequest
) -> DescribeSegmentsResponse:
    """Of replicas that lie here, leaders or not."""
    room = _ITEMS_MAX
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            found = services.replicas.partitions.get(TopicPartition(topic.name, PartitionIndex(asked.partition_index)))
            if found is None:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partitions.append(Partition(partition_index=asked.partition_index, error_code=code))
                continue
            answer = _partition(asked.partition_index, found.log, skip=max(0, asked.skip), room=room)
            room -= len(answer.segments)
            partitions.append(answer)
        topics.append(DescribeSegmentsResponse.Topic(name=topic.name, partitions=partitions))
    return DescribeSegmentsResponse(topics=topics)


def _partition(index: int, log: Log, *, skip: int, room: int) -> Partition:
    segments = log.segments
    ends = [*(each.base_offset for each in segments[1:]), log.log_end_offset]
    return Partition(
        partition_index=index,
        log_start_offset=log.log_start_offset,
        total_count=len(segments),
        segments=[
            Segment(
                base_offset=each.base_offset,
                end_offset=end,
                size_bytes=each.size_bytes,
                created_ms=each.created_ms,
                is_damaged=bool(each.damaged_ranges),
            )
            for each, end in zip(segments[skip : skip + room], ends[skip:], strict=False)
        ],
    )

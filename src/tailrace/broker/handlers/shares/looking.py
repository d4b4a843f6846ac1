"""DescribeQueue, an API of our own: what is out of a share group, as leaders of partitions have it in memory.

A partition that no member reads now is left out: nothing of it is out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.wire.apis.own import DescribeQueueRequest, DescribeQueueResponse

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services


def handle_describe_queue(
    services: Services, _context: RequestContext, request: DescribeQueueRequest
) -> DescribeQueueResponse:
    topics: dict[str, DescribeQueueResponse.Topic] = {}
    for (group_id, _), share_partition in services.shares.partitions.items():
        if group_id != request.group_id or not share_partition.is_ready:
            continue
        name, index = share_partition.partition.topic_partition
        window, counts = share_partition.window, share_partition.window.counts()
        topic = topics.setdefault(name, DescribeQueueResponse.Topic(name=name))
        topic.partitions.append(
            DescribeQueueResponse.Partition(
                partition_index=index,
                start_offset=window.start_offset,
                end_offset=window.end_offset,
                held_count=counts.held,
                delayed_count=counts.delayed,
                dead_count=counts.dead,
                failure=share_partition.given_up.failure,
            )
        )
    return DescribeQueueResponse(topics=list(topics.values()))

"""DescribeLogDirs: the data folders of this broker and the size of each partition in them.

Version notes: 4 adds the size of the volume and what is free (KIP-827), 5 whether a folder is cordoned (never, here).
A null list of topics means all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.admin import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from tailrace.broker.broker import Broker
    from tailrace.broker.context import RequestContext
    from tailrace.log.directory import LogDirectory

Result = DescribeLogDirsResponse.DescribeLogDirsResult


def handle_describe_log_dirs(
    broker: Broker, _context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(results=[_describe(broker, folder, wanted) for folder in broker.directories])


def _describe(broker: Broker, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> Result:
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for topic_partition in directory.logs:
        if wanted is None or topic_partition in wanted:
            _add(topics, broker, topic_partition)
    disk = broker.ports.disk
    try:
        total_bytes, usable_bytes = disk.total_bytes(directory.path), disk.free_bytes(directory.path)
        error_code = ErrorCode.NONE
    except OSError:
        total_bytes = usable_bytes = -1
        error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return Result(
        error_code=error_code,
        log_dir=directory.path,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _add(
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic], broker: Broker, topic_partition: TopicPartition
) -> None:
    partition = broker.replicas.partitions.get(topic_partition)
    if partition is None:
        return
    topic = topics.setdefault(
        topic_partition.topic, DescribeLogDirsResponse.DescribeLogDirsTopic(name=topic_partition.topic)
    )
    topic.partitions.append(
        DescribeLogDirsResponse.DescribeLogDirsPartition(
            partition_index=topic_partition.partition,
            partition_size=partition.log.size_bytes,
            offset_lag=max(0, partition.high_watermark - partition.log.log_end_offset),
        )
    )

"""DescribeLogDirs and AlterReplicaLogDirs: the data folders of this broker, and which partitions lie in them.

Version notes: DescribeLogDirs 4 adds the size of the volume and what is free (KIP-827), 5 whether a folder is cordoned
(never, here). A null list of topics means all of them. A folder that is offline is named with KAFKA_STORAGE_ERROR and
nothing else. A log that moves is shown in both folders, in the new one as a future log with how far it is behind.

AlterReplicaLogDirs (KIP-113) is answered when the move begins; DescribeLogDirs tells how it goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.apis.admin import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

if TYPE_CHECKING:
    from tailrace.broker.context import RequestContext
    from tailrace.broker.services import Services
    from tailrace.log.directory import LogDirectory

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
TopicResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
PartitionResult = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


def handle_describe_log_dirs(
    services: Services, _context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = [_describe(services, folder, wanted) for folder in services.directories]
    results += [_offline(path) for path in services.directories.unusable]
    return DescribeLogDirsResponse(results=results)


def _describe(services: Services, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> Result:
    if directory.is_offline:
        return _offline(directory.path)
    disk = services.ports.disk
    try:
        total_bytes, usable_bytes = disk.total_bytes(directory.path), disk.free_bytes(directory.path)
    except OSError:
        return _offline(directory.path)
    topics: dict[str, Topic] = {}
    partitions = services.replicas.partitions
    for topic_partition, log in directory.logs.items():
        partition = partitions.get(topic_partition)
        # The log that a move has just left is about to be deleted.
        if partition is not None and partition.log is log and (wanted is None or topic_partition in wanted):
            lag = max(0, partition.high_watermark - log.log_end_offset)
            _add(topics, topic_partition, Partition(partition_size=log.size_bytes, offset_lag=lag))
    for topic_partition, future in directory.futures.items():
        partition = partitions.get(topic_partition)
        if partition is not None and (wanted is None or topic_partition in wanted):
            lag = max(0, partition.log.log_end_offset - future.log_end_offset)
            shown = Partition(partition_size=future.size_bytes, offset_lag=lag, is_future_key=True)
            _add(topics, topic_partition, shown)
    return Result(
        log_dir=directory.path, topics=list(topics.values()), total_bytes=total_bytes, usable_bytes=usable_bytes
    )


def _add(topics: dict[str, Topic], topic_partition: TopicPartition, shown: Partition) -> None:
    shown.partition_index = topic_partition.partition
    topics.setdefault(topic_partition.topic, Topic(name=topic_partition.topic)).partitions.append(shown)


def _offline(path: str) -> Result:
    return Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)


def handle_alter_replica_log_dirs(
    services: Services, _context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Each partition stands or falls alone; one that is named twice moves to the last of the folders."""
    results: dict[str, TopicResult] = {}
    for asked in request.dirs:
        for topic in asked.topics:
            result = results.setdefault(topic.name, TopicResult(topic_name=topic.name))
            for index in topic.partitions:
                code = _move(services, TopicPartition(topic.name, PartitionIndex(index)), asked.path)
                result.partitions.append(PartitionResult(partition_index=index, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(services: Services, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        services.future_logs.move(topic_partition, path)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE

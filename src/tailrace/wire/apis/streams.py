"""Streams groups (KIP-1071): members of a Kafka Streams application, their topology and their tasks. Requests and
responses.

Declarations only, in the language of `wire.schema`; nothing here decides anything.
"""

from __future__ import annotations

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class StreamsGroupHeartbeatRequest(Message, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0", flexible="0+"):
    """Epoch 0 joins, with the topology; -1 leaves. Null stands for no change."""

    class KeyValue(Struct):
        key: str = string("0+")
        value: str = string("0+")

    class TopicInfo(Struct):
        name: str = string("0+")
        partitions: int = int32("0+")
        replication_factor: int = int16("0+")
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = array("KeyValue", "0+")

    class Endpoint(Struct):
        host: str = string("0+")
        port: int = uint16("0+")

    class TaskOffset(Struct):
        subtopology_id: str = string("0+")
        partition: int = int32("0+")
        offset: int = int64("0+")

    class TaskIds(Struct):
        subtopology_id: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class CopartitionGroup(Struct):
        """Indices into the arrays of the subtopology."""

        source_topics: list[int] = array(int16, "0+")
        source_topic_regex: list[int] = array(int16, "0+")
        repartition_source_topics: list[int] = array(int16, "0+")

    class Subtopology(Struct):
        subtopology_id: str = string("0+")
        source_topics: list[str] = array(string, "0+")
        source_topic_regex: list[str] = array(string, "0+")
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = array("TopicInfo", "0+")
        repartition_sink_topics: list[str] = array(string, "0+")
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = array("TopicInfo", "0+")
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = array("CopartitionGroup", "0+")

    class Topology(Struct):
        epoch: int = int32("0+")
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = array("Subtopology", "0+")

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: Topology | None = struct(Topology, "0+", nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    process_id: str | None = string("0+", nullable="0+", default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] | None = array(KeyValue, "0+", nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    shutdown_application: bool = boolean("0+")


class StreamsGroupHeartbeatResponse(Message, api_key=ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0", flexible="0+"):
    class Status(Struct):
        status_code: int = int8("0+")
        status_detail: str = string("0+")

    class TopicPartition(Struct):
        topic: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class TaskIds(Struct):
        subtopology_id: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class Endpoint(Struct):
        host: str = string("0+")
        port: int = uint16("0+")

    class EndpointToPartitions(Struct):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = struct("Endpoint", "0+")
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = array("TopicPartition", "0+")
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = array("TopicPartition", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int32("0+")
    task_offset_interval_ms: int = int32("0+")
    status: list[Status] | None = array(Status, "0+", nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, "0+", nullable="0+", default=None
    )


class StreamsGroupDescribeRequest(Message, api_key=ApiKey.STREAMS_GROUP_DESCRIBE, versions="0", flexible="0+"):
    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


class StreamsGroupDescribeResponse(Message, api_key=ApiKey.STREAMS_GROUP_DESCRIBE, versions="0", flexible="0+"):
    class Endpoint(Struct):
        host: str = string("0+")
        port: int = uint16("0+")

    class TaskOffset(Struct):
        subtopology_id: str = string("0+")
        partition: int = int32("0+")
        offset: int = int64("0+")

    class TaskIds(Struct):
        subtopology_id: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class Assignment(Struct):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = array("TaskIds", "0+")
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = array("TaskIds", "0+")
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = array("TaskIds", "0+")

    class KeyValue(Struct):
        key: str = string("0+")
        value: str = string("0+")

    class TopicInfo(Struct):
        name: str = string("0+")
        partitions: int = int32("0+")
        replication_factor: int = int16("0+")
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = array("KeyValue", "0+")

    class Subtopology(Struct):
        subtopology_id: str = string("0+")
        source_topics: list[str] = array(string, "0+")
        repartition_sink_topics: list[str] = array(string, "0+")
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = array("TopicInfo", "0+")
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = array("TopicInfo", "0+")

    class Topology(Struct):
        epoch: int = int32("0+")
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = array(
            "Subtopology", "0+", nullable="0+", default=None
        )

    class Member(Struct):
        member_id: str = string("0+")
        member_epoch: int = int32("0+")
        instance_id: str | None = string("0+", nullable="0+", default=None)
        rack_id: str | None = string("0+", nullable="0+", default=None)
        client_id: str = string("0+")
        client_host: str = string("0+")
        topology_epoch: int = int32("0+")
        process_id: str = string("0+")
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = struct(
            "Endpoint", "0+", nullable="0+", default=None
        )
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = array("KeyValue", "0+")
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = array("TaskOffset", "0+")
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = array("TaskOffset", "0+")
        assignment: StreamsGroupDescribeResponse.Assignment = struct("Assignment", "0+")
        target_assignment: StreamsGroupDescribeResponse.Assignment = struct("Assignment", "0+")
        is_classic: bool = boolean("0+")

    class DescribedGroup(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        group_id: str = string("0+")
        group_state: str = string("0+")
        group_epoch: int = int32("0+")
        assignment_epoch: int = int32("0+")
        topology: StreamsGroupDescribeResponse.Topology | None = struct("Topology", "0+", nullable="0+", default=None)
        members: list[StreamsGroupDescribeResponse.Member] = array("Member", "0+")
        authorized_operations: int = int32("0+", default=-2147483648)

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")

"""Consumer groups, both the classic protocol and KIP-848's, and committed offsets: requests and responses.

Declarations only, in the language of `wire.schema`; nothing here decides anything. A docstring tells what a version
changed in meaning; what it changed in form stands in the fields.
"""

from __future__ import annotations

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)


class OffsetCommitRequest(Message, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"):
    """v5 drops the retention time; v6 leader epochs (KIP-320); v7 static members (KIP-345); v9 for members of KIP-848
    groups too; v10 topic ids."""

    class OffsetCommitRequestPartition(Struct):
        partition_index: int = int32("0+")
        committed_offset: int = int64("0+")
        committed_leader_epoch: int = int32("6+", default=-1)
        committed_metadata: str | None = string("0+", nullable="0+")

    class OffsetCommitRequestTopic(Struct):
        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = array("OffsetCommitRequestPartition", "0+")

    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1)
    member_id: str = string("1+")
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponse(Message, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"):
    class OffsetCommitResponsePartition(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    class OffsetCommitResponseTopic(Struct):
        name: str = string("0-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = array(
            "OffsetCommitResponsePartition", "0+"
        )

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")


class OffsetFetchRequest(Message, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+"):
    """Null topics ask for all. v7 may wait for open transactions (KIP-447); v8 several groups (KIP-709); v9 members
    of KIP-848 groups; v10 topic ids."""

    class OffsetFetchRequestTopic(Struct):
        name: str = string("0-7")
        partition_indexes: list[int] = array(int32, "0-7")

    class OffsetFetchRequestTopics(Struct):
        name: str = string("8-9")
        topic_id: bytes = uuid("10+")
        partition_indexes: list[int] = array(int32, "8+")

    class OffsetFetchRequestGroup(Struct):
        group_id: str = string("8+")
        member_id: str | None = string("9+", nullable="9+", default=None)
        member_epoch: int = int32("9+", default=-1)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = array(
            "OffsetFetchRequestTopics", "8+", nullable="8+"
        )

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponse(Message, api_key=ApiKey.OFFSET_FETCH, versions="1-10", flexible="6+"):
    class OffsetFetchResponsePartition(Struct):
        partition_index: int = int32("0-7")
        committed_offset: int = int64("0-7")
        committed_leader_epoch: int = int32("5-7", default=-1)
        metadata: str | None = string("0-7", nullable="0-7")
        error_code: int = int16("0-7")

    class OffsetFetchResponseTopic(Struct):
        name: str = string("0-7")
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = array(
            "OffsetFetchResponsePartition", "0-7"
        )

    class OffsetFetchResponsePartitions(Struct):
        partition_index: int = int32("8+")
        committed_offset: int = int64("8+")
        committed_leader_epoch: int = int32("8+", default=-1)
        metadata: str | None = string("8+", nullable="8+")
        error_code: int = int16("8+")

    class OffsetFetchResponseTopics(Struct):
        name: str = string("8-9")
        topic_id: bytes = uuid("10+")
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = array(
            "OffsetFetchResponsePartitions", "8+"
        )

    class OffsetFetchResponseGroup(Struct):
        group_id: str = string("8+")
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = array("OffsetFetchResponseTopics", "8+")
        error_code: int = int16("8+")

    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


class FindCoordinatorRequest(Message, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    """Key types: 0 group, 1 transactional id, 2 share group. v4 several keys (KIP-699)."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(string, "4+")


class FindCoordinatorResponse(Message, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    class Coordinator(Struct):
        key: str = string("4+")
        node_id: int = int32("4+")
        host: str = string("4+")
        port: int = int32("4+")
        error_code: int = int16("4+")
        error_message: str | None = string("4+", nullable="4+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")


class JoinGroupRequest(Message, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """v4 joins twice, the second time with the member id that the coordinator gave (KIP-394); v5 static members
    (KIP-345); v8 the reason (KIP-800)."""

    class JoinGroupRequestProtocol(Struct):
        name: str = string("0+")
        metadata: bytes = bytes_("0+")

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None)


class JoinGroupResponse(Message, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """Members go to the leader alone, who assigns; v9 tells a returning static leader not to (KIP-814)."""

    class JoinGroupResponseMember(Struct):
        member_id: str = string("0+")
        group_instance_id: str | None = string("5+", nullable="5+", default=None)
        metadata: bytes = bytes_("0+")

    throttle_time_ms: int = int32("2+")
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")


class HeartbeatRequest(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")


class LeaveGroupRequest(Message, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """v3 several members, so that an admin can remove static ones (KIP-345); v5 the reason (KIP-800)."""

    class MemberIdentity(Struct):
        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None)

    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class LeaveGroupResponse(Message, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    class MemberResponse(Struct):
        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+")
        error_code: int = int16("3+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")


class SyncGroupRequest(Message, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """Assignments come from the leader alone. v3 static members; v5 repeats what was agreed, for the coordinator to
    check (KIP-559)."""

    class SyncGroupRequestAssignment(Struct):
        member_id: str = string("0+")
        assignment: bytes = bytes_("0+")

    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Message, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None)
    protocol_name: str | None = string("5+", nullable="5+", default=None)
    assignment: bytes = bytes_("0+")


class DescribeGroupsRequest(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribeGroupsResponse(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    """v6 answers GROUP_ID_NOT_FOUND with a message, instead of a dead group (KIP-1043)."""

    class DescribedGroupMember(Struct):
        member_id: str = string("0+")
        group_instance_id: str | None = string("4+", nullable="4+", default=None)
        client_id: str = string("0+")
        client_host: str = string("0+")
        member_metadata: bytes = bytes_("0+")
        member_assignment: bytes = bytes_("0+")

    class DescribedGroup(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string("0+")
        group_state: str = string("0+")
        protocol_type: str = string("0+")
        protocol_data: str = string("0+")
        members: list[DescribeGroupsResponse.DescribedGroupMember] = array("DescribedGroupMember", "0+")
        authorized_operations: int = int32("3+", default=-0x80000000)

    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


class ListGroupsRequest(Message, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """v4 filters by state (KIP-518); v5 by type (KIP-848)."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListGroupsResponse(Message, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    class ListedGroup(Struct):
        group_id: str = string("0+")
        protocol_type: str = string("0+")
        group_state: str = string("4+")
        group_type: str = string("5+")

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


class DeleteGroupsRequest(Message, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    groups_names: list[str] = array(string, "0+")


class DeleteGroupsResponse(Message, api_key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    class DeletableGroupResult(Struct):
        group_id: str = string("0+")
        error_code: int = int16("0+")

    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")


class OffsetDeleteRequest(Message, api_key=ApiKey.OFFSET_DELETE, versions="0"):
    """KIP-496. Never became flexible."""

    class OffsetDeleteRequestPartition(Struct):
        partition_index: int = int32("0+")

    class OffsetDeleteRequestTopic(Struct):
        name: str = string("0+")
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = array("OffsetDeleteRequestPartition", "0+")

    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


class OffsetDeleteResponse(Message, api_key=ApiKey.OFFSET_DELETE, versions="0"):
    class OffsetDeleteResponsePartition(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    class OffsetDeleteResponseTopic(Struct):
        name: str = string("0+")
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = array(
            "OffsetDeleteResponsePartition", "0+"
        )

    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+")
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")


class ConsumerGroupHeartbeatRequest(Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"):
    """KIP-848: one API to join, to stay, to acknowledge and to leave. Fields that did not change since the last one
    are null (or -1). v1 subscribes by regular expression and lets the client choose its member id (KIP-1082)."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string("0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+", default=None)


class ConsumerGroupHeartbeatResponse(Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"):
    """The assignment is null when it did not change."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = array("TopicPartitions", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+", default=None)


class ConsumerGroupDescribeRequest(Message, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"):
    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


class ConsumerGroupDescribeResponse(Message, api_key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+"):
    """v1 tells which members still speak the classic protocol (KIP-1099)."""

    class TopicPartitions(Struct):
        topic_id: bytes = uuid("0+")
        topic_name: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = array("TopicPartitions", "0+")

    class Member(Struct):
        member_id: str = string("0+")
        instance_id: str | None = string("0+", nullable="0+", default=None)
        rack_id: str | None = string("0+", nullable="0+", default=None)
        member_epoch: int = int32("0+")
        client_id: str = string("0+")
        client_host: str = string("0+")
        subscribed_topic_names: list[str] = array(string, "0+")
        subscribed_topic_regex: str | None = string("0+", nullable="0+", default=None)
        assignment: ConsumerGroupDescribeResponse.Assignment = struct("Assignment", "0+")
        target_assignment: ConsumerGroupDescribeResponse.Assignment = struct("Assignment", "0+")
        member_type: int = int8("1+", default=-1)

    class DescribedGroup(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        group_id: str = string("0+")
        group_state: str = string("0+")
        group_epoch: int = int32("0+")
        assignment_epoch: int = int32("0+")
        assignor_name: str = string("0+")
        members: list[ConsumerGroupDescribeResponse.Member] = array("Member", "0+")
        authorized_operations: int = int32("0+", default=-0x80000000)

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


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

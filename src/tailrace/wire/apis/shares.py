"""Share groups (KIP-932): their members, records fetched and acknowledged, their offsets as an administrator sees them,
and what brokers ask of the coordinators that keep the state of share-partitions. Requests and responses.

Declarations only, in the language of `wire.schema`; nothing here decides anything. A docstring tells what a version
changed in meaning; what it changed in form stands in the fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    record_batches,
    string,
    struct,
    uuid,
)

if TYPE_CHECKING:
    from tailrace.model.ports import Bytes, FileSlice


class ShareGroupHeartbeatRequest(Message, api_key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    """Epoch 0 joins, -1 leaves."""

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, "0+", nullable="0+", default=None)


class ShareGroupHeartbeatResponse(Message, api_key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = array("TopicPartitions", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+", default=None)
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = struct(Assignment, "0+", nullable="0+", default=None)


class ShareGroupDescribeRequest(Message, api_key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")


class ShareGroupDescribeResponse(Message, api_key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: bytes = uuid("0+")
        topic_name: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = array("TopicPartitions", "0+")

    class Member(Struct):
        member_id: str = string("0+")
        rack_id: str | None = string("0+", nullable="0+", default=None)
        member_epoch: int = int32("0+")
        client_id: str = string("0+")
        client_host: str = string("0+")
        subscribed_topic_names: list[str] = array(string, "0+")
        assignment: ShareGroupDescribeResponse.Assignment = struct("Assignment", "0+")

    class DescribedGroup(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        group_id: str = string("0+")
        group_state: str = string("0+")
        group_epoch: int = int32("0+")
        assignment_epoch: int = int32("0+")
        assignor_name: str = string("0+")
        members: list[ShareGroupDescribeResponse.Member] = array("Member", "0+")
        authorized_operations: int = int32("0+", default=-2147483648)

    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


class ShareFetchRequest(Message, api_key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    """v2 limits records strictly (KIP-1206) and renews locks (KIP-1222)."""

    class AcknowledgementBatch(Struct):
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        acknowledge_types: list[int] = array(int8, "0+")

    class FetchPartition(Struct):
        partition_index: int = int32("0+")
        partition_max_bytes: int = int32("0")
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = array("AcknowledgementBatch", "0+")

    class FetchTopic(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ShareFetchRequest.FetchPartition] = array("FetchPartition", "0+")

    class ForgottenTopic(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")

    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=0x7FFFFFFF)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", default=0)
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "0+")


class ShareFetchResponse(Message, api_key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    class AcquiredRecords(Struct):
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        delivery_count: int = int16("0+")

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        acknowledge_error_code: int = int16("0+")
        acknowledge_error_message: str | None = string("0+", nullable="0+", default=None)
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "0+")
        records: Bytes | FileSlice | None = record_batches("0+", nullable="0")
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = array("AcquiredRecords", "0+")

    class ShareFetchableTopicResponse(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ShareFetchResponse.PartitionData] = array("PartitionData", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")


class ShareAcknowledgeRequest(Message, api_key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    """v2 renews locks (KIP-1222). Types: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""

    class AcknowledgementBatch(Struct):
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        acknowledge_types: list[int] = array(int8, "0+")

    class AcknowledgePartition(Struct):
        partition_index: int = int32("0+")
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = array(
            "AcknowledgementBatch", "0+"
        )

    class AcknowledgeTopic(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = array("AcknowledgePartition", "0+")

    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+", default=False)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, "0+")


class ShareAcknowledgeResponse(Message, api_key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "0+")

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ShareAcknowledgeResponse.PartitionData] = array("PartitionData", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+")
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")


class DescribeShareGroupOffsetsRequest(
    Message, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    """Null topics ask for all. v1 tells the lag (KIP-1226)."""

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: str = string("0+")
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = array(
            "DescribeShareGroupOffsetsRequestTopic", "0+", nullable="0+"
        )

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup, "0+")


class DescribeShareGroupOffsetsResponse(
    Message, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = int32("0+")
        start_offset: int = int64("0+")
        leader_epoch: int = int32("0+")
        lag: int = int64("1+", default=-1)
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = string("0+")
        topic_id: bytes = uuid("0+")
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = array(
            "DescribeShareGroupOffsetsResponsePartition", "0+"
        )

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: str = string("0+")
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = array(
            "DescribeShareGroupOffsetsResponseTopic", "0+"
        )
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup, "0+")


class AlterShareGroupOffsetsRequest(Message, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: int = int32("0+")
        start_offset: int = int64("0+")

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = string("0+")
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = array(
            "AlterShareGroupOffsetsRequestPartition", "0+"
        )

    group_id: str = string("0+")
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic, "0+")


class AlterShareGroupOffsetsResponse(Message, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = string("0+")
        topic_id: bytes = uuid("0+")
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = array(
            "AlterShareGroupOffsetsResponsePartition", "0+"
        )

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic, "0+")


class DeleteShareGroupOffsetsRequest(Message, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: str = string("0+")

    group_id: str = string("0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic, "0+")


class DeleteShareGroupOffsetsResponse(Message, api_key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"):
    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: str = string("0+")
        topic_id: bytes = uuid("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic, "0+")


class InitializeShareGroupStateRequest(
    Message, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    class PartitionData(Struct):
        partition: int = int32("0+")
        state_epoch: int = int32("0+")
        start_offset: int = int64("0+")

    class InitializeStateData(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[InitializeShareGroupStateRequest.PartitionData] = array("PartitionData", "0+")

    group_id: str = string("0+")
    topics: list[InitializeStateData] = array(InitializeStateData, "0+")


class InitializeShareGroupStateResponse(
    Message, api_key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    class PartitionResult(Struct):
        partition: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    class InitializeStateResult(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[InitializeShareGroupStateResponse.PartitionResult] = array("PartitionResult", "0+")

    results: list[InitializeStateResult] = array(InitializeStateResult, "0+")


class ReadShareGroupStateRequest(Message, api_key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    class PartitionData(Struct):
        partition: int = int32("0+")
        leader_epoch: int = int32("0+")

    class ReadStateData(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ReadShareGroupStateRequest.PartitionData] = array("PartitionData", "0+")

    group_id: str = string("0+")
    topics: list[ReadStateData] = array(ReadStateData, "0+")


class ReadShareGroupStateResponse(Message, api_key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    class StateBatch(Struct):
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        delivery_state: int = int8("0+")
        delivery_count: int = int16("0+")

    class PartitionResult(Struct):
        partition: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        state_epoch: int = int32("0+")
        start_offset: int = int64("0+")
        state_batches: list[ReadShareGroupStateResponse.StateBatch] = array("StateBatch", "0+")

    class ReadStateResult(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ReadShareGroupStateResponse.PartitionResult] = array("PartitionResult", "0+")

    results: list[ReadStateResult] = array(ReadStateResult, "0+")


class WriteShareGroupStateRequest(Message, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"):
    """v1 counts what is done above the start offset (KIP-1226)."""

    class StateBatch(Struct):
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        delivery_state: int = int8("0+")
        delivery_count: int = int16("0+")

    class PartitionData(Struct):
        partition: int = int32("0+")
        state_epoch: int = int32("0+")
        leader_epoch: int = int32("0+")
        start_offset: int = int64("0+")
        delivery_complete_count: int = int32("1+", default=-1)
        state_batches: list[WriteShareGroupStateRequest.StateBatch] = array("StateBatch", "0+")

    class WriteStateData(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[WriteShareGroupStateRequest.PartitionData] = array("PartitionData", "0+")

    group_id: str = string("0+")
    topics: list[WriteStateData] = array(WriteStateData, "0+")


class WriteShareGroupStateResponse(Message, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"):
    class PartitionResult(Struct):
        partition: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    class WriteStateResult(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[WriteShareGroupStateResponse.PartitionResult] = array("PartitionResult", "0+")

    results: list[WriteStateResult] = array(WriteStateResult, "0+")


class DeleteShareGroupStateRequest(Message, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    class PartitionData(Struct):
        partition: int = int32("0+")

    class DeleteStateData(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[DeleteShareGroupStateRequest.PartitionData] = array("PartitionData", "0+")

    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")


class DeleteShareGroupStateResponse(Message, api_key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    class PartitionResult(Struct):
        partition: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    class DeleteStateResult(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[DeleteShareGroupStateResponse.PartitionResult] = array("PartitionResult", "0+")

    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")


class ReadShareGroupStateSummaryRequest(
    Message, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    class PartitionData(Struct):
        partition: int = int32("0+")
        leader_epoch: int = int32("0+")

    class ReadStateSummaryData(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = array("PartitionData", "0+")

    group_id: str = string("0+")
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData, "0+")


class ReadShareGroupStateSummaryResponse(
    Message, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    class PartitionResult(Struct):
        partition: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)
        state_epoch: int = int32("0+")
        leader_epoch: int = int32("0+")
        start_offset: int = int64("0+")
        delivery_complete_count: int = int32("1+", default=-1)

    class ReadStateSummaryResult(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = array("PartitionResult", "0+")

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult, "0+")

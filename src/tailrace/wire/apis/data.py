"""Records and what leads to them: Produce, Fetch, ListOffsets, Metadata, ApiVersions, DeleteRecords and
OffsetForLeaderEpoch, requests and responses.

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


class ProduceRequest(Message, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    """v3 transactional id and batches of format v2; v7 zstd (KIP-110); v9 flexible; v11 the producer knows
    TRANSACTION_ABORTABLE (KIP-890); v12 partitions join the transaction on their own; v13 topic ids (KIP-516)."""

    class PartitionProduceData(Struct):
        index: int = int32("0+")
        records: Bytes | None = record_batches("0+", nullable="0+")

    class TopicProduceData(Struct):
        name: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partition_data: list[ProduceRequest.PartitionProduceData] = array("PartitionProduceData", "0+")

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class ProduceResponse(Message, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    """v8 tells which records failed a batch (KIP-467); v10 names the leader and its address when the partition has
    moved (KIP-951)."""

    class BatchIndexAndErrorMessage(Struct):
        batch_index: int = int32("8+")
        batch_index_error_message: str | None = string("8+", nullable="8+", default=None)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32("10+", default=-1)
        leader_epoch: int = int32("10+", default=-1)

    class PartitionProduceResponse(Struct):
        index: int = int32("0+")
        error_code: int = int16("0+")
        base_offset: int = int64("0+")
        log_append_time_ms: int = int64("2+", default=-1)
        log_start_offset: int = int64("5+", default=-1)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = array("BatchIndexAndErrorMessage", "8+")
        error_message: str | None = string("8+", nullable="8+", default=None)
        current_leader: ProduceResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "10+", tag=0)

    class TopicProduceResponse(Struct):
        name: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = array("PartitionProduceResponse", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("10+")
        host: str = string("10+")
        port: int = int32("10+")
        rack: str | None = string("10+", nullable="10+", default=None)

    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)


class FetchRequest(Message, api_key=ApiKey.FETCH, versions="4-18", flexible="12+"):
    """Partitions are read in the order in which they are asked for. v7 incremental sessions (KIP-227); v9 fencing by
    leader epoch (KIP-320); v11 the reader's rack (KIP-392); v12 divergence by last fetched epoch (KIP-595); v13 topic
    ids (KIP-516); v15 the replica's epoch (KIP-903); v17 its directory (KIP-853); v18 the high watermark it knows
    (KIP-1166)."""

    class ReplicaState(Struct):
        replica_id: int = int32("15+", default=-1)
        replica_epoch: int = int64("15+", default=-1)

    class FetchPartition(Struct):
        partition: int = int32("0+")
        current_leader_epoch: int = int32("9+", default=-1)
        fetch_offset: int = int64("0+")
        last_fetched_epoch: int = int32("12+", default=-1)
        log_start_offset: int = int64("5+", default=-1)
        partition_max_bytes: int = int32("0+")
        replica_directory_id: bytes = uuid("17+", tag=0)
        high_watermark: int = int64("18+", default=0x7FFFFFFFFFFFFFFF, tag=1)

    class FetchTopic(Struct):
        topic: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partitions: list[FetchRequest.FetchPartition] = array("FetchPartition", "0+")

    class ForgottenTopic(Struct):
        topic: str = string("7-12")
        topic_id: bytes = uuid("13+")
        partitions: list[int] = array(int32, "7+")

    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=0x7FFFFFFF)
    isolation_level: int = int8("4+")
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


class FetchResponse(Message, api_key=ApiKey.FETCH, versions="4-18", flexible="12+"):
    """v4 aborted transactions; v11 a better replica to read from (KIP-392); v12 where to truncate (KIP-595); v13
    topic ids; v16 the new leader and its address when the partition has moved (KIP-951)."""

    class EpochEndOffset(Struct):
        epoch: int = int32("12+", default=-1)
        end_offset: int = int64("12+", default=-1)

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32("12+", default=-1)
        leader_epoch: int = int32("12+", default=-1)

    class SnapshotId(Struct):
        end_offset: int = int64("0+", default=-1)
        epoch: int = int32("0+", default=-1)

    class AbortedTransaction(Struct):
        producer_id: int = int64("4+")
        first_offset: int = int64("4+")

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        high_watermark: int = int64("0+")
        last_stable_offset: int = int64("4+", default=-1)
        log_start_offset: int = int64("5+", default=-1)
        diverging_epoch: FetchResponse.EpochEndOffset = struct("EpochEndOffset", "12+", tag=0)
        current_leader: FetchResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "12+", tag=1)
        snapshot_id: FetchResponse.SnapshotId = struct("SnapshotId", "12+", tag=2)
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = array(
            "AbortedTransaction", "4+", nullable="4+"
        )
        preferred_read_replica: int = int32("11+", default=-1)
        records: Bytes | FileSlice | None = record_batches("0+", nullable="0+")

    class FetchableTopicResponse(Struct):
        topic: str = string("0-12")
        topic_id: bytes = uuid("13+")
        partitions: list[FetchResponse.PartitionData] = array("PartitionData", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("16+")
        host: str = string("16+")
        port: int = int32("16+")
        rack: str | None = string("16+", nullable="16+", default=None)

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)


class ListOffsetsRequest(Message, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+"):
    """Special timestamps: -1 latest, -2 earliest, from 7 on -3 the record with the greatest timestamp (KIP-734), from
    8 on -4 earliest local (KIP-405), from 9 on -5 latest tiered (KIP-1005), from 11 on -6 earliest pending upload
    (KIP-1023)."""

    class ListOffsetsPartition(Struct):
        partition_index: int = int32("0+")
        current_leader_epoch: int = int32("4+", default=-1)
        timestamp: int = int64("0+")

    class ListOffsetsTopic(Struct):
        name: str = string("0+")
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = array("ListOffsetsPartition", "0+")

    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+")


class ListOffsetsResponse(Message, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+"):
    """v5 may say OFFSET_NOT_AVAILABLE, while a new leader does not know its high watermark yet."""

    class ListOffsetsPartitionResponse(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        timestamp: int = int64("1+", default=-1)
        offset: int = int64("1+", default=-1)
        leader_epoch: int = int32("4+", default=-1)

    class ListOffsetsTopicResponse(Struct):
        name: str = string("0+")
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = array("ListOffsetsPartitionResponse", "0+")

    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")


class MetadataRequest(Message, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """All topics: an empty array in version 0, null from 1 on. v4 may forbid the creation of missing topics; v12
    topics by id."""

    class MetadataRequestTopic(Struct):
        topic_id: bytes = uuid("10+")
        name: str | None = string("0+", nullable="10+")

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponse(Message, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    """v5 offline replicas; v7 leader epochs; v10 topic ids; v11 leaves the cluster's operations to DescribeCluster
    (KIP-700); v13 an error for the whole, to send a client back to its bootstrap servers (KIP-1102)."""

    class MetadataResponseBroker(Struct):
        node_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("1+", nullable="1+", default=None)

    class MetadataResponsePartition(Struct):
        error_code: int = int16("0+")
        partition_index: int = int32("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("7+", default=-1)
        replica_nodes: list[int] = array(int32, "0+")
        isr_nodes: list[int] = array(int32, "0+")
        offline_replicas: list[int] = array(int32, "5+")

    class MetadataResponseTopic(Struct):
        error_code: int = int16("0+")
        name: str | None = string("0+", nullable="12+")
        topic_id: bytes = uuid("10+")
        is_internal: bool = boolean("1+")
        partitions: list[MetadataResponse.MetadataResponsePartition] = array("MetadataResponsePartition", "0+")
        topic_authorized_operations: int = int32("8+", default=-0x80000000)

    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=-0x80000000)
    error_code: int = int16("13+")


class ApiVersionsRequest(Message, api_key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """v3 names the client's software (KIP-511). A version that is not known is answered all the same."""

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


class ApiVersionsResponse(Message, api_key=ApiKey.API_VERSIONS, versions="0-4", flexible="3+"):
    """Its header is always version 0. v3 adds features (KIP-584); v4 allows a feature to start at version 0, which
    older clients refuse."""

    class ApiVersion(Struct):
        api_key: int = int16("0+")
        min_version: int = int16("0+")
        max_version: int = int16("0+")

    class SupportedFeatureKey(Struct):
        name: str = string("3+")
        min_version: int = int16("3+")
        max_version: int = int16("3+")

    class FinalizedFeatureKey(Struct):
        name: str = string("3+")
        max_version_level: int = int16("3+")
        min_version_level: int = int16("3+")

    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+")
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)


class DeleteRecordsRequest(Message, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """An offset of -1 stands for the high watermark (KIP-107)."""

    class DeleteRecordsPartition(Struct):
        partition_index: int = int32("0+")
        offset: int = int64("0+")

    class DeleteRecordsTopic(Struct):
        name: str = string("0+")
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = array("DeleteRecordsPartition", "0+")

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


class DeleteRecordsResponse(Message, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    class DeleteRecordsPartitionResult(Struct):
        partition_index: int = int32("0+")
        low_watermark: int = int64("0+")
        error_code: int = int16("0+")

    class DeleteRecordsTopicResult(Struct):
        name: str = string("0+")
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = array(
            "DeleteRecordsPartitionResult", "0+"
        )

    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")


class OffsetForLeaderEpochRequest(Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"):
    """v3 the replica id: a follower, -1 a consumer, -2 one that may look beyond the high watermark."""

    class OffsetForLeaderPartition(Struct):
        partition: int = int32("0+")
        current_leader_epoch: int = int32("2+", default=-1)
        leader_epoch: int = int32("0+")

    class OffsetForLeaderTopic(Struct):
        topic: str = string("0+")
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = array("OffsetForLeaderPartition", "0+")

    replica_id: int = int32("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


class OffsetForLeaderEpochResponse(Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"):
    class EpochEndOffset(Struct):
        error_code: int = int16("0+")
        partition: int = int32("0+")
        leader_epoch: int = int32("1+", default=-1)
        end_offset: int = int64("0+", default=-1)

    class OffsetForLeaderTopicResult(Struct):
        topic: str = string("0+")
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = array("EpochEndOffset", "0+")

    throttle_time_ms: int = int32("2+")
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")

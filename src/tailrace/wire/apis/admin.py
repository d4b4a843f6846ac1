"""Topics, settings and the cluster as a whole, for admin clients: requests and responses.

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
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class CreateTopicsRequest(Message, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+"):
    """v4 lets partitions and replication be -1, the broker's default (KIP-464)."""

    class CreatableReplicaAssignment(Struct):
        partition_index: int = int32("0+")
        broker_ids: list[int] = array(int32, "0+")

    class CreatableTopicConfig(Struct):
        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")

    class CreatableTopic(Struct):
        name: str = string("0+")
        num_partitions: int = int32("0+")
        replication_factor: int = int16("0+")
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = array("CreatableReplicaAssignment", "0+")
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = array("CreatableTopicConfig", "0+")

    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")


class CreateTopicsResponse(Message, api_key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+"):
    """v5 describes the new topic (KIP-525); v7 its id."""

    class CreatableTopicConfigs(Struct):
        name: str = string("5+")
        value: str | None = string("5+", nullable="5+")
        read_only: bool = boolean("5+")
        config_source: int = int8("5+", default=-1)
        is_sensitive: bool = boolean("5+")

    class CreatableTopicResult(Struct):
        name: str = string("0+")
        topic_id: bytes = uuid("7+")
        error_code: int = int16("0+")
        error_message: str | None = string("1+", nullable="0+")
        topic_config_error_code: int = int16("5+", tag=0)
        num_partitions: int = int32("5+", default=-1)
        replication_factor: int = int16("5+", default=-1)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = array(
            "CreatableTopicConfigs", "5+", nullable="5+"
        )

    throttle_time_ms: int = int32("2+")
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")


class DeleteTopicsRequest(Message, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    """v6 by name or by id, in one list (KIP-516)."""

    class DeleteTopicState(Struct):
        name: str | None = string("6+", nullable="6+", default=None)
        topic_id: bytes = uuid("6+")

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5")
    timeout_ms: int = int32("0+")


class DeleteTopicsResponse(Message, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+"):
    class DeletableTopicResult(Struct):
        name: str | None = string("0+", nullable="6+")
        topic_id: bytes = uuid("6+")
        error_code: int = int16("0+")
        error_message: str | None = string("5+", nullable="5+", default=None)

    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")


class DescribeConfigsRequest(Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+"):
    """Null configuration keys ask for all. v1 synonyms; v3 documentation (KIP-569)."""

    class DescribeConfigsResource(Struct):
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configuration_keys: list[str] | None = array(string, "0+", nullable="0+")

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsResponse(Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions="1-4", flexible="4+"):
    class DescribeConfigsSynonym(Struct):
        name: str = string("1+")
        value: str | None = string("1+", nullable="0+")
        source: int = int8("1+")

    class DescribeConfigsResourceResult(Struct):
        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")
        read_only: bool = boolean("0+")
        config_source: int = int8("1+", default=-1)
        is_sensitive: bool = boolean("0+")
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = array("DescribeConfigsSynonym", "1+")
        config_type: int = int8("3+")
        documentation: str | None = string("3+", nullable="0+")

    class DescribeConfigsResult(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = array(
            "DescribeConfigsResourceResult", "0+"
        )

    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")


class AlterConfigsRequest(Message, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    """Replaces all settings of a resource; what is not named goes back to its default."""

    class AlterableConfig(Struct):
        name: str = string("0+")
        value: str | None = string("0+", nullable="0+")

    class AlterConfigsResource(Struct):
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: list[AlterConfigsRequest.AlterableConfig] = array("AlterableConfig", "0+")

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResponse(Message, api_key=ApiKey.ALTER_CONFIGS, versions="0-2", flexible="2+"):
    class AlterConfigsResourceResponse(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


class AlterReplicaLogDirsRequest(Message, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+"):
    """Moves replicas between the folders of one broker (KIP-113)."""

    class AlterReplicaLogDirTopic(Struct):
        name: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class AlterReplicaLogDir(Struct):
        path: str = string("0+")
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = array("AlterReplicaLogDirTopic", "0+")

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


class AlterReplicaLogDirsResponse(Message, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="1-2", flexible="2+"):
    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: str = string("0+")
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = array(
            "AlterReplicaLogDirPartitionResult", "0+"
        )

    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")


class DescribeLogDirsRequest(Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+"):
    class DescribableLogDirTopic(Struct):
        topic: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


class DescribeLogDirsResponse(Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+"):
    """v4 the size of each folder's volume (KIP-827); v5 cordoned folders (KIP-1066)."""

    class DescribeLogDirsPartition(Struct):
        partition_index: int = int32("0+")
        partition_size: int = int64("0+")
        offset_lag: int = int64("0+")
        is_future_key: bool = boolean("0+")

    class DescribeLogDirsTopic(Struct):
        name: str = string("0+")
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = array("DescribeLogDirsPartition", "0+")

    class DescribeLogDirsResult(Struct):
        error_code: int = int16("0+")
        log_dir: str = string("0+")
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = array("DescribeLogDirsTopic", "0+")
        total_bytes: int = int64("4+", default=-1)
        usable_bytes: int = int64("4+", default=-1)
        is_cordoned: bool = boolean("5+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")


class CreatePartitionsRequest(Message, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    class CreatePartitionsAssignment(Struct):
        broker_ids: list[int] = array(int32, "0+")

    class CreatePartitionsTopic(Struct):
        name: str = string("0+")
        count: int = int32("0+")
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = array(
            "CreatePartitionsAssignment", "0+", nullable="0+"
        )

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic, "0+")
    timeout_ms: int = int32("0+")
    validate_only: bool = boolean("0+")


class CreatePartitionsResponse(Message, api_key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    class CreatePartitionsTopicResult(Struct):
        name: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+", default=None)

    throttle_time_ms: int = int32("0+")
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult, "0+")


class ElectLeadersRequest(Message, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """v1 may ask for an unclean election (KIP-460)."""

    class TopicPartitions(Struct):
        topic: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)


class ElectLeadersResponse(Message, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    class PartitionResult(Struct):
        partition_id: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")

    class ReplicaElectionResult(Struct):
        topic: str = string("0+")
        partition_result: list[ElectLeadersResponse.PartitionResult] = array("PartitionResult", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")


class IncrementalAlterConfigsRequest(Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"):
    """Operations (KIP-339): 0 set, 1 delete, 2 append to a list, 3 subtract from it."""

    class AlterableConfig(Struct):
        name: str = string("0+")
        config_operation: int = int8("0+")
        value: str | None = string("0+", nullable="0+")

    class AlterConfigsResource(Struct):
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = array("AlterableConfig", "0+")

    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class IncrementalAlterConfigsResponse(Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions="0-1", flexible="1+"):
    class AlterConfigsResourceResponse(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")

    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


class AlterPartitionReassignmentsRequest(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    """Null replicas cancel a reassignment (KIP-455); v1 may forbid a change of the replication factor (KIP-860)."""

    class ReassignablePartition(Struct):
        partition_index: int = int32("0+")
        replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None)

    class ReassignableTopic(Struct):
        name: str = string("0+")
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = array(
            "ReassignablePartition", "0+"
        )

    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


class AlterPartitionReassignmentsResponse(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    class ReassignablePartitionResponse(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")

    class ReassignableTopicResponse(Struct):
        name: str = string("0+")
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = array(
            "ReassignablePartitionResponse", "0+"
        )

    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")


class ListPartitionReassignmentsRequest(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    class ListPartitionReassignmentsTopics(Struct):
        name: str = string("0+")
        partition_indexes: list[int] = array(int32, "0+")

    timeout_ms: int = int32("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable="0+", default=None
    )


class ListPartitionReassignmentsResponse(
    Message, api_key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    class OngoingPartitionReassignment(Struct):
        partition_index: int = int32("0+")
        replicas: list[int] = array(int32, "0+")
        adding_replicas: list[int] = array(int32, "0+")
        removing_replicas: list[int] = array(int32, "0+")

    class OngoingTopicReassignment(Struct):
        name: str = string("0+")
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = array(
            "OngoingPartitionReassignment", "0+"
        )

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")


class DescribeClientQuotasRequest(Message, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """KIP-546."""

    class ComponentData(Struct):
        entity_type: str = string("0+")
        match_type: int = int8("0+")
        match: str | None = string("0+", nullable="0+")

    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


class DescribeClientQuotasResponse(Message, api_key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    class EntityData(Struct):
        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")

    class ValueData(Struct):
        key: str = string("0+")
        value: float = float64("0+")

    class EntryData(Struct):
        entity: list[DescribeClientQuotasResponse.EntityData] = array("EntityData", "0+")
        values: list[DescribeClientQuotasResponse.ValueData] = array("ValueData", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")


class AlterClientQuotasRequest(Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    """KIP-546."""

    class EntityData(Struct):
        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")

    class OpData(Struct):
        key: str = string("0+")
        value: float = float64("0+")
        remove: bool = boolean("0+")

    class EntryData(Struct):
        entity: list[AlterClientQuotasRequest.EntityData] = array("EntityData", "0+")
        ops: list[AlterClientQuotasRequest.OpData] = array("OpData", "0+")

    entries: list[EntryData] = array(EntryData, "0+")
    validate_only: bool = boolean("0+")


class AlterClientQuotasResponse(Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"):
    class EntityData(Struct):
        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")

    class EntryData(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        entity: list[AlterClientQuotasResponse.EntityData] = array("EntityData", "0+")

    throttle_time_ms: int = int32("0+")
    entries: list[EntryData] = array(EntryData, "0+")


class UpdateFeaturesRequest(Message, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    """KIP-584; v1 tells how a downgrade may lose data (KIP-778)."""

    class FeatureUpdateKey(Struct):
        feature: str = string("0+")
        max_version_level: int = int16("0+")
        allow_downgrade: bool = boolean("0")
        upgrade_type: int = int8("1+", default=1)

    timeout_ms: int = int32("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")


class UpdateFeaturesResponse(Message, api_key=ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+"):
    class UpdatableFeatureResult(Struct):
        feature: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")


class DescribeClusterRequest(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    """KIP-700; v1 brokers or controllers (KIP-919); v2 fenced brokers too (KIP-1073)."""

    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


class DescribeClusterResponse(Message, api_key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+"):
    class DescribeClusterBroker(Struct):
        broker_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("0+", nullable="0+", default=None)
        is_fenced: bool = boolean("2+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=-0x80000000)


class UnregisterBrokerRequest(Message, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Message, api_key=ApiKey.UNREGISTER_BROKER, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ListConfigResourcesRequest(Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"):
    """v0 lists client metrics alone (KIP-714); v1 any type of resource that has settings (KIP-1142)."""

    resource_types: list[int] = array(int8, "1+")


class ListConfigResourcesResponse(Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"):
    class ConfigResource(Struct):
        resource_name: str = string("0+")
        resource_type: int = int8("1+", default=16)

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")


class DescribeTopicPartitionsRequest(Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"):
    """Metadata in pages, with eligible leader replicas (KIP-966)."""

    class TopicRequest(Struct):
        name: str = string("0+")

    class Cursor(Struct):
        topic_name: str = string("0+")
        partition_index: int = int32("0+")

    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = struct(Cursor, "0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponse(Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"):
    """A cursor that is not null tells where the next page starts."""

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: int = int16("0+")
        partition_index: int = int32("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+", default=-1)
        replica_nodes: list[int] = array(int32, "0+")
        isr_nodes: list[int] = array(int32, "0+")
        eligible_leader_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None)
        last_known_elr: list[int] | None = array(int32, "0+", nullable="0+", default=None)
        offline_replicas: list[int] = array(int32, "0+")

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: int = int16("0+")
        name: str | None = string("0+", nullable="0+")
        topic_id: bytes = uuid("0+")
        is_internal: bool = boolean("0+")
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = array(
            "DescribeTopicPartitionsResponsePartition", "0+"
        )
        topic_authorized_operations: int = int32("0+", default=-0x80000000)

    class Cursor(Struct):
        topic_name: str = string("0+")
        partition_index: int = int32("0+")

    throttle_time_ms: int = int32("0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = struct(Cursor, "0+", nullable="0+", default=None)

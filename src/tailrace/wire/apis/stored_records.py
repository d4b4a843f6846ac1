"""Records that outlive a process: those of the metadata log, of the coordinators' topics and of tiered storage, control
records, the vote file, producer snapshots, and the bytes that clients agree on among themselves in a group.

Declarations only, in the language of `wire.schema`. `record_type` is the type within its topic; the tables at the
end tell which types a topic has, and `wire.record_envelopes` knows the envelopes around them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)


class RegisterBrokerRecord(Message, record_type=0, versions="0-4", flexible="0+"):
    class BrokerEndpoint(Struct):
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    class BrokerFeature(Struct):
        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class UnregisterBrokerRecord(Message, record_type=1, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class TopicRecord(Message, record_type=2, versions="0", flexible="0+"):
    name: str = string("0+")
    topic_id: bytes = uuid("0+")


class PartitionRecord(Message, record_type=3, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    replicas: list[int] = array(int32, "0+")
    isr: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, record_type=4, versions="0", flexible="0+"):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class PartitionChangeRecord(Message, record_type=5, versions="0-2", flexible="0+"):
    """Null, -1 (recovery state) and -2 (leader) stand for no change."""

    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    isr: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)
    leader: int = int32("0+", default=-2, tag=1)
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class FenceBrokerRecord(Message, record_type=7, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class UnfenceBrokerRecord(Message, record_type=8, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class RemoveTopicRecord(Message, record_type=9, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")


class DelegationTokenRecord(Message, record_type=10, versions="0", flexible="0+"):
    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class UserScramCredentialRecord(Message, record_type=11, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = bytes_("0+")
    stored_key: bytes = bytes_("0+")
    server_key: bytes = bytes_("0+")
    iterations: int = int32("0+")


class FeatureLevelRecord(Message, record_type=12, versions="0", flexible="0+"):
    name: str = string("0+")
    feature_level: int = int16("0+")


class ClientQuotaRecord(Message, record_type=14, versions="0", flexible="0+"):
    class EntityData(Struct):
        entity_type: str = string("0+")
        entity_name: str | None = string("0+", nullable="0+")

    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class ProducerIdsRecord(Message, record_type=15, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class BrokerRegistrationChangeRecord(Message, record_type=17, versions="0-3", flexible="0+"):
    """Fenced and controlled shutdown: 0 no change, 1 now so, -1 no longer."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class AccessControlEntryRecord(Message, record_type=18, versions="0", flexible="0+"):
    id: bytes = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class RemoveAccessControlEntryRecord(Message, record_type=19, versions="0", flexible="0+"):
    id: bytes = uuid("0+")


class NoOpRecord(Message, record_type=20, versions="0", flexible="0+"):
    """Proves that the controller can still commit (KIP-835)."""


class ZkMigrationStateRecord(Message, record_type=21, versions="0", flexible="0+"):
    zk_migration_state: int = int8("0+")


class RemoveUserScramCredentialRecord(Message, record_type=22, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")


class BeginTransactionRecord(Message, record_type=23, versions="0", flexible="0+"):
    """Opens a group of records that take effect together (KIP-868)."""

    name: str | None = string("0+", nullable="0+", default=None, tag=0)


class EndTransactionRecord(Message, record_type=24, versions="0", flexible="0+"):
    """Closes what BeginTransactionRecord opened: all records between take effect at once (KIP-868)."""


class AbortTransactionRecord(Message, record_type=25, versions="0", flexible="0+"):
    """Drops the records since BeginTransactionRecord (KIP-868)."""

    reason: str | None = string("0+", nullable="0+", default=None, tag=0)


class RemoveDelegationTokenRecord(Message, record_type=26, versions="0", flexible="0+"):
    token_id: str = string("0+")


class RegisterControllerRecord(Message, record_type=27, versions="0", flexible="0+"):
    class ControllerEndpoint(Struct):
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    class ControllerFeature(Struct):
        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint, "0+")
    features: list[ControllerFeature] = array(ControllerFeature, "0+")


class ClearElrRecord(Message, record_type=28, versions="0", flexible="0+"):
    topic_name: str = string("0+")


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """The vote file of a node, as JSON on disk; v1 came with dynamic voters (KIP-853)."""

    class Voter(Struct):
        voter_id: int = int32("0")

    cluster_id: str = string("0")
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    voted_id: int = int32("0+", default=-1)
    voted_directory_id: bytes = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[Voter] | None = array(Voter, "0", nullable="0")


class ProducerSnapshot(Message, versions="1"):
    """A `.snapshot` file, behind the int16 of its version. The sum covers all that follows it."""

    class ProducerEntry(Struct):
        producer_id: int = int64("1")
        epoch: int = int16("1")
        last_sequence: int = int32("1")
        last_offset: int = int64("1")
        offset_delta: int = int32("1")
        timestamp: int = int64("1")
        coordinator_epoch: int = int32("1")
        current_txn_first_offset: int = int64("1")

    crc: int = uint32("1")
    producer_entries: list[ProducerEntry] = array(ProducerEntry, "1")


class RemoteLogSegmentMetadataRecord(Message, record_type=0, versions="0", flexible="0+"):
    class TopicIdPartitionEntry(Struct):
        name: str = string("0+")
        id: bytes = uuid("0+")
        partition: int = int32("0+")

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry = struct("TopicIdPartitionEntry", "0+")
        id: bytes = uuid("0+")

    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: int = int32("0+")
        offset: int = int64("0+")

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry, "0+")
    start_offset: int = int64("0+")
    end_offset: int = int64("0+")
    broker_id: int = int32("0+")
    max_timestamp_ms: int = int64("0+")
    event_timestamp_ms: int = int64("0+")
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry, "0+")
    segment_size_in_bytes: int = int32("0+")
    custom_metadata: bytes | None = bytes_("0+", nullable="0+", default=None)
    remote_log_segment_state: int = int8("0+")
    txn_index_empty: bool = boolean("0+", tag=0)


class RemoteLogSegmentMetadataUpdateRecord(Message, record_type=1, versions="0", flexible="0+"):
    class TopicIdPartitionEntry(Struct):
        name: str = string("0+")
        id: bytes = uuid("0+")
        partition: int = int32("0+")

    class RemoteLogSegmentIdEntry(Struct):
        topic_id_partition: RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry = struct(
            "TopicIdPartitionEntry", "0+"
        )
        id: bytes = uuid("0+")

    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry, "0+")
    broker_id: int = int32("0+")
    event_timestamp_ms: int = int64("0+")
    custom_metadata: bytes | None = bytes_("0+", nullable="0+", default=None)
    remote_log_segment_state: int = int8("0+")


class RemotePartitionDeleteMetadataRecord(Message, record_type=2, versions="0", flexible="0+"):
    class TopicIdPartitionEntry(Struct):
        name: str = string("0+")
        id: bytes = uuid("0+")
        partition: int = int32("0+")

    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry, "0+")
    broker_id: int = int32("0+")
    event_timestamp_ms: int = int64("0+")
    remote_partition_delete_state: int = int8("0+")


class RemoteLogSegmentMetadataSnapshotRecord(Message, record_type=3, versions="0", flexible="0+"):
    class SegmentLeaderEpochEntry(Struct):
        leader_epoch: int = int32("0+")
        offset: int = int64("0+")

    segment_id: bytes = uuid("0+")
    start_offset: int = int64("0+")
    end_offset: int = int64("0+")
    broker_id: int = int32("0+")
    max_timestamp_ms: int = int64("0+")
    event_timestamp_ms: int = int64("0+")
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry, "0+")
    segment_size_in_bytes: int = int32("0+")
    custom_metadata: bytes | None = bytes_("0+", nullable="0+", default=None)
    remote_log_segment_state: int = int8("0+")
    txn_index_empty: bool = boolean("0+", tag=0)


class LegacyOffsetCommitKey(Message, record_type=0, versions="0"):
    """As OffsetCommitKey, written by very old brokers."""

    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(Message, record_type=0, versions="0"):
    """As OffsetCommitValue, written by very old brokers."""

    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class OffsetCommitKey(Message, record_type=1, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Message, record_type=1, versions="0-4", flexible="4+"):
    """A committed offset. v4 the topic's id."""

    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)


class GroupMetadataKey(Message, record_type=2, versions="0"):
    group: str = string("0")


class GroupMetadataValue(Message, record_type=2, versions="0-4", flexible="4+"):
    class MemberMetadata(Struct):
        member_id: str = string("0+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        client_id: str = string("0+")
        client_host: str = string("0+")
        rebalance_timeout: int = int32("1+", default=-1)
        session_timeout: int = int32("0+")
        subscription: bytes = bytes_("0+")
        assignment: bytes = bytes_("0+")

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


class ConsumerGroupMetadataKey(Message, record_type=3, versions="0"):
    group_id: str = string("0")


class ConsumerGroupMetadataValue(Message, record_type=3, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Message, record_type=4, versions="0"):
    group_id: str = string("0")


class ConsumerGroupPartitionMetadataValue(Message, record_type=4, versions="0", flexible="0+"):
    """No longer written, but there may be old ones."""

    class PartitionMetadata(Struct):
        partition: int = int32("0+")
        racks: list[str] = array(string, "0+")

    class TopicMetadata(Struct):
        topic_id: bytes = uuid("0+")
        topic_name: str = string("0+")
        num_partitions: int = int32("0+")
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = array(
            "PartitionMetadata", "0+"
        )

    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class ConsumerGroupMemberMetadataKey(Message, record_type=5, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ConsumerGroupMemberMetadataValue(Message, record_type=5, versions="0", flexible="0+"):
    class ClassicProtocol(Struct):
        name: str = string("0+")
        metadata: bytes = bytes_("0+")

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: int = int32("0+")
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = array("ClassicProtocol", "0+")

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(ClassicMemberMetadata, "0+", nullable="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, record_type=6, versions="0"):
    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, record_type=6, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, record_type=7, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ConsumerGroupTargetAssignmentMemberValue(Message, record_type=7, versions="0", flexible="0+"):
    class TopicPartition(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")

    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, record_type=8, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ConsumerGroupCurrentMemberAssignmentValue(Message, record_type=8, versions="0", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")
        assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0)

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupRegularExpressionKey(Message, record_type=16, versions="0"):
    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Message, record_type=16, versions="0", flexible="0+"):
    topics: list[str] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


class ShareGroupMemberMetadataKey(Message, record_type=10, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupMemberMetadataValue(Message, record_type=10, versions="0", flexible="0+"):
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")


class ShareGroupMetadataKey(Message, record_type=11, versions="0"):
    group_id: str = string("0")


class ShareGroupMetadataValue(Message, record_type=11, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")


class ShareGroupTargetAssignmentMetadataKey(Message, record_type=12, versions="0"):
    group_id: str = string("0")


class ShareGroupTargetAssignmentMetadataValue(Message, record_type=12, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, default=0)


class ShareGroupTargetAssignmentMemberKey(Message, record_type=13, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupTargetAssignmentMemberValue(Message, record_type=13, versions="0", flexible="0+"):
    class TopicPartition(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")

    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class ShareGroupCurrentMemberAssignmentKey(Message, record_type=14, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupCurrentMemberAssignmentValue(Message, record_type=14, versions="0", flexible="0+"):
    class TopicPartitions(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[int] = array(int32, "0+")

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class ShareGroupStatePartitionMetadataKey(Message, record_type=15, versions="0"):
    group_id: str = string("0")


class ShareGroupStatePartitionMetadataValue(Message, record_type=15, versions="0", flexible="0+"):
    class TopicPartitionsInfo(Struct):
        topic_id: bytes = uuid("0+")
        topic_name: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    class TopicInfo(Struct):
        topic_id: bytes = uuid("0+")
        topic_name: str = string("0+")

    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    deleting_topics: list[TopicInfo] = array(TopicInfo, "0+")


class StreamsGroupMetadataKey(Message, record_type=17, versions="0"):
    group_id: str = string("0")


class StreamsGroupMetadataValue(Message, record_type=17, versions="0", flexible="0+"):
    class LastAssignmentConfig(Struct):
        key: str = string("0+")
        value: str = string("0+")

    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(LastAssignmentConfig, "0+", nullable="0+", tag=1)


class StreamsGroupMemberMetadataKey(Message, record_type=19, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupMemberMetadataValue(Message, record_type=19, versions="0", flexible="0+"):
    class Endpoint(Struct):
        host: str = string("0+")
        port: int = uint16("0+")

    class KeyValue(Struct):
        key: str = string("0+")
        value: str = string("0+")

    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = array(KeyValue, "0+")


class StreamsGroupTargetAssignmentMetadataKey(Message, record_type=20, versions="0"):
    group_id: str = string("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, record_type=20, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, default=0)


class StreamsGroupTargetAssignmentMemberKey(Message, record_type=21, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupTargetAssignmentMemberValue(Message, record_type=21, versions="0", flexible="0+"):
    class TaskIds(Struct):
        subtopology_id: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")


class StreamsGroupCurrentMemberAssignmentKey(Message, record_type=22, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class StreamsGroupCurrentMemberAssignmentValue(Message, record_type=22, versions="0", flexible="0+"):
    class TaskIds(Struct):
        subtopology_id: str = string("0+")
        partitions: list[int] = array(int32, "0+")
        assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0)

    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")
    active_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")


class StreamsGroupTopologyKey(Message, record_type=23, versions="0"):
    group_id: str = string("0")


class StreamsGroupTopologyValue(Message, record_type=23, versions="0", flexible="0+"):
    class TopicConfig(Struct):
        key: str = string("0+")
        value: str = string("0+")

    class TopicInfo(Struct):
        name: str = string("0+")
        partitions: int = int32("0+")
        replication_factor: int = int16("0+")
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = array("TopicConfig", "0+")

    class CopartitionGroup(Struct):
        """Indices into the arrays of the subtopology."""

        source_topics: list[int] = array(int16, "0+")
        source_topic_regex: list[int] = array(int16, "0+")
        repartition_source_topics: list[int] = array(int16, "0+")

    class Subtopology(Struct):
        subtopology_id: str = string("0+")
        source_topics: list[str] = array(string, "0+")
        source_topic_regex: list[str] = array(string, "0+")
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = array("TopicInfo", "0+")
        repartition_sink_topics: list[str] = array(string, "0+")
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = array("TopicInfo", "0+")
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = array("CopartitionGroup", "0+")

    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")


class TransactionLogKey(Message, record_type=0, versions="0"):
    transactional_id: str = string("0")


class TransactionLogValue(Message, record_type=0, versions="0-1", flexible="1+"):
    """v1 keeps what a transaction needs to end with a new epoch or id (KIP-890)."""

    class PartitionsSchema(Struct):
        topic: str = string("0+")
        partition_ids: list[int] = array(int32, "0+")

    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", default=-1, tag=3)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)


class ShareSnapshotKey(Message, record_type=0, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareSnapshotValue(Message, record_type=0, versions="0", flexible="0+"):
    class StateBatch(Struct):
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        delivery_state: int = int8("0+")
        delivery_count: int = int16("0+")

    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, default=-1)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ShareUpdateKey(Message, record_type=1, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class ShareUpdateValue(Message, record_type=1, versions="0", flexible="0+"):
    class StateBatch(Struct):
        first_offset: int = int64("0+")
        last_offset: int = int64("0+")
        delivery_state: int = int8("0+")
        delivery_count: int = int16("0+")

    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, default=-1)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """What a classic consumer's assignment holds, behind the int16 of its version."""

    class TopicPartition(Struct):
        topic: str = string("0+")
        partitions: list[int] = array(int32, "0+")

    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a classic consumer's member metadata holds, behind the int16 of its version; v2 and 3 help to assign
    stickily and by rack."""

    class TopicPartition(Struct):
        topic: str = string("1+")
        partitions: list[int] = array(int32, "1+")

    topics: list[str] = array(string, "0+")
    user_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="3+", default=None)


class ControlRecordTypeSchema(Message, versions="0"):
    """The key of a control record, behind the int16 of its version: 0 abort, 1 commit, 2 leader change, 3 snapshot
    header, 4 snapshot footer, 5 raft version, 6 raft voters."""

    type: int = int16("0+")


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """A principal, as EnvelopeRequest carries it, behind the int16 of its version."""

    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")


class EndTxnMarker(Message, versions="0"):
    """The value of a control record that ends a transaction; its key tells commit from abort."""

    coordinator_epoch: int = int32("0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    kraft_version: int = int16("0+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    class Voter(Struct):
        voter_id: int = int32("0+")
        voter_directory_id: bytes = uuid("1+")

    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[Voter] = array(Voter, "0+")
    granting_voters: list[Voter] = array(Voter, "0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    class Endpoint(Struct):
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")

    class KRaftVersionFeature(Struct):
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    class Voter(Struct):
        voter_id: int = int32("0+")
        voter_directory_id: bytes = uuid("0+")
        endpoints: list[VotersRecord.Endpoint] = array("Endpoint", "0+")
        kraft_version_feature: VotersRecord.KRaftVersionFeature = struct("KRaftVersionFeature", "0+")

    version: int = int16("0+")
    voters: list[Voter] = array(Voter, "0+")


class MirrorLinkRecord(Message, record_type=10_000, versions="0", flexible="0+"):
    """Our own: another cluster of which topics are mirrored. A new one, or what it is now. It holds no secrets."""

    class Setting(Struct):
        name: str = string("0+")
        value: str = string("0+")

    link_id: bytes = uuid("0+")
    name: str = string("0+")
    source_cluster_id: str = string("0+")
    is_paused: bool = boolean("0+")
    settings: list[Setting] = array(Setting, "0+")


class RemoveMirrorLinkRecord(Message, record_type=10_001, versions="0", flexible="0+"):
    link_id: bytes = uuid("0+")


class MirrorTopicRecord(Message, record_type=10_002, versions="0", flexible="0+"):
    """Our own: a topic is a mirror, and how far it is on its way to be one no more."""

    topic_id: bytes = uuid("0+")
    link_id: bytes = uuid("0+")
    source_topic: str = string("0+")
    source_topic_id: bytes = uuid("0+")
    state: int = int8("0+")
    # The first leader epoch in which it takes records of its own; -1 before that is decided.
    opening_epoch: int = int32("0+", default=-1)
    # Of the promote that was asked for last; all zeros if there was none.
    handover_id: bytes = uuid("0+")
    # The clusters that it comes from, the one that it is mirrored from last.
    origins: list[str] = array(string, "0+")


class ClosedTopicRecord(Message, record_type=10_003, versions="0", flexible="0+"):
    """Our own: a topic was handed over to a cluster that mirrors it, and takes no records. Without one it does."""

    topic_id: bytes = uuid("0+")
    cluster_id: str = string("0+")
    handover_id: bytes = uuid("0+")


# Record types of __cluster_metadata.
METADATA_RECORDS: Mapping[int, type[Message]] = {
    record.record_type: record
    for record in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
        MirrorLinkRecord,
        RemoveMirrorLinkRecord,
        MirrorTopicRecord,
        ClosedTopicRecord,
    )
}
# Record types of __remote_log_metadata.
REMOTE_LOG_RECORDS: Mapping[int, type[Message]] = {
    record.record_type: record
    for record in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
    )
}
# Record types of __consumer_offsets, each with a key and a value.
GROUP_RECORDS: Mapping[int, tuple[type[Message], type[Message]]] = {
    key.record_type: (key, value)
    for key, value in (
        (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        (ShareGroupMetadataKey, ShareGroupMetadataValue),
        (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    )
}
# Record types of __transaction_state.
TRANSACTION_RECORDS: Mapping[int, tuple[type[Message], type[Message]]] = {
    key.record_type: (key, value) for key, value in ((TransactionLogKey, TransactionLogValue),)
}
# Record types of __share_group_state.
SHARE_STATE_RECORDS: Mapping[int, tuple[type[Message], type[Message]]] = {
    key.record_type: (key, value)
    for key, value in ((ShareSnapshotKey, ShareSnapshotValue), (ShareUpdateKey, ShareUpdateValue))
}

"""What brokers and controllers say to each other (KRaft, KIP-500 and after), and what admin clients ask of the
quorum: requests and responses.

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
    bytes_,
    int8,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uint16,
    uuid,
)

if TYPE_CHECKING:
    from tailrace.model.ports import Bytes, FileSlice


class VoteRequest(Message, api_key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    """KIP-595; v1 voters by directory id (KIP-853); v2 pre-vote (KIP-996)."""

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        replica_epoch: int = int32("0+")
        replica_id: int = int32("0+")
        replica_directory_id: bytes = uuid("1+")
        voter_directory_id: bytes = uuid("1+")
        last_offset_epoch: int = int32("0+")
        last_offset: int = int64("0+")
        pre_vote: bool = boolean("2+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[VoteRequest.PartitionData] = array("PartitionData", "0+")

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[TopicData] = array(TopicData, "0+")


class VoteResponse(Message, api_key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        vote_granted: bool = boolean("0+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[VoteResponse.PartitionData] = array("PartitionData", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    error_code: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class BeginQuorumEpochRequest(Message, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    """A new leader makes itself known (KIP-595); v1 voters by directory id and the leader's addresses (KIP-853)."""

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        voter_directory_id: bytes = uuid("1+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[BeginQuorumEpochRequest.PartitionData] = array("PartitionData", "0+")

    class LeaderEndpoint(Struct):
        name: str = string("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1)
    topics: list[TopicData] = array(TopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+")


class BeginQuorumEpochResponse(Message, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[BeginQuorumEpochResponse.PartitionData] = array("PartitionData", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    error_code: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class EndQuorumEpochRequest(Message, api_key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    """A leader that resigns names its successors (KIP-595); v1 by directory id (KIP-853)."""

    class ReplicaInfo(Struct):
        candidate_id: int = int32("1+")
        candidate_directory_id: bytes = uuid("1+")

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        preferred_successors: list[int] = array(int32, "0")
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = array("ReplicaInfo", "1+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[EndQuorumEpochRequest.PartitionData] = array("PartitionData", "0+")

    class LeaderEndpoint(Struct):
        name: str = string("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    cluster_id: str | None = string("0+", nullable="0+", default=None)
    topics: list[TopicData] = array(TopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+")


class EndQuorumEpochResponse(Message, api_key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[EndQuorumEpochResponse.PartitionData] = array("PartitionData", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    error_code: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class DescribeQuorumRequest(Message, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"):
    class PartitionData(Struct):
        partition_index: int = int32("0+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[DescribeQuorumRequest.PartitionData] = array("PartitionData", "0+")

    topics: list[TopicData] = array(TopicData, "0+")


class DescribeQuorumResponse(Message, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"):
    """v1 fetch times; v2 directory ids, error messages and the nodes' addresses (KIP-853)."""

    class ReplicaState(Struct):
        replica_id: int = int32("0+")
        replica_directory_id: bytes = uuid("2+")
        log_end_offset: int = int64("0+")
        last_fetch_timestamp: int = int64("1+", default=-1)
        last_caught_up_timestamp: int = int64("1+", default=-1)

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("2+", nullable="2+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        high_watermark: int = int64("0+")
        current_voters: list[DescribeQuorumResponse.ReplicaState] = array("ReplicaState", "0+")
        observers: list[DescribeQuorumResponse.ReplicaState] = array("ReplicaState", "0+")

    class TopicData(Struct):
        topic_name: str = string("0+")
        partitions: list[DescribeQuorumResponse.PartitionData] = array("PartitionData", "0+")

    class Listener(Struct):
        name: str = string("2+")
        host: str = string("2+")
        port: int = uint16("2+")

    class Node(Struct):
        node_id: int = int32("2+")
        listeners: list[DescribeQuorumResponse.Listener] = array("Listener", "2+")

    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+")
    topics: list[TopicData] = array(TopicData, "0+")
    nodes: list[Node] = array(Node, "2+")


class AlterPartitionRequest(Message, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"):
    """A leader proposes its in-sync replicas (KIP-497); v3 with their broker epochs (KIP-903)."""

    class BrokerState(Struct):
        broker_id: int = int32("3+")
        broker_epoch: int = int64("3+", default=-1)

    class PartitionData(Struct):
        partition_index: int = int32("0+")
        leader_epoch: int = int32("0+")
        new_isr: list[int] = array(int32, "0-2")
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = array("BrokerState", "3+")
        leader_recovery_state: int = int8("1+")
        partition_epoch: int = int32("0+")

    class TopicData(Struct):
        topic_id: bytes = uuid("2+")
        partitions: list[AlterPartitionRequest.PartitionData] = array("PartitionData", "0+")

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[TopicData] = array(TopicData, "0+")


class AlterPartitionResponse(Message, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"):
    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")
        isr: list[int] = array(int32, "0+")
        leader_recovery_state: int = int8("1+")
        partition_epoch: int = int32("0+")

    class TopicData(Struct):
        topic_id: bytes = uuid("2+")
        partitions: list[AlterPartitionResponse.PartitionData] = array("PartitionData", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class EnvelopeRequest(Message, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    """A client's request, forwarded to the controller with the principal who sent it (KIP-590)."""

    request_data: bytes = bytes_("0+")
    request_principal: bytes | None = bytes_("0+", nullable="0+")
    client_host_address: bytes = bytes_("0+")


class EnvelopeResponse(Message, api_key=ApiKey.ENVELOPE, versions="0", flexible="0+"):
    response_data: bytes | None = bytes_("0+", nullable="0+", default=None)
    error_code: int = int16("0+")


class FetchSnapshotRequest(Message, api_key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+"):
    """KIP-630; v1 the replica's directory (KIP-853)."""

    class SnapshotId(Struct):
        end_offset: int = int64("0+")
        epoch: int = int32("0+")

    class PartitionSnapshot(Struct):
        partition: int = int32("0+")
        current_leader_epoch: int = int32("0+")
        snapshot_id: FetchSnapshotRequest.SnapshotId = struct("SnapshotId", "0+")
        position: int = int64("0+")
        replica_directory_id: bytes = uuid("1+", tag=0)

    class TopicSnapshot(Struct):
        name: str = string("0+")
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = array("PartitionSnapshot", "0+")

    cluster_id: str | None = string("0+", nullable="0+", default=None, tag=0)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=0x7FFFFFFF)
    topics: list[TopicSnapshot] = array(TopicSnapshot, "0+")


class FetchSnapshotResponse(Message, api_key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+"):
    class SnapshotId(Struct):
        end_offset: int = int64("0+")
        epoch: int = int32("0+")

    class LeaderIdAndEpoch(Struct):
        leader_id: int = int32("0+")
        leader_epoch: int = int32("0+")

    class PartitionSnapshot(Struct):
        index: int = int32("0+")
        error_code: int = int16("0+")
        snapshot_id: FetchSnapshotResponse.SnapshotId = struct("SnapshotId", "0+")
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch = struct("LeaderIdAndEpoch", "0+", tag=0)
        size: int = int64("0+")
        position: int = int64("0+")
        unaligned_records: Bytes | FileSlice = record_batches("0+")

    class TopicSnapshot(Struct):
        name: str = string("0+")
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = array("PartitionSnapshot", "0+")

    class NodeEndpoint(Struct):
        node_id: int = int32("1+")
        host: str = string("1+")
        port: int = uint16("1+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[TopicSnapshot] = array(TopicSnapshot, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)


class BrokerRegistrationRequest(Message, api_key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+"):
    """KIP-631; v2 folders (KIP-858); v3 the epoch of the last clean stop (KIP-966)."""

    class Listener(Struct):
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    class Feature(Struct):
        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    broker_id: int = int32("0+")
    cluster_id: str = string("0+")
    incarnation_id: bytes = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    features: list[Feature] = array(Feature, "0+")
    rack: str | None = string("0+", nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+")
    previous_broker_epoch: int = int64("3+", default=-1)


class BrokerRegistrationResponse(Message, api_key=ApiKey.BROKER_REGISTRATION, versions="0-4", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    broker_epoch: int = int64("0+", default=-1)


class BrokerHeartbeatRequest(Message, api_key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+"):
    """KIP-631; v1 offline folders (KIP-858); v2 cordoned ones (KIP-1066)."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api_key=ApiKey.BROKER_HEARTBEAT, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")


class AllocateProducerIdsRequest(Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    """A broker gets a block of producer ids (KIP-730)."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")


class ControllerRegistrationRequest(Message, api_key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+"):
    """KIP-919."""

    class Listener(Struct):
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")
        security_protocol: int = int16("0+")

    class Feature(Struct):
        name: str = string("0+")
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    listeners: list[Listener] = array(Listener, "0+")
    features: list[Feature] = array(Feature, "0+")


class ControllerRegistrationResponse(Message, api_key=ApiKey.CONTROLLER_REGISTRATION, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class AssignReplicasToDirsRequest(Message, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+"):
    """A broker tells in which folder a replica lies (KIP-858)."""

    class PartitionData(Struct):
        partition_index: int = int32("0+")

    class TopicData(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[AssignReplicasToDirsRequest.PartitionData] = array("PartitionData", "0+")

    class DirectoryData(Struct):
        id: bytes = uuid("0+")
        topics: list[AssignReplicasToDirsRequest.TopicData] = array("TopicData", "0+")

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[DirectoryData] = array(DirectoryData, "0+")


class AssignReplicasToDirsResponse(Message, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+"):
    class PartitionData(Struct):
        partition_index: int = int32("0+")
        error_code: int = int16("0+")

    class TopicData(Struct):
        topic_id: bytes = uuid("0+")
        partitions: list[AssignReplicasToDirsResponse.PartitionData] = array("PartitionData", "0+")

    class DirectoryData(Struct):
        id: bytes = uuid("0+")
        topics: list[AssignReplicasToDirsResponse.TopicData] = array("TopicData", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[DirectoryData] = array(DirectoryData, "0+")


class AddRaftVoterRequest(Message, api_key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+"):
    """KIP-853; v1 may be answered before it is committed (KIP-1186)."""

    class Listener(Struct):
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")

    cluster_id: str | None = string("0+", nullable="0+")
    timeout_ms: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Message, api_key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class RemoveRaftVoterRequest(Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    """KIP-853."""

    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")


class RemoveRaftVoterResponse(Message, api_key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class UpdateRaftVoterRequest(Message, api_key=ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+"):
    """A voter announces its versions and addresses (KIP-853)."""

    class Listener(Struct):
        name: str = string("0+")
        host: str = string("0+")
        port: int = uint16("0+")

    class KRaftVersionFeature(Struct):
        min_supported_version: int = int16("0+")
        max_supported_version: int = int16("0+")

    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[Listener] = array(Listener, "0+")
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class UpdateRaftVoterResponse(Message, api_key=ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+"):
    class CurrentLeader(Struct):
        leader_id: int = int32("0+", default=-1)
        leader_epoch: int = int32("0+", default=-1)
        host: str = string("0+")
        port: int = int32("0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    current_leader: CurrentLeader = struct(CurrentLeader, "0+", tag=0)

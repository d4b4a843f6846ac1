"""The requests of the cases: as plain as they can be, about a topic on which the client may have rights, one on which
it has none, and one that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tailrace.wire.apis import admin, data, groups, quorum, security, transactions
from tailrace.wire.records import build_batch
from tailrace.wire.schema import Message

TOPIC, OTHER, MISSING = "orders", "events", "ghosts"
GROUP, TRANSACTIONAL_ID = "readers", "writers"


class State(NamedTuple):
    """What requests have to know of the cluster."""

    topic_ids: dict[str, bytes]


def _batch(**options: Any) -> bytes:
    return build_batch([(0, 1_767_225_600_000, None, b"value", ())], **options)


# A filter that fits no ACL.
_NOBODY: dict[str, Any] = {"principal_filter": "User:nobody", "resource_name_filter": None, "host_filter": None}


def produce(state: State, *, transactional: bool = False, by_id: bool = False) -> Message:
    records = (
        _batch(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True) if transactional else _batch()
    )
    partition = data.ProduceRequest.PartitionProduceData(index=0, records=records)
    return data.ProduceRequest(
        transactional_id=TRANSACTIONAL_ID if transactional else None,
        acks=1,
        timeout_ms=5000,
        topic_data=[
            data.ProduceRequest.TopicProduceData(
                name="" if by_id else name, topic_id=state.topic_ids.get(name, b"?" * 16), partition_data=[partition]
            )
            for name in (TOPIC, OTHER, MISSING)
        ],
    )


def fetch(state: State, *, replica_id: int = -1, by_id: bool = False) -> Message:
    partition = data.FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1, last_fetched_epoch=-1
    )
    return data.FetchRequest(
        replica_id=replica_id,
        replica_state=data.FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=-1),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            data.FetchRequest.FetchTopic(
                topic="" if by_id else name, topic_id=state.topic_ids.get(name, b"?" * 16), partitions=[partition]
            )
            for name in (TOPIC, OTHER, MISSING)
        ],
    )


def list_offsets(_state: State) -> Message:
    asked = data.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topic = data.ListOffsetsRequest.ListOffsetsTopic
    return data.ListOffsetsRequest(
        replica_id=-1, topics=[topic(name=name, partitions=[asked]) for name in (TOPIC, OTHER, MISSING)]
    )


def epochs(_state: State) -> Message:
    asked = data.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=0
    )
    topic = data.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return data.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[topic(topic=name, partitions=[asked]) for name in (TOPIC, OTHER, MISSING)]
    )


def delete_records(_state: State) -> Message:
    asked = data.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = data.DeleteRecordsRequest.DeleteRecordsTopic
    return data.DeleteRecordsRequest(
        timeout_ms=5000, topics=[topic(name=name, partitions=[asked]) for name in (TOPIC, OTHER, MISSING)]
    )


def metadata(state: State, *, by_id: bool = False) -> Message:
    topic = data.MetadataRequest.MetadataRequestTopic
    if by_id:
        asked = [topic(name=None, topic_id=state.topic_ids.get(name, b"?" * 16)) for name in (TOPIC, OTHER, MISSING)]
    else:
        asked = [topic(name=name) for name in (TOPIC, OTHER, MISSING)]
    return data.MetadataRequest(
        topics=asked,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )


def metadata_of_all(_state: State) -> Message:
    return data.MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True)


def describe_partitions(_state: State, *, names: tuple[str, ...] = (TOPIC, OTHER, MISSING)) -> Message:
    topic = admin.DescribeTopicPartitionsRequest.TopicRequest
    return admin.DescribeTopicPartitionsRequest(
        topics=[topic(name=name) for name in names], response_partition_limit=100
    )


def describe_cluster(_state: State) -> Message:
    return admin.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)


def find_old(_state: State, *, key_type: int = 0, key: str = GROUP) -> Message:
    return groups.FindCoordinatorRequest(key=key, key_type=key_type)


def find(_state: State, *, key_type: int = 0, key: str = GROUP) -> Message:
    return groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key, "strangers"])


def commit(state: State, *, by_id: bool = False) -> Message:
    partition = groups.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    return groups.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            groups.OffsetCommitRequest.OffsetCommitRequestTopic(
                name="" if by_id else name, topic_id=state.topic_ids[name], partitions=[partition]
            )
            for name in (TOPIC, OTHER)
        ],
    )


def fetch_offsets_old(_state: State, *, is_all: bool = False) -> Message:
    topic = groups.OffsetFetchRequest.OffsetFetchRequestTopic
    asked = None if is_all else [topic(name=name, partition_indexes=[0]) for name in (TOPIC, OTHER)]
    return groups.OffsetFetchRequest(group_id=GROUP, topics=asked)


def fetch_offsets(state: State, *, is_all: bool = False, by_id: bool = False) -> Message:
    topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics
    asked = [
        topic(name="" if by_id else name, topic_id=state.topic_ids[name], partition_indexes=[0])
        for name in (TOPIC, OTHER)
    ]
    group = groups.OffsetFetchRequest.OffsetFetchRequestGroup
    return groups.OffsetFetchRequest(
        groups=[group(group_id=name, topics=None if is_all else asked) for name in (GROUP, "strangers")]
    )


def delete_offsets(_state: State, *, group: str = GROUP) -> Message:
    partition = groups.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = groups.OffsetDeleteRequest.OffsetDeleteRequestTopic
    return groups.OffsetDeleteRequest(group_id=group, topics=[topic(name=OTHER, partitions=[partition])])


def join(_state: State) -> Message:
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return groups.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[protocol],
    )


def consumer_heartbeat(_state: State) -> Message:
    return groups.ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=5, subscribed_topic_names=[TOPIC, OTHER]
    )


def leave(_state: State) -> Message:
    member = groups.LeaveGroupRequest.MemberIdentity(member_id="nobody")
    return groups.LeaveGroupRequest(group_id=GROUP, member_id="nobody", members=[member])


def txn_commit(_state: State) -> Message:
    partition = transactions.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topic = transactions.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    return transactions.TxnOffsetCommitRequest(
        transactional_id=TRANSACTIONAL_ID,
        group_id=GROUP,
        producer_id=9999,
        producer_epoch=0,
        generation_id=-1,
        topics=[topic(name=name, partitions=[partition]) for name in (TOPIC, OTHER)],
    )


def add_partitions(_state: State) -> Message:
    topic = transactions.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=9999,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic(name=name, partitions=[0]) for name in (TOPIC, OTHER)],
    )


def add_partitions_of_brokers(_state: State) -> Message:
    request = transactions.AddPartitionsToTxnRequest
    topic = request.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    transaction = request.AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTIONAL_ID, producer_id=9999, producer_epoch=0, verify_only=True, topics=[topic]
    )
    return request(transactions=[transaction])


def markers(_state: State) -> Message:
    topic = transactions.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=MISSING, partition_indexes=[0])
    marker = transactions.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=9999, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0
    )
    return transactions.WriteTxnMarkersRequest(markers=[marker])


def create_topics(_state: State) -> Message:
    topic = admin.CreateTopicsRequest.CreatableTopic
    return admin.CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in (TOPIC, MISSING)],
        timeout_ms=5000,
        validate_only=True,
    )


def delete_topics_old(_state: State) -> Message:
    return admin.DeleteTopicsRequest(topic_names=[MISSING], timeout_ms=5000)


def delete_topics(state: State) -> Message:
    topic = admin.DeleteTopicsRequest.DeleteTopicState
    return admin.DeleteTopicsRequest(
        topics=[
            topic(name=MISSING),
            topic(name=None, topic_id=b"?" * 16),
            topic(name=None, topic_id=state.topic_ids[OTHER]),
        ],
        timeout_ms=5000,
    )


def create_partitions(_state: State) -> Message:
    topic = admin.CreatePartitionsRequest.CreatePartitionsTopic
    return admin.CreatePartitionsRequest(
        topics=[topic(name=name, count=2, assignments=None) for name in (TOPIC, OTHER, MISSING)],
        timeout_ms=5000,
        validate_only=True,
    )


_RESOURCES = ((2, TOPIC), (2, OTHER), (4, "1"), (32, GROUP))


def describe_configs(_state: State) -> Message:
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    return admin.DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=["nothing"])
            for kind, name in _RESOURCES
        ]
    )


def alter_configs(_state: State) -> Message:
    resource = admin.AlterConfigsRequest.AlterConfigsResource
    return admin.AlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[]) for kind, name in _RESOURCES],
        validate_only=True,
    )


def alter_configs_incrementally(_state: State) -> Message:
    resource = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    return admin.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[]) for kind, name in _RESOURCES],
        validate_only=True,
    )


def elect(_state: State) -> Message:
    asked = admin.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
    return admin.ElectLeadersRequest(election_type=0, topic_partitions=[asked], timeout_ms=5000)


def reassign(_state: State) -> Message:
    partition = admin.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=None)
    topic = admin.AlterPartitionReassignmentsRequest.ReassignableTopic(name=TOPIC, partitions=[partition])
    return admin.AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[topic])


def move_logs(_state: State) -> Message:
    topic = admin.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=MISSING, partitions=[0])
    return admin.AlterReplicaLogDirsRequest(
        dirs=[admin.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere", topics=[topic])]
    )


def describe_quorum(_state: State) -> Message:
    partition = quorum.DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = quorum.DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return quorum.DescribeQuorumRequest(topics=[topic])


def describe_acls(_state: State) -> Message:
    return security.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **_NOBODY
    )


def create_acls(_state: State) -> Message:
    creation = security.CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="", principal="User:nobody", host="*", operation=3, permission_type=3
    )
    return security.CreateAclsRequest(creations=[creation])


def delete_acls(_state: State) -> Message:
    wanted = security.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **_NOBODY
    )
    return security.DeleteAclsRequest(filters=[wanted])


def describe_credentials(_state: State) -> Message:
    """Of a named user: for all of them Kafka does not answer at all to whoever may not ask."""
    user = security.DescribeUserScramCredentialsRequest.UserName(name="nobody")
    return security.DescribeUserScramCredentialsRequest(users=[user])


def alter_credentials(_state: State) -> Message:
    deletion = security.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="nobody", mechanism=1)
    return security.AlterUserScramCredentialsRequest(deletions=[deletion])


def describe_quotas(_state: State) -> Message:
    return admin.DescribeClientQuotasRequest(components=[], strict=False)


def alter_quotas(_state: State) -> Message:
    request = admin.AlterClientQuotasRequest
    entity = request.EntityData(entity_type="user", entity_name="nobody")
    removal = request.OpData(key="producer_byte_rate", value=0.0, remove=True)
    return request(entries=[request.EntryData(entity=[entity], ops=[removal])], validate_only=True)


# Of another cluster: whoever is let through changes nothing.
ADD_VOTER = quorum.AddRaftVoterRequest(
    cluster_id="another", timeout_ms=100, voter_id=77, voter_directory_id=b"?" * 16, listeners=[]
)
REMOVE_VOTER = quorum.RemoveRaftVoterRequest(cluster_id="another", voter_id=77, voter_directory_id=b"?" * 16)


def plain(request: Message) -> Callable[[State], Message]:
    return lambda _state: request

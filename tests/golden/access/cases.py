"""What is asked by somebody with few rights, API by API: the request, and what the table of rights says that it needs.

From the needs follow the ACLs with which each request is sent (`variants`): none, each of them alone, all, all with one
of them denied, all as prefixes, as wildcards, for everyone, from one host, and for all operations. Requests are made so
that whoever is allowed changes nothing that a later one would see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tailrace.model.acls import CLUSTER_NAME, Acl, Kind, Operation, PatternType, Permission
from tailrace.wire.apis import admin, data, groups, quorum, security, transactions
from tailrace.wire.records import build_batch
from tailrace.wire.schema import Message

WHO = "User:alice"
TOPIC, OTHER, MISSING = "orders", "events", "ghosts"
GROUP, TRANSACTIONAL_ID = "readers", "writers"
PREFIX_LENGTH = 3


class State(NamedTuple):
    """What requests have to know of the cluster."""

    topic_ids: dict[str, bytes]


class Case(NamedTuple):
    name: str
    build: Callable[[State], Message]
    versions: tuple[int, int]
    needs: tuple[tuple[Operation, Kind, str], ...]


class Variant(NamedTuple):
    name: str
    acls: tuple[Acl, ...]


def variants(case: Case) -> Iterator[Variant]:
    every = tuple(_acl(*need) for need in case.needs)
    yield Variant("nothing", ())
    if len(every) > 1:
        for acl in every:
            yield Variant(f"{acl.operation.name} {acl.kind.name} alone", (acl,))
    if not every:
        return
    yield Variant("all", every)
    for acl in every:
        denied = acl._replace(permission=Permission.DENY)
        yield Variant(f"all, {acl.operation.name} {acl.kind.name} denied", (*every, denied))
    yield Variant("prefixes", tuple(map(_as_prefix, every)))
    yield Variant("wildcards", tuple(acl._replace(name=_wildcard(acl)) for acl in every))
    yield Variant("for everyone", tuple(acl._replace(principal="User:*") for acl in every))
    yield Variant("from here", tuple(acl._replace(host="127.0.0.1") for acl in every))
    yield Variant("from elsewhere", tuple(acl._replace(host="10.9.9.9") for acl in every))
    yield Variant("all operations", tuple(acl._replace(operation=Operation.ALL) for acl in every))


def _acl(operation: Operation, kind: Kind, name: str) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, WHO, "*", operation, Permission.ALLOW)


def _as_prefix(acl: Acl) -> Acl:
    if acl.kind is Kind.CLUSTER:
        return acl._replace(pattern_type=PatternType.PREFIXED)
    return acl._replace(name=acl.name[:PREFIX_LENGTH], pattern_type=PatternType.PREFIXED)


def _wildcard(acl: Acl) -> str:
    return CLUSTER_NAME if acl.kind is Kind.CLUSTER else "*"


def _batch(**options: Any) -> bytes:
    return build_batch([(0, 1_767_225_600_000, None, b"value", ())], **options)


# A filter that fits no ACL.
_NOBODY: dict[str, Any] = {"principal_filter": "User:nobody", "resource_name_filter": None, "host_filter": None}


# ---- requests


def _produce(state: State, *, transactional: bool = False, by_id: bool = False) -> Message:
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


def _fetch(state: State, *, replica_id: int = -1, by_id: bool = False) -> Message:
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


def _list_offsets(_state: State) -> Message:
    asked = data.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topic = data.ListOffsetsRequest.ListOffsetsTopic
    return data.ListOffsetsRequest(
        replica_id=-1, topics=[topic(name=name, partitions=[asked]) for name in (TOPIC, OTHER, MISSING)]
    )


def _epochs(_state: State) -> Message:
    asked = data.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=-1, leader_epoch=0
    )
    topic = data.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return data.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[topic(topic=name, partitions=[asked]) for name in (TOPIC, OTHER, MISSING)]
    )


def _delete_records(_state: State) -> Message:
    asked = data.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = data.DeleteRecordsRequest.DeleteRecordsTopic
    return data.DeleteRecordsRequest(
        timeout_ms=5000, topics=[topic(name=name, partitions=[asked]) for name in (TOPIC, OTHER, MISSING)]
    )


def _metadata(state: State, *, by_id: bool = False) -> Message:
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


def _metadata_of_all(_state: State) -> Message:
    return data.MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=True)


def _describe_partitions(_state: State, *, names: tuple[str, ...] = (TOPIC, OTHER, MISSING)) -> Message:
    topic = admin.DescribeTopicPartitionsRequest.TopicRequest
    return admin.DescribeTopicPartitionsRequest(
        topics=[topic(name=name) for name in names], response_partition_limit=100
    )


def _describe_cluster(_state: State) -> Message:
    return admin.DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)


def _find_old(_state: State, *, key_type: int = 0, key: str = GROUP) -> Message:
    return groups.FindCoordinatorRequest(key=key, key_type=key_type)


def _find(_state: State, *, key_type: int = 0, key: str = GROUP) -> Message:
    return groups.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key, "strangers"])


def _commit(state: State, *, by_id: bool = False) -> Message:
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


def _fetch_offsets_old(_state: State, *, is_all: bool = False) -> Message:
    topic = groups.OffsetFetchRequest.OffsetFetchRequestTopic
    asked = None if is_all else [topic(name=name, partition_indexes=[0]) for name in (TOPIC, OTHER)]
    return groups.OffsetFetchRequest(group_id=GROUP, topics=asked)


def _fetch_offsets(state: State, *, is_all: bool = False, by_id: bool = False) -> Message:
    topic = groups.OffsetFetchRequest.OffsetFetchRequestTopics
    asked = [
        topic(name="" if by_id else name, topic_id=state.topic_ids[name], partition_indexes=[0])
        for name in (TOPIC, OTHER)
    ]
    group = groups.OffsetFetchRequest.OffsetFetchRequestGroup
    return groups.OffsetFetchRequest(
        groups=[group(group_id=name, topics=None if is_all else asked) for name in (GROUP, "strangers")]
    )


def _delete_offsets(_state: State, *, group: str = GROUP) -> Message:
    partition = groups.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topic = groups.OffsetDeleteRequest.OffsetDeleteRequestTopic
    return groups.OffsetDeleteRequest(group_id=group, topics=[topic(name=OTHER, partitions=[partition])])


def _join(_state: State) -> Message:
    protocol = groups.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    return groups.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[protocol],
    )


def _consumer_heartbeat(_state: State) -> Message:
    return groups.ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=5, subscribed_topic_names=[TOPIC, OTHER]
    )


def _leave(_state: State) -> Message:
    member = groups.LeaveGroupRequest.MemberIdentity(member_id="nobody")
    return groups.LeaveGroupRequest(group_id=GROUP, member_id="nobody", members=[member])


def _txn_commit(_state: State) -> Message:
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


def _add_partitions(_state: State) -> Message:
    topic = transactions.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return transactions.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=9999,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic(name=name, partitions=[0]) for name in (TOPIC, OTHER)],
    )


def _add_partitions_of_brokers(_state: State) -> Message:
    request = transactions.AddPartitionsToTxnRequest
    topic = request.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])
    transaction = request.AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTIONAL_ID, producer_id=9999, producer_epoch=0, verify_only=True, topics=[topic]
    )
    return request(transactions=[transaction])


def _markers(_state: State) -> Message:
    topic = transactions.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=MISSING, partition_indexes=[0])
    marker = transactions.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=9999, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0
    )
    return transactions.WriteTxnMarkersRequest(markers=[marker])


def _create_topics(_state: State) -> Message:
    topic = admin.CreateTopicsRequest.CreatableTopic
    return admin.CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in (TOPIC, MISSING)],
        timeout_ms=5000,
        validate_only=True,
    )


def _delete_topics_old(_state: State) -> Message:
    return admin.DeleteTopicsRequest(topic_names=[MISSING], timeout_ms=5000)


def _delete_topics(state: State) -> Message:
    topic = admin.DeleteTopicsRequest.DeleteTopicState
    return admin.DeleteTopicsRequest(
        topics=[
            topic(name=MISSING),
            topic(name=None, topic_id=b"?" * 16),
            topic(name=None, topic_id=state.topic_ids[OTHER]),
        ],
        timeout_ms=5000,
    )


def _create_partitions(_state: State) -> Message:
    topic = admin.CreatePartitionsRequest.CreatePartitionsTopic
    return admin.CreatePartitionsRequest(
        topics=[topic(name=name, count=2, assignments=None) for name in (TOPIC, OTHER, MISSING)],
        timeout_ms=5000,
        validate_only=True,
    )


_RESOURCES = ((2, TOPIC), (2, OTHER), (4, "1"), (32, GROUP))


def _describe_configs(_state: State) -> Message:
    resource = admin.DescribeConfigsRequest.DescribeConfigsResource
    return admin.DescribeConfigsRequest(
        resources=[
            resource(resource_type=kind, resource_name=name, configuration_keys=["nothing"])
            for kind, name in _RESOURCES
        ]
    )


def _alter_configs(_state: State) -> Message:
    resource = admin.AlterConfigsRequest.AlterConfigsResource
    return admin.AlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[]) for kind, name in _RESOURCES],
        validate_only=True,
    )


def _alter_configs_incrementally(_state: State) -> Message:
    resource = admin.IncrementalAlterConfigsRequest.AlterConfigsResource
    return admin.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=[]) for kind, name in _RESOURCES],
        validate_only=True,
    )


def _elect(_state: State) -> Message:
    asked = admin.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
    return admin.ElectLeadersRequest(election_type=0, topic_partitions=[asked], timeout_ms=5000)


def _reassign(_state: State) -> Message:
    partition = admin.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=None)
    topic = admin.AlterPartitionReassignmentsRequest.ReassignableTopic(name=TOPIC, partitions=[partition])
    return admin.AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[topic])


def _move_logs(_state: State) -> Message:
    topic = admin.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=MISSING, partitions=[0])
    return admin.AlterReplicaLogDirsRequest(
        dirs=[admin.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere", topics=[topic])]
    )


def _describe_quorum(_state: State) -> Message:
    partition = quorum.DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = quorum.DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return quorum.DescribeQuorumRequest(topics=[topic])


def _describe_acls(_state: State) -> Message:
    return security.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **_NOBODY
    )


def _create_acls(_state: State) -> Message:
    creation = security.CreateAclsRequest.AclCreation(
        resource_type=2, resource_name="", principal="User:nobody", host="*", operation=3, permission_type=3
    )
    return security.CreateAclsRequest(creations=[creation])


def _delete_acls(_state: State) -> Message:
    wanted = security.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **_NOBODY
    )
    return security.DeleteAclsRequest(filters=[wanted])


def _plain(request: Message) -> Callable[[State], Message]:
    return lambda _state: request


_READ_GROUP = (Operation.READ, Kind.GROUP, GROUP)
_READ_TOPIC = (Operation.READ, Kind.TOPIC, TOPIC)
_DESCRIBE_GROUP = (Operation.DESCRIBE, Kind.GROUP, GROUP)
_DESCRIBE_TOPIC = (Operation.DESCRIBE, Kind.TOPIC, TOPIC)
_WRITE_TOPIC = (Operation.WRITE, Kind.TOPIC, TOPIC)
_WRITE_ID = (Operation.WRITE, Kind.TRANSACTIONAL_ID, TRANSACTIONAL_ID)
_DESCRIBE_ID = (Operation.DESCRIBE, Kind.TRANSACTIONAL_ID, TRANSACTIONAL_ID)


def _of_cluster(operation: Operation) -> tuple[tuple[Operation, Kind, str], ...]:
    return ((operation, Kind.CLUSTER, CLUSTER_NAME),)


CASES = (
    Case("Produce", _produce, (3, 12), (_WRITE_TOPIC,)),
    Case("Produce by id", lambda state: _produce(state, by_id=True), (13, 13), (_WRITE_TOPIC,)),
    Case(
        "Produce transactional", lambda state: _produce(state, transactional=True), (9, 12), (_WRITE_TOPIC, _WRITE_ID)
    ),
    Case("Fetch", _fetch, (4, 12), (_READ_TOPIC,)),
    Case("Fetch by id", lambda state: _fetch(state, by_id=True), (13, 17), (_READ_TOPIC,)),
    Case(
        "Fetch as follower", lambda state: _fetch(state, replica_id=1), (11, 12), _of_cluster(Operation.CLUSTER_ACTION)
    ),
    Case("ListOffsets", _list_offsets, (1, 10), (_DESCRIBE_TOPIC,)),
    Case("ListOffsets by READ", _list_offsets, (7, 7), (_READ_TOPIC,)),
    Case("ListOffsets by WRITE", _list_offsets, (7, 7), (_WRITE_TOPIC,)),
    Case("ListOffsets by CREATE", _list_offsets, (7, 7), ((Operation.CREATE, Kind.TOPIC, TOPIC),)),
    Case("OffsetForLeaderEpoch", _epochs, (2, 4), (_DESCRIBE_TOPIC,)),
    Case("OffsetForLeaderEpoch of brokers", _epochs, (4, 4), _of_cluster(Operation.CLUSTER_ACTION)),
    Case("DeleteRecords", _delete_records, (0, 2), ((Operation.DELETE, Kind.TOPIC, TOPIC),)),
    Case("Metadata", _metadata, (1, 13), (_DESCRIBE_TOPIC,)),
    Case("Metadata by cluster", _metadata, (8, 10), _of_cluster(Operation.DESCRIBE)),
    Case("Metadata by id", lambda state: _metadata(state, by_id=True), (12, 13), (_DESCRIBE_TOPIC,)),
    Case("Metadata of all", _metadata_of_all, (1, 13), (_DESCRIBE_TOPIC,)),
    Case("DescribeTopicPartitions", _describe_partitions, (0, 0), (_DESCRIBE_TOPIC,)),
    Case(
        "DescribeTopicPartitions of all",
        lambda state: _describe_partitions(state, names=()),
        (0, 0),
        (_DESCRIBE_TOPIC,),
    ),
    Case("DescribeCluster", _describe_cluster, (0, 2), _of_cluster(Operation.DESCRIBE)),
    Case("DescribeCluster by ALTER", _describe_cluster, (0, 2), _of_cluster(Operation.ALTER)),
    Case("FindCoordinator of a group, old", _find_old, (0, 3), (_DESCRIBE_GROUP,)),
    Case("FindCoordinator of a group", _find, (4, 6), (_DESCRIBE_GROUP,)),
    Case(
        "FindCoordinator of a transaction, old",
        lambda state: _find_old(state, key_type=1, key=TRANSACTIONAL_ID),
        (1, 3),
        (_DESCRIBE_ID,),
    ),
    Case(
        "FindCoordinator of a transaction",
        lambda state: _find(state, key_type=1, key=TRANSACTIONAL_ID),
        (4, 6),
        (_DESCRIBE_ID,),
    ),
    Case("OffsetCommit", _commit, (2, 9), (_READ_GROUP, _READ_TOPIC)),
    Case("OffsetCommit by id", lambda state: _commit(state, by_id=True), (10, 10), (_READ_GROUP, _READ_TOPIC)),
    Case("OffsetFetch, old", _fetch_offsets_old, (1, 7), (_DESCRIBE_GROUP, _DESCRIBE_TOPIC)),
    Case(
        "OffsetFetch of all, old",
        lambda state: _fetch_offsets_old(state, is_all=True),
        (2, 7),
        (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    Case("OffsetFetch", _fetch_offsets, (8, 9), (_DESCRIBE_GROUP, _DESCRIBE_TOPIC)),
    Case(
        "OffsetFetch by id",
        lambda state: _fetch_offsets(state, by_id=True),
        (10, 10),
        (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    Case(
        "OffsetFetch of all",
        lambda state: _fetch_offsets(state, is_all=True),
        (8, 10),
        (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    Case(
        "OffsetDelete",
        _delete_offsets,
        (0, 0),
        ((Operation.DELETE, Kind.GROUP, GROUP), (Operation.READ, Kind.TOPIC, OTHER)),
    ),
    Case(
        "OffsetDelete of no group",
        lambda state: _delete_offsets(state, group="strangers"),
        (0, 0),
        ((Operation.DELETE, Kind.GROUP, "strangers"), (Operation.READ, Kind.TOPIC, OTHER)),
    ),
    Case("JoinGroup", _join, (0, 9), (_READ_GROUP,)),
    Case("SyncGroup", _plain(groups.SyncGroupRequest(group_id=GROUP, member_id="nobody")), (0, 4), (_READ_GROUP,)),
    Case("Heartbeat", _plain(groups.HeartbeatRequest(group_id=GROUP, member_id="nobody")), (0, 4), (_READ_GROUP,)),
    Case("LeaveGroup", _leave, (0, 5), (_READ_GROUP,)),
    Case(
        "ConsumerGroupHeartbeat",
        _consumer_heartbeat,
        (0, 1),
        (_READ_GROUP, _DESCRIBE_TOPIC, (Operation.DESCRIBE, Kind.TOPIC, OTHER)),
    ),
    Case(
        "DescribeGroups",
        _plain(groups.DescribeGroupsRequest(groups=[GROUP, "strangers"], include_authorized_operations=True)),
        (0, 6),
        (_DESCRIBE_GROUP,),
    ),
    Case(
        "ConsumerGroupDescribe",
        _plain(groups.ConsumerGroupDescribeRequest(group_ids=[GROUP, "strangers"], include_authorized_operations=True)),
        (0, 1),
        (_DESCRIBE_GROUP,),
    ),
    Case(
        "DeleteGroups",
        _plain(groups.DeleteGroupsRequest(groups_names=["strangers", "others"])),
        (0, 2),
        ((Operation.DELETE, Kind.GROUP, "strangers"),),
    ),
    Case("TxnOffsetCommit", _txn_commit, (0, 4), (_WRITE_ID, _READ_GROUP, _READ_TOPIC)),
    Case("ListGroups", _plain(groups.ListGroupsRequest()), (0, 5), (_DESCRIBE_GROUP,)),
    Case("ListGroups by cluster", _plain(groups.ListGroupsRequest()), (5, 5), _of_cluster(Operation.DESCRIBE)),
    Case(
        "InitProducerId transactional",
        _plain(transactions.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=1000)),
        (0, 5),
        (_WRITE_ID,),
    ),
    Case(
        "InitProducerId by cluster",
        _plain(transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)),
        (0, 5),
        _of_cluster(Operation.IDEMPOTENT_WRITE),
    ),
    Case(
        "InitProducerId by topic",
        _plain(transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)),
        (4, 4),
        (_WRITE_TOPIC,),
    ),
    Case("AddPartitionsToTxn", _add_partitions, (0, 3), (_WRITE_ID, _WRITE_TOPIC)),
    Case("AddPartitionsToTxn of brokers", _add_partitions_of_brokers, (4, 5), _of_cluster(Operation.CLUSTER_ACTION)),
    Case(
        "AddOffsetsToTxn",
        _plain(
            transactions.AddOffsetsToTxnRequest(
                transactional_id=TRANSACTIONAL_ID, producer_id=9999, producer_epoch=0, group_id=GROUP
            )
        ),
        (0, 4),
        (_WRITE_ID, _READ_GROUP),
    ),
    Case(
        "EndTxn",
        _plain(
            transactions.EndTxnRequest(
                transactional_id=TRANSACTIONAL_ID, producer_id=9999, producer_epoch=0, committed=False
            )
        ),
        (0, 5),
        (_WRITE_ID,),
    ),
    Case("WriteTxnMarkers", _markers, (1, 1), _of_cluster(Operation.CLUSTER_ACTION)),
    Case("WriteTxnMarkers by ALTER", _markers, (1, 1), _of_cluster(Operation.ALTER)),
    Case(
        "DescribeTransactions",
        _plain(transactions.DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID, "strangers"])),
        (0, 0),
        (_DESCRIBE_ID,),
    ),
    Case("ListTransactions", _plain(transactions.ListTransactionsRequest()), (0, 2), (_DESCRIBE_ID,)),
    Case(
        "DescribeProducers",
        _plain(
            transactions.DescribeProducersRequest(
                topics=[
                    transactions.DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0])
                    for name in (TOPIC, OTHER)
                ]
            )
        ),
        (0, 0),
        (_READ_TOPIC,),
    ),
    Case(
        "CreateTopics",
        _create_topics,
        (2, 7),
        ((Operation.CREATE, Kind.TOPIC, MISSING), (Operation.DESCRIBE_CONFIGS, Kind.TOPIC, MISSING)),
    ),
    Case("CreateTopics by cluster", _create_topics, (7, 7), _of_cluster(Operation.CREATE)),
    Case("CreatePartitions", _create_partitions, (0, 3), ((Operation.ALTER, Kind.TOPIC, TOPIC),)),
    Case(
        "DescribeConfigs",
        _describe_configs,
        (1, 4),
        (
            (Operation.DESCRIBE_CONFIGS, Kind.TOPIC, TOPIC),
            (Operation.DESCRIBE_CONFIGS, Kind.CLUSTER, CLUSTER_NAME),
            (Operation.DESCRIBE_CONFIGS, Kind.GROUP, GROUP),
        ),
    ),
    Case(
        "DescribeConfigs by ALTER_CONFIGS", _describe_configs, (4, 4), ((Operation.ALTER_CONFIGS, Kind.TOPIC, TOPIC),)
    ),
    Case(
        "AlterConfigs",
        _alter_configs,
        (0, 2),
        (
            (Operation.ALTER_CONFIGS, Kind.TOPIC, TOPIC),
            (Operation.ALTER_CONFIGS, Kind.CLUSTER, CLUSTER_NAME),
            (Operation.ALTER_CONFIGS, Kind.GROUP, GROUP),
        ),
    ),
    Case(
        "IncrementalAlterConfigs",
        _alter_configs_incrementally,
        (0, 1),
        (
            (Operation.ALTER_CONFIGS, Kind.TOPIC, TOPIC),
            (Operation.ALTER_CONFIGS, Kind.CLUSTER, CLUSTER_NAME),
            (Operation.ALTER_CONFIGS, Kind.GROUP, GROUP),
        ),
    ),
    Case(
        "ListConfigResources",
        _plain(admin.ListConfigResourcesRequest()),
        (0, 1),
        _of_cluster(Operation.DESCRIBE_CONFIGS),
    ),
    Case("AlterReplicaLogDirs", _move_logs, (1, 2), _of_cluster(Operation.ALTER)),
    Case("DescribeLogDirs", _plain(admin.DescribeLogDirsRequest(topics=[])), (1, 4), _of_cluster(Operation.DESCRIBE)),
    Case("DescribeQuorum", _describe_quorum, (0, 2), _of_cluster(Operation.DESCRIBE)),
    Case(
        "ListPartitionReassignments",
        _plain(admin.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=[])),
        (0, 0),
        _of_cluster(Operation.DESCRIBE),
    ),
    Case("ElectLeaders", _elect, (0, 2), _of_cluster(Operation.ALTER)),
    Case("AlterPartitionReassignments", _reassign, (0, 1), _of_cluster(Operation.ALTER)),
    Case("UpdateFeatures", _plain(admin.UpdateFeaturesRequest(timeout_ms=5000)), (0, 1), _of_cluster(Operation.ALTER)),
    Case("UnregisterBroker", _plain(admin.UnregisterBrokerRequest(broker_id=77)), (0, 0), _of_cluster(Operation.ALTER)),
    Case("DescribeAcls", _describe_acls, (1, 3), _of_cluster(Operation.DESCRIBE)),
    Case("CreateAcls", _create_acls, (1, 3), _of_cluster(Operation.ALTER)),
    Case("DeleteAcls", _delete_acls, (1, 3), _of_cluster(Operation.ALTER)),
    # The last: whoever is allowed has deleted something.
    Case("DeleteTopics, old", _delete_topics_old, (1, 5), ((Operation.DESCRIBE, Kind.TOPIC, MISSING),)),
    Case(
        "DeleteTopics",
        _delete_topics,
        (6, 6),
        ((Operation.DESCRIBE, Kind.TOPIC, MISSING), (Operation.DESCRIBE, Kind.TOPIC, OTHER)),
    ),
    Case("DeleteTopics by cluster", _delete_topics, (6, 6), _of_cluster(Operation.DELETE)),
)

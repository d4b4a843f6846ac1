"""What is asked by somebody with few rights, API by API: the request, and what the table of rights says that it needs.

From the needs follow the ACLs with which each request is sent (`variants`): none, each of them alone, all, all with one
of them denied, all as prefixes, as wildcards, for everyone, from one host, and for all operations. Requests are made so
that whoever is allowed changes nothing that a later one would see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tailrace.model.acls import CLUSTER_NAME, Acl, Kind, Operation, PatternType, Permission
from tailrace.wire.apis import admin, groups, transactions
from tailrace.wire.schema import Message
from tests.golden.access import requests
from tests.golden.access.requests import GROUP, MISSING, OTHER, TOPIC, TRANSACTIONAL_ID, State

WHO = "User:alice"
PREFIX_LENGTH = 3


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
    Case("Produce", requests.produce, (3, 12), (_WRITE_TOPIC,)),
    Case("Produce by id", lambda state: requests.produce(state, by_id=True), (13, 13), (_WRITE_TOPIC,)),
    Case(
        "Produce transactional",
        lambda state: requests.produce(state, transactional=True),
        (9, 12),
        (_WRITE_TOPIC, _WRITE_ID),
    ),
    Case("Fetch", requests.fetch, (4, 12), (_READ_TOPIC,)),
    Case("Fetch by id", lambda state: requests.fetch(state, by_id=True), (13, 18), (_READ_TOPIC,)),
    Case(
        "Fetch as follower",
        lambda state: requests.fetch(state, replica_id=1),
        (11, 12),
        _of_cluster(Operation.CLUSTER_ACTION),
    ),
    Case("ListOffsets", requests.list_offsets, (1, 11), (_DESCRIBE_TOPIC,)),
    Case("ListOffsets by READ", requests.list_offsets, (7, 7), (_READ_TOPIC,)),
    Case("ListOffsets by WRITE", requests.list_offsets, (7, 7), (_WRITE_TOPIC,)),
    Case("ListOffsets by CREATE", requests.list_offsets, (7, 7), ((Operation.CREATE, Kind.TOPIC, TOPIC),)),
    Case("OffsetForLeaderEpoch", requests.epochs, (2, 4), (_DESCRIBE_TOPIC,)),
    Case("OffsetForLeaderEpoch of brokers", requests.epochs, (4, 4), _of_cluster(Operation.CLUSTER_ACTION)),
    Case("DeleteRecords", requests.delete_records, (0, 2), ((Operation.DELETE, Kind.TOPIC, TOPIC),)),
    Case("Metadata", requests.metadata, (1, 13), (_DESCRIBE_TOPIC,)),
    Case("Metadata, oldest", requests.metadata, (0, 0), (_DESCRIBE_TOPIC,)),
    Case("Metadata by cluster", requests.metadata, (8, 10), _of_cluster(Operation.DESCRIBE)),
    Case("Metadata by id", lambda state: requests.metadata(state, by_id=True), (12, 13), (_DESCRIBE_TOPIC,)),
    Case("Metadata of all", requests.metadata_of_all, (1, 13), (_DESCRIBE_TOPIC,)),
    Case("DescribeTopicPartitions", requests.describe_partitions, (0, 0), (_DESCRIBE_TOPIC,)),
    Case(
        "DescribeTopicPartitions of all",
        lambda state: requests.describe_partitions(state, names=()),
        (0, 0),
        (_DESCRIBE_TOPIC,),
    ),
    Case("DescribeCluster", requests.describe_cluster, (0, 2), _of_cluster(Operation.DESCRIBE)),
    Case("DescribeCluster by ALTER", requests.describe_cluster, (0, 2), _of_cluster(Operation.ALTER)),
    Case("FindCoordinator of a group, old", requests.find_old, (0, 3), (_DESCRIBE_GROUP,)),
    Case("FindCoordinator of a group", requests.find, (4, 6), (_DESCRIBE_GROUP,)),
    Case(
        "FindCoordinator of a transaction, old",
        lambda state: requests.find_old(state, key_type=1, key=TRANSACTIONAL_ID),
        (1, 3),
        (_DESCRIBE_ID,),
    ),
    Case(
        "FindCoordinator of a transaction",
        lambda state: requests.find(state, key_type=1, key=TRANSACTIONAL_ID),
        (4, 6),
        (_DESCRIBE_ID,),
    ),
    Case("OffsetCommit", requests.commit, (2, 9), (_READ_GROUP, _READ_TOPIC)),
    Case("OffsetCommit by id", lambda state: requests.commit(state, by_id=True), (10, 10), (_READ_GROUP, _READ_TOPIC)),
    Case("OffsetFetch, old", requests.fetch_offsets_old, (1, 7), (_DESCRIBE_GROUP, _DESCRIBE_TOPIC)),
    Case(
        "OffsetFetch of all, old",
        lambda state: requests.fetch_offsets_old(state, is_all=True),
        (2, 7),
        (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    Case("OffsetFetch", requests.fetch_offsets, (8, 9), (_DESCRIBE_GROUP, _DESCRIBE_TOPIC)),
    Case(
        "OffsetFetch by id",
        lambda state: requests.fetch_offsets(state, by_id=True),
        (10, 10),
        (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    Case(
        "OffsetFetch of all",
        lambda state: requests.fetch_offsets(state, is_all=True),
        (8, 10),
        (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    ),
    Case(
        "OffsetDelete",
        requests.delete_offsets,
        (0, 0),
        ((Operation.DELETE, Kind.GROUP, GROUP), (Operation.READ, Kind.TOPIC, OTHER)),
    ),
    Case(
        "OffsetDelete of no group",
        lambda state: requests.delete_offsets(state, group="strangers"),
        (0, 0),
        ((Operation.DELETE, Kind.GROUP, "strangers"), (Operation.READ, Kind.TOPIC, OTHER)),
    ),
    Case("JoinGroup", requests.join, (0, 9), (_READ_GROUP,)),
    Case(
        "SyncGroup",
        requests.plain(
            groups.SyncGroupRequest(group_id=GROUP, member_id="nobody", protocol_type="consumer", protocol_name="range")
        ),
        (0, 5),
        (_READ_GROUP,),
    ),
    Case(
        "Heartbeat", requests.plain(groups.HeartbeatRequest(group_id=GROUP, member_id="nobody")), (0, 4), (_READ_GROUP,)
    ),
    Case("LeaveGroup", requests.leave, (0, 5), (_READ_GROUP,)),
    Case(
        "ConsumerGroupHeartbeat",
        requests.consumer_heartbeat,
        (0, 1),
        (_READ_GROUP, _DESCRIBE_TOPIC, (Operation.DESCRIBE, Kind.TOPIC, OTHER)),
    ),
    Case(
        "DescribeGroups",
        requests.plain(groups.DescribeGroupsRequest(groups=[GROUP, "strangers"], include_authorized_operations=True)),
        (0, 6),
        (_DESCRIBE_GROUP,),
    ),
    Case(
        "ConsumerGroupDescribe",
        requests.plain(
            groups.ConsumerGroupDescribeRequest(group_ids=[GROUP, "strangers"], include_authorized_operations=True)
        ),
        (0, 1),
        (_DESCRIBE_GROUP,),
    ),
    Case(
        "DeleteGroups",
        requests.plain(groups.DeleteGroupsRequest(groups_names=["strangers", "others"])),
        (0, 2),
        ((Operation.DELETE, Kind.GROUP, "strangers"),),
    ),
    Case("TxnOffsetCommit", requests.txn_commit, (0, 5), (_WRITE_ID, _READ_GROUP, _READ_TOPIC)),
    Case("ListGroups", requests.plain(groups.ListGroupsRequest()), (0, 5), (_DESCRIBE_GROUP,)),
    Case("ListGroups by cluster", requests.plain(groups.ListGroupsRequest()), (5, 5), _of_cluster(Operation.DESCRIBE)),
    Case(
        "InitProducerId transactional",
        requests.plain(
            transactions.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=1000)
        ),
        (0, 5),
        (_WRITE_ID,),
    ),
    Case(
        "InitProducerId by cluster",
        requests.plain(transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)),
        (0, 5),
        _of_cluster(Operation.IDEMPOTENT_WRITE),
    ),
    Case(
        "InitProducerId by topic",
        requests.plain(transactions.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)),
        (4, 4),
        (_WRITE_TOPIC,),
    ),
    Case("AddPartitionsToTxn", requests.add_partitions, (0, 3), (_WRITE_ID, _WRITE_TOPIC)),
    Case(
        "AddPartitionsToTxn of brokers",
        requests.add_partitions_of_brokers,
        (4, 5),
        _of_cluster(Operation.CLUSTER_ACTION),
    ),
    Case(
        "AddOffsetsToTxn",
        requests.plain(
            transactions.AddOffsetsToTxnRequest(
                transactional_id=TRANSACTIONAL_ID, producer_id=9999, producer_epoch=0, group_id=GROUP
            )
        ),
        (0, 4),
        (_WRITE_ID, _READ_GROUP),
    ),
    Case(
        "EndTxn",
        requests.plain(
            transactions.EndTxnRequest(
                transactional_id=TRANSACTIONAL_ID, producer_id=9999, producer_epoch=0, committed=False
            )
        ),
        (0, 5),
        (_WRITE_ID,),
    ),
    Case("WriteTxnMarkers", requests.markers, (1, 2), _of_cluster(Operation.CLUSTER_ACTION)),
    Case("WriteTxnMarkers by ALTER", requests.markers, (1, 1), _of_cluster(Operation.ALTER)),
    Case(
        "DescribeTransactions",
        requests.plain(transactions.DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID, "strangers"])),
        (0, 0),
        (_DESCRIBE_ID,),
    ),
    Case("ListTransactions", requests.plain(transactions.ListTransactionsRequest()), (0, 2), (_DESCRIBE_ID,)),
    Case(
        "DescribeProducers",
        requests.plain(
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
        requests.create_topics,
        (2, 7),
        ((Operation.CREATE, Kind.TOPIC, MISSING), (Operation.DESCRIBE_CONFIGS, Kind.TOPIC, MISSING)),
    ),
    Case("CreateTopics by cluster", requests.create_topics, (7, 7), _of_cluster(Operation.CREATE)),
    Case("CreatePartitions", requests.create_partitions, (0, 3), ((Operation.ALTER, Kind.TOPIC, TOPIC),)),
    Case(
        "DescribeConfigs",
        requests.describe_configs,
        (1, 4),
        (
            (Operation.DESCRIBE_CONFIGS, Kind.TOPIC, TOPIC),
            (Operation.DESCRIBE_CONFIGS, Kind.CLUSTER, CLUSTER_NAME),
            (Operation.DESCRIBE_CONFIGS, Kind.GROUP, GROUP),
        ),
    ),
    Case(
        "DescribeConfigs by ALTER_CONFIGS",
        requests.describe_configs,
        (4, 4),
        ((Operation.ALTER_CONFIGS, Kind.TOPIC, TOPIC),),
    ),
    Case(
        "AlterConfigs",
        requests.alter_configs,
        (0, 2),
        (
            (Operation.ALTER_CONFIGS, Kind.TOPIC, TOPIC),
            (Operation.ALTER_CONFIGS, Kind.CLUSTER, CLUSTER_NAME),
            (Operation.ALTER_CONFIGS, Kind.GROUP, GROUP),
        ),
    ),
    Case(
        "IncrementalAlterConfigs",
        requests.alter_configs_incrementally,
        (0, 1),
        (
            (Operation.ALTER_CONFIGS, Kind.TOPIC, TOPIC),
            (Operation.ALTER_CONFIGS, Kind.CLUSTER, CLUSTER_NAME),
            (Operation.ALTER_CONFIGS, Kind.GROUP, GROUP),
        ),
    ),
    Case(
        "ListConfigResources",
        requests.plain(admin.ListConfigResourcesRequest()),
        (0, 1),
        _of_cluster(Operation.DESCRIBE_CONFIGS),
    ),
    Case("AlterReplicaLogDirs", requests.move_logs, (1, 2), _of_cluster(Operation.ALTER)),
    Case(
        "DescribeLogDirs",
        requests.plain(admin.DescribeLogDirsRequest(topics=[])),
        (1, 5),
        _of_cluster(Operation.DESCRIBE),
    ),
    Case("DescribeQuorum", requests.describe_quorum, (0, 2), _of_cluster(Operation.DESCRIBE)),
    Case(
        "ListPartitionReassignments",
        requests.plain(admin.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=[])),
        (0, 0),
        _of_cluster(Operation.DESCRIBE),
    ),
    Case("ElectLeaders", requests.elect, (0, 2), _of_cluster(Operation.ALTER)),
    Case("AlterPartitionReassignments", requests.reassign, (0, 1), _of_cluster(Operation.ALTER)),
    Case(
        "UpdateFeatures",
        requests.plain(admin.UpdateFeaturesRequest(timeout_ms=5000)),
        (0, 2),
        _of_cluster(Operation.ALTER),
    ),
    Case(
        "UnregisterBroker",
        requests.plain(admin.UnregisterBrokerRequest(broker_id=77)),
        (0, 0),
        _of_cluster(Operation.ALTER),
    ),
    Case("AddRaftVoter", requests.plain(requests.ADD_VOTER), (0, 1), _of_cluster(Operation.ALTER)),
    Case("RemoveRaftVoter", requests.plain(requests.REMOVE_VOTER), (0, 0), _of_cluster(Operation.ALTER)),
    Case("DescribeAcls", requests.describe_acls, (1, 3), _of_cluster(Operation.DESCRIBE)),
    Case("CreateAcls", requests.create_acls, (1, 3), _of_cluster(Operation.ALTER)),
    Case("DeleteAcls", requests.delete_acls, (1, 3), _of_cluster(Operation.ALTER)),
    Case("DescribeUserScramCredentials", requests.describe_credentials, (0, 0), _of_cluster(Operation.DESCRIBE)),
    Case("AlterUserScramCredentials", requests.alter_credentials, (0, 0), _of_cluster(Operation.ALTER)),
    Case("DescribeClientQuotas", requests.describe_quotas, (0, 1), _of_cluster(Operation.DESCRIBE_CONFIGS)),
    Case("AlterClientQuotas", requests.alter_quotas, (0, 1), _of_cluster(Operation.ALTER_CONFIGS)),
    # The last: whoever is allowed has deleted something.
    Case("DeleteTopics, old", requests.delete_topics_old, (1, 5), ((Operation.DESCRIBE, Kind.TOPIC, MISSING),)),
    Case(
        "DeleteTopics",
        requests.delete_topics,
        (6, 6),
        ((Operation.DESCRIBE, Kind.TOPIC, MISSING), (Operation.DESCRIBE, Kind.TOPIC, OTHER)),
    ),
    Case("DeleteTopics by cluster", requests.delete_topics, (6, 6), _of_cluster(Operation.DELETE)),
)

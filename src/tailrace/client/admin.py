"""The admin client: topics, partitions and their settings, brokers and the metadata quorum.

Each call raises KafkaError with the broker's own message if the broker refuses. Changes are sent to any broker, which
takes them to the controller; they are not repeated by themselves, since a change whose answer was lost may have been
made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from tailrace.client.connection import Connection, error_code
from tailrace.client.metadata import Cluster, TopicMetadata
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, NodeId, PartitionIndex, TopicPartition
from tailrace.wire.apis.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.wire.apis.data import DeleteRecordsRequest, DeleteRecordsResponse
from tailrace.wire.apis.quorum import DescribeQuorumRequest, DescribeQuorumResponse

T = TypeVar("T")

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_GROUP = 32
_OPERATION_SET = 0
_OPERATION_DELETE = 1
_ELECTION_PREFERRED = 0
_ELECTION_UNCLEAN = 1
# Left to the broker's num.partitions and default.replication.factor (KIP-464).
BROKER_DEFAULT = -1

# ConfigSource of DescribeConfigs, in words.
CONFIG_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "broker's file",
    5: "default",
    6: "broker's logger",
    7: "client metrics",
    8: "group",
}
SOURCE_TOPIC = 1
SOURCE_BROKER = 2
SOURCE_DEFAULT = 5


class CreatedTopic(NamedTuple):
    """Numbers are -1 if the broker is too old to tell."""

    name: str
    id: bytes
    partition_count: int
    replication_factor: int


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    name: str
    value: str | None  # None if it is sensitive
    source: int
    is_read_only: bool
    is_sensitive: bool = False
    # Where else it is set, the one that counts first; only if they are asked for.
    synonyms: tuple[ConfigSynonym, ...] = ()


class BrokerEntry(NamedTuple):
    """A broker as DescribeCluster has it. A fenced one is registered, and does not serve now."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class QuorumReplica(NamedTuple):
    """A voter or observer of the metadata quorum, as its leader sees it."""

    node_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int  # -1 if the leader does not tell, as of itself
    last_caught_up_ms: int


class QuorumDescription(NamedTuple):
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    addresses: dict[int, tuple[str, int]]  # the voters' addresses, by node id


class Reassignment(NamedTuple):
    """A partition on its way to other replicas."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(node for node in self.replicas if node not in self.removing)


class Admin:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def topics(self) -> list[TopicMetadata]:
        """All of them, by name."""
        return [topic for _, topic in sorted((await self.cluster.refresh(None)).items())]

    async def describe_topics(self, names: Sequence[str]) -> list[TopicMetadata]:
        found = await self.cluster.refresh(names)
        return [found[name] for name in names]

    async def eligible_leaders(self, names: Sequence[str]) -> dict[TopicPartition, tuple[int, ...]]:
        """For each partition of these topics: the brokers outside of the in-sync set that have everything that was
        confirmed (KIP-966), or else the last leader. Empty where brokers do not tell."""
        found: dict[TopicPartition, tuple[int, ...]] = {}
        topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
        cursor: DescribeTopicPartitionsRequest.Cursor | None = None
        connection = await self.cluster.any_connection() if topics else None
        while connection is not None:
            request = DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)
            try:
                response = await connection.call(request, DescribeTopicPartitionsResponse)
            except KafkaError as error:
                if error.code is ErrorCode.UNSUPPORTED_VERSION:
                    break
                raise
            for topic in response.topics:
                for each in topic.partitions:
                    nodes = each.eligible_leader_replicas or each.last_known_elr or ()
                    found[TopicPartition(topic.name or "", PartitionIndex(each.partition_index))] = tuple(nodes)
            if response.next_cursor is None:
                break
            cursor = DescribeTopicPartitionsRequest.Cursor(
                topic_name=response.next_cursor.topic_name, partition_index=response.next_cursor.partition_index
            )
        return found

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        assignments: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in (assignments or {}).items()
            ],
            configs=[
                CreateTopicsRequest.CreatableTopicConfig(name=setting, value=value)
                for setting, value in (configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
        connection = await self.cluster.any_connection()
        result = _only((await connection.call(request, CreateTopicsResponse)).topics)
        _check(result.error_code, result.error_message, f"topic {name} was not created")
        return CreatedTopic(name, result.topic_id, result.num_partitions, result.replication_factor)

    async def delete_topic(self, name: str) -> None:
        connection = await self.cluster.any_connection()
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )
        result = _only((await connection.call(request, DeleteTopicsResponse)).responses)
        _check(result.error_code, result.error_message, f"topic {name} was not deleted")
        self.cluster.forget(name)

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets, for good (KIP-107). What was deleted before stays so."""
        by_leader: dict[NodeId, dict[str, list[DeleteRecordsRequest.DeleteRecordsPartition]]] = {}
        for partition, offset in sorted(offsets.items()):
            leader = await self.cluster.leader_of(partition)
            by_leader.setdefault(leader.leader_id, {}).setdefault(partition.topic, []).append(
                DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            )
        for node_id, topics in by_leader.items():
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=asked)
                    for name, asked in topics.items()
                ],
                timeout_ms=self._timeout_ms,
            )
            answer = await (await self.cluster.connection_to(node_id)).call(request, DeleteRecordsResponse)
            for topic in answer.topics:
                for result in topic.partitions:
                    failure = f"records of {topic.name}-{result.partition_index} were not deleted"
                    _check(result.error_code, None, failure)

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """`count` is how many there are to be in all."""
        connection = await self.cluster.any_connection()
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        result = _only((await connection.call(request, CreatePartitionsResponse)).results)
        _check(result.error_code, result.error_message, f"topic {name} did not get {count} partitions")
        self.cluster.forget(name)

    async def configs_of(self, resource_type: int, name: str, *, with_synonyms: bool = False) -> list[ConfigEntry]:
        connection = await self._connection_for(resource_type, name)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=resource_type, resource_name=name, configuration_keys=None
                )
            ],
            include_synonyms=with_synonyms,
        )
        result = _only((await connection.call(request, DescribeConfigsResponse)).results)
        _check(result.error_code, result.error_message, f"the settings of {name} are not told")
        return [
            ConfigEntry(
                entry.name,
                entry.value,
                entry.config_source,
                entry.read_only,
                entry.is_sensitive,
                tuple(ConfigSynonym(each.name, each.value, each.source) for each in entry.synonyms),
            )
            for entry in sorted(result.configs, key=lambda entry: entry.name)
        ]

    async def alter_configs(
        self,
        resource_type: int,
        name: str,
        *,
        changes: Mapping[str, str],
        removals: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Removed settings go back to their defaults; those not mentioned stay (KIP-339)."""
        configs = [
            IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=_OPERATION_SET, value=value)
            for setting, value in changes.items()
        ] + [
            IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=_OPERATION_DELETE, value=None)
            for setting in removals
        ]
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=resource_type, resource_name=name, configs=configs
                )
            ],
            validate_only=validate_only,
        )
        connection = await self._connection_for(resource_type, name)
        result = _only((await connection.call(request, IncrementalAlterConfigsResponse)).responses)
        _check(result.error_code, result.error_message, f"the settings of {name} were not changed")

    async def _connection_for(self, resource_type: int, name: str) -> Connection:
        """A broker of Apache Kafka tells and takes the settings of no other. Of one that is away, any is asked."""
        if resource_type == RESOURCE_BROKER and name.isdecimal():
            if not self.cluster.brokers:
                await self.cluster.refresh([])
            if NodeId(int(name)) in self.cluster.brokers:
                return await self.cluster.connection_to(NodeId(int(name)))
        return await self.cluster.any_connection()

    async def brokers(self) -> list[BrokerEntry]:
        """All that are registered, by id, fenced ones too."""
        connection = await self.cluster.any_connection()
        answer = await connection.call(DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse)
        _check(answer.error_code, answer.error_message, "the cluster is not described")
        self.cluster.cluster_id = answer.cluster_id
        entries = [
            BrokerEntry(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
            for broker in answer.brokers
        ]
        return sorted(entries)

    async def describe_quorum(self) -> QuorumDescription:
        connection = await self.cluster.any_connection()
        wanted = DescribeQuorumRequest.TopicData(
            topic_name=CLUSTER_METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
        )
        answer = await connection.call(DescribeQuorumRequest(topics=[wanted]), DescribeQuorumResponse)
        failure = "the metadata quorum is not described"
        _check(answer.error_code, answer.error_message, failure)
        found = _only(_only(answer.topics).partitions)
        _check(found.error_code, found.error_message, failure)
        return QuorumDescription(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            tuple(map(_quorum_replica, found.current_voters)),
            tuple(map(_quorum_replica, found.observers)),
            {node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in answer.nodes if node.listeners},
        )

    async def reassign_partitions(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """As `begin_moves`, but raises the first refusal."""
        for error in (await self.begin_moves(targets)).values():
            raise error

    async def begin_moves(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """Begins to move partitions to these replicas; None cancels a move. Gives those that were refused, and why: the
        others are on their way."""
        topics: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for (topic, index), replicas in targets.items():
            partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
                partition_index=index, replicas=None if replicas is None else list(replicas)
            )
            topics.setdefault(topic, []).append(partition)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        connection = await self.cluster.any_connection()
        answer = await connection.call(request, AlterPartitionReassignmentsResponse)
        _check(answer.error_code, answer.error_message, "no partition is moved")
        return {
            TopicPartition(found.name, PartitionIndex(result.partition_index)): KafkaError(
                error_code(result.error_code),
                f"{found.name}-{result.partition_index} is not moved: {result.error_message or ''}".removesuffix(": "),
            )
            for found in answer.responses
            for result in found.partitions
            if result.error_code
        }

    async def reassignments(self) -> dict[TopicPartition, Reassignment]:
        """The partitions on their way to other replicas."""
        connection = await self.cluster.any_connection()
        request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=None)
        answer = await connection.call(request, ListPartitionReassignmentsResponse)
        _check(answer.error_code, answer.error_message, "the moves of partitions are not listed")
        return {
            TopicPartition(topic.name, PartitionIndex(found.partition_index)): Reassignment(
                tuple(found.replicas), tuple(found.adding_replicas), tuple(found.removing_replicas)
            )
            for topic in answer.topics
            for found in topic.partitions
        }

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ErrorCode]:
        """Lets the preferred replicas lead; `unclean` lets any live one lead a partition without a leader, losing
        records. None is all partitions. Tells what became of each; ELECTION_NOT_NEEDED is no failure."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions or ():
            topics.setdefault(topic, []).append(index)
        chosen = [
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in topics.items()
        ]
        request = ElectLeadersRequest(
            election_type=_ELECTION_UNCLEAN if unclean else _ELECTION_PREFERRED,
            topic_partitions=None if partitions is None else chosen,
            timeout_ms=self._timeout_ms,
        )
        connection = await self.cluster.any_connection()
        answer = await connection.call(request, ElectLeadersResponse)
        _check(answer.error_code, None, "no leaders were elected")
        return {
            TopicPartition(topic.topic, PartitionIndex(result.partition_id)): error_code(result.error_code)
            for topic in answer.replica_election_results
            for result in topic.partition_result
        }

    async def unregister_broker(self, node_id: int) -> None:
        """For a broker that has stopped for good: the cluster forgets it."""
        connection = await self.cluster.any_connection()
        answer = await connection.call(UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse)
        _check(answer.error_code, answer.error_message, f"broker {node_id} is still registered")

    @property
    def _timeout_ms(self) -> int:
        return self.cluster.limits.request_timeout_ms


def _quorum_replica(state: DescribeQuorumResponse.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )


def _only(results: Sequence[T]) -> T:
    if len(results) != 1:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker gave {len(results)} answers to one question")
    return results[0]


def _check(number: int, message: str | None, failure: str) -> None:
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise KafkaError(code, f"{failure}: {message}" if message else failure)

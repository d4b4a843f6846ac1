"""The metadata of a cluster that was recovered, as the snapshot that its first node starts from.

Topics keep their ids, and every partition has its leader and its only replica in sync on that node; other replicas
follow it once their brokers are there. The node is registered as one that has stopped cleanly. Its folder has the proof
of that, so that its start takes nothing from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.broker.coordinators.topics import creatable_topic
from tailrace.broker.quorum.snapshots import SnapshotFiles, SnapshotId, encode_snapshot
from tailrace.broker.quorum.state_file import write_quorum_state
from tailrace.broker.tier.topic.creation import metadata_topic
from tailrace.controller.features import (
    KRAFT_VERSION,
    KRAFT_VERSION_LEVEL,
    SUPPORTED_FEATURES,
    bootstrap_records,
    broker_features,
)
from tailrace.controller.image import UNASSIGNED_DIRECTORY, ResourceType
from tailrace.model.ids import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, PartitionIndex, Uuid
from tailrace.raft.messages import QuorumState
from tailrace.tier.format.names import TieredPartition
from tailrace.tier.recovery.plan import PartitionPlan, TopicPlan
from tailrace.wire.apis.stored_records import (
    ConfigRecord,
    KRaftVersionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    VotersRecord,
)

if TYPE_CHECKING:
    from tailrace.model.config import BrokerConfig, Endpoint
    from tailrace.model.ports import Disk, Random
    from tailrace.tier.format.marker import Claim
    from tailrace.wire.apis.admin import CreateTopicsRequest
    from tailrace.wire.schema import Message

RECOVERY_SETTING = "remote.log.storage.recovery"
# As if the node had been registered by the second record of the log.
BROKER_EPOCH = 1
_QUORUM_EPOCH = 1


@dataclass(frozen=True, slots=True)
class FirstNode:
    """Where all of it lies at first."""

    node_id: int
    directory_ids: Sequence[Uuid]  # Of its data folders; the first has the logs.
    metadata_directory_id: Uuid
    replicas: Sequence[int]  # Nodes that are to have all partitions, this one among them.
    controller: Endpoint | None  # Where others find it to join its quorum; None for one that is told of nobody.


def internal_topics(config: BrokerConfig, random: Random) -> list[TopicPlan]:
    """Those that hold what was known of groups and of the store, with new ids."""
    return [
        _plan(metadata_topic(config, brokers=1), random),
        _plan(creatable_topic(config, CONSUMER_OFFSETS_TOPIC), random),
    ]


def _plan(wanted: CreateTopicsRequest.CreatableTopic, random: Random) -> TopicPlan:
    topic_id = Uuid(random.uuid())
    partitions = [
        PartitionPlan(wanted.name, TieredPartition(topic_id, PartitionIndex(index)), leader_epoch=0)
        for index in range(wanted.num_partitions)
    ]
    settings = {each.name: each.value or "" for each in wanted.configs}
    return TopicPlan(wanted.name, topic_id, settings, partitions)


def store_metadata(
    disk: Disk,
    metadata_folder: str,
    config: BrokerConfig,
    node: FirstNode,
    *,
    topics: Sequence[TopicPlan],
    claim: Claim,
    next_producer_id: int,
    incarnation_id: Uuid,
    timestamp_ms: int,
) -> None:
    """Blocks. StorageError."""
    folder = f"{metadata_folder}/{CLUSTER_METADATA_TOPIC}-0"
    disk.make_folder(folder)
    records = [
        *bootstrap_records(config),
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=RECOVERY_SETTING, value=str(claim)),
        _registration(config, node, incarnation_id),
        *_topic_records(node, topics),
        ProducerIdsRecord(broker_id=-1, next_producer_id=next_producer_id),
    ]
    part = SnapshotFiles(disk, folder, ()).begin(SnapshotId(len(records), _QUORUM_EPOCH))
    for piece in encode_snapshot(part.id, [records], control=_voters(node), timestamp_ms=timestamp_ms):
        part.append(piece)
    part.store()
    write_quorum_state(disk, folder, QuorumState(_QUORUM_EPOCH))


def _voters(node: FirstNode) -> list[Message]:
    if node.controller is None:
        return []
    lowest, highest = SUPPORTED_FEATURES[KRAFT_VERSION]
    name, host, port = node.controller
    voter = VotersRecord.Voter(
        voter_id=node.node_id,
        voter_directory_id=node.metadata_directory_id,
        endpoints=[VotersRecord.Endpoint(name=name, host=host, port=port)],
        kraft_version_feature=VotersRecord.KRaftVersionFeature(
            min_supported_version=lowest, max_supported_version=highest
        ),
    )
    return [KRaftVersionRecord(kraft_version=KRAFT_VERSION_LEVEL), VotersRecord(voters=[voter])]


def _registration(config: BrokerConfig, node: FirstNode, incarnation_id: Uuid) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node.node_id,
        incarnation_id=incarnation_id,
        broker_epoch=BROKER_EPOCH,
        features=[
            RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker_features(config)
        ],
        rack=config.broker_rack,
        fenced=True,
        log_dirs=list(node.directory_ids),
    )


def _topic_records(node: FirstNode, topics: Sequence[TopicPlan]) -> Iterator[Message]:
    for topic in topics:
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        yield from (_partition_record(node, number, each) for number, each in enumerate(topic.partitions))
        yield from _settings(topic.name, topic.settings)


def _partition_record(node: FirstNode, number: int, partition: PartitionPlan) -> PartitionRecord:
    first = number % len(node.replicas)  # The one that is to lead.
    replicas = [*node.replicas[first:], *node.replicas[:first]]
    return PartitionRecord(
        partition_id=partition.owner.partition,
        topic_id=partition.owner.topic_id,
        replicas=replicas,
        isr=[node.node_id],
        leader=node.node_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=0,
        directories=[node.directory_ids[0] if each == node.node_id else UNASSIGNED_DIRECTORY for each in replicas],
    )


def _settings(topic: str, settings: Mapping[str, str]) -> Iterator[ConfigRecord]:
    for name, value in sorted(settings.items()):
        yield ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=value)

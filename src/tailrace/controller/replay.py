"""Metadata records, one after the other, into an image. The only code that changes the cluster's metadata.

A record was valid when it was decided and is on the log: replaying never refuses it. One that cannot apply means that
the log or this code is wrong; the assert stops the broker, for wrong metadata loses data.
Records of features that this version does not have change nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from tailrace.controller.image import (
    BrokerImage,
    ClosedTopic,
    ControllerImage,
    DelegationToken,
    MetadataImage,
    MirrorLink,
    MirrorState,
    MirrorTopic,
    PartitionImage,
    ResourceType,
    ScramCredential,
    TopicImage,
)
from tailrace.controller.names import collision_key
from tailrace.model.acls import Acl, Kind, Operation, PatternType, Permission
from tailrace.model.config import Endpoint
from tailrace.model.ids import NodeId, Uuid
from tailrace.model.quotas import quota_entity
from tailrace.model.security import Principal
from tailrace.wire.apis import stored_records
from tailrace.wire.schema import Message

_LEADER_UNCHANGED = -2
_RECOVERY_STATE_UNCHANGED = -1


def change_partition(old: PartitionImage, record: stored_records.PartitionChangeRecord) -> PartitionImage:
    """What a change makes of a partition. Setting the leader starts an epoch, even if it stays the same."""
    changes: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
    if record.leader != _LEADER_UNCHANGED:
        changes |= {"leader": NodeId(record.leader), "leader_epoch": old.leader_epoch + 1}
    if record.leader_recovery_state != _RECOVERY_STATE_UNCHANGED:
        changes["leader_recovery_state"] = record.leader_recovery_state
    for name in _CHANGED_LISTS:
        if (value := getattr(record, name)) is not None:
            changes[name] = tuple(value)
    return old._replace(**changes)


def controller_image(record: stored_records.RegisterControllerRecord) -> ControllerImage:
    return ControllerImage(
        node_id=NodeId(record.controller_id),
        incarnation_id=Uuid(record.incarnation_id),
        endpoints=tuple(Endpoint(end.name, end.host, end.port) for end in record.end_points),
        features={each.name: (each.min_supported_version, each.max_supported_version) for each in record.features},
    )


_CHANGED_LISTS = (
    "isr",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)


class Replay:
    """Builds the next image from one and the records after it. Maps are copied when they first change, so a start
    that replays thousands of records copies each once."""

    def __init__(self, image: MetadataImage) -> None:
        self._base = image
        self._parts: dict[str, Any] = {}
        # Topics whose map of partitions is a copy made here, and so may be changed.
        self._own_partitions: dict[str, dict[int, PartitionImage]] = {}
        self._own_configs: set[tuple[int, str]] = set()
        # The same for the two inner levels of partitions_by_broker.
        self._own_brokers: dict[int, dict[str, set[int]]] = {}
        self._own_indexes: dict[tuple[int, str], set[int]] = {}

    def replay_record(self, offset: int, record: Message) -> None:
        assert offset >= self._part("next_offset"), "a metadata record was replayed twice"
        apply = self._HANDLERS.get(type(record))
        if apply is not None:
            apply(self, record)
        self.replay_control(offset + 1)

    def replay_control(self, next_offset: int) -> None:
        """A control batch changes no metadata but takes offsets."""
        self._parts["next_offset"] = next_offset

    def image(self) -> MetadataImage:
        """The image so far. Further records go on from it, on new copies."""
        if self._parts:
            parts = {name: self._part(name) for name in MetadataImage.__slots__ if name != "cluster_id"}
            self._base = MetadataImage(self._base.cluster_id, **parts)
            self._parts.clear()
            self._own_partitions.clear()
            self._own_configs.clear()
            self._own_brokers.clear()
            self._own_indexes.clear()
        return self._base

    def _part(self, name: str) -> Any:
        return self._parts[name] if name in self._parts else getattr(self._base, name)

    def _own(self, name: str) -> dict[Any, Any]:
        """A map of the image as a copy that may be changed."""
        owned = self._parts.get(name)
        if owned is None:
            owned = self._parts[name] = dict(getattr(self._base, name))
        return owned

    def _own_topic(self, topic_id: bytes) -> dict[int, PartitionImage]:
        """The partitions of a topic as a copy that may be changed."""
        name = self._part("topic_names")[topic_id]
        partitions = self._own_partitions.get(name)
        if partitions is None:
            topics = self._own("topics")
            topic: TopicImage = topics[name]
            partitions = self._own_partitions[name] = dict(topic.partitions)
            topics[name] = topic._replace(partitions=partitions)
        return partitions

    def _replay_topic(self, record: stored_records.TopicRecord) -> None:
        topics = self._own("topics")
        assert record.name not in topics, f"topic {record.name} was created twice"
        partitions = self._own_partitions[record.name] = {}
        topics[record.name] = TopicImage(record.name, Uuid(record.topic_id), partitions)
        self._own("topic_names")[record.topic_id] = record.name
        key = collision_key(record.name)
        if key is not None:
            self._own("collisions")[key] = record.name

    def _replay_remove_topic(self, record: stored_records.RemoveTopicRecord) -> None:
        name = self._own("topic_names").pop(record.topic_id)
        topic: TopicImage = self._own("topics").pop(name)
        self._own_partitions.pop(name, None)
        for node in {node: None for partition in topic.partitions.values() for node in partition.replicas}:
            self._drop_index(node, name)
        self._parts["partition_count"] = self._part("partition_count") - len(topic.partitions)
        self._own("collisions").pop(collision_key(name), None)
        if (ResourceType.TOPIC, name) in self._part("configs"):
            del self._own("configs")[ResourceType.TOPIC, name]
            self._own_configs.discard((ResourceType.TOPIC, name))

    def _replay_partition(self, record: stored_records.PartitionRecord) -> None:
        partitions = self._own_topic(record.topic_id)
        old = partitions.get(record.partition_id)
        if old is None:
            self._parts["partition_count"] = self._part("partition_count") + 1
        new = partitions[record.partition_id] = PartitionImage(
            replicas=_nodes(record.replicas),
            isr=_nodes(record.isr),
            leader=NodeId(record.leader),
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(map(Uuid, record.directories)),
            adding_replicas=_nodes(record.adding_replicas),
            removing_replicas=_nodes(record.removing_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=_nodes(record.eligible_leader_replicas or ()),
            last_known_elr=_nodes(record.last_known_elr or ()),
        )
        self._index(record.topic_id, record.partition_id, () if old is None else old.replicas, new.replicas)

    def _replay_partition_change(self, record: stored_records.PartitionChangeRecord) -> None:
        partitions = self._own_topic(record.topic_id)
        old = partitions[record.partition_id]
        new = partitions[record.partition_id] = change_partition(old, record)
        self._index(record.topic_id, record.partition_id, old.replicas, new.replicas)

    def _replay_clear_elr(self, record: stored_records.ClearElrRecord) -> None:
        """Clears those of one topic, or without a name those of all."""
        names = [record.topic_name] if record.topic_name else list(self._part("topics"))
        for name in names:
            topic: TopicImage = self._part("topics")[name]
            for index, partition in list(topic.partitions.items()):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    change = stored_records.PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                    self._own_topic(topic.id)[index] = change_partition(partition, change)

    def _index(self, topic_id: bytes, partition: int, old: Sequence[NodeId], new: Sequence[NodeId]) -> None:
        """Keeps partitions_by_broker in step with a partition's replicas."""
        if old is new or old == new:
            return
        topic = self._part("topic_names")[topic_id]
        for node in new:
            if node not in old:
                self._own_index(node, topic).add(partition)
        for node in old:
            if node not in new:
                indexes = self._own_index(node, topic)
                indexes.discard(partition)
                if not indexes:
                    self._drop_index(node, topic)

    def _own_index(self, node: int, topic: str) -> set[int]:
        """The partitions of a topic that a broker has, as a copy that may be changed."""
        indexes = self._own_indexes.get((node, topic))
        if indexes is None:
            topics = self._own_broker_topics(node)
            indexes = self._own_indexes[node, topic] = topics[topic] = set(topics.get(topic, ()))
        return indexes

    def _own_broker_topics(self, node: int) -> dict[str, set[int]]:
        topics = self._own_brokers.get(node)
        if topics is None:
            brokers = self._own("partitions_by_broker")
            topics = self._own_brokers[node] = brokers[node] = dict(brokers.get(node, {}))
        return topics

    def _drop_index(self, node: int, topic: str) -> None:
        topics = self._own_broker_topics(node)
        del topics[topic]
        self._own_indexes.pop((node, topic), None)
        if not topics:
            del self._own("partitions_by_broker")[node]
            del self._own_brokers[node]

    def _replay_config(self, record: stored_records.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._own("configs")
        if resource not in self._own_configs:
            configs[resource] = dict(configs.get(resource, {}))
            self._own_configs.add(resource)
        values = configs[resource]
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del configs[resource]
            self._own_configs.discard(resource)

    def _replay_register_broker(self, record: stored_records.RegisterBrokerRecord) -> None:
        self._own("brokers")[record.broker_id] = BrokerImage(
            node_id=NodeId(record.broker_id),
            epoch=record.broker_epoch,
            incarnation_id=Uuid(record.incarnation_id),
            endpoints=tuple(Endpoint(end.name, end.host, end.port) for end in record.end_points),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(map(Uuid, record.log_dirs)),
            features={each.name: (each.min_supported_version, each.max_supported_version) for each in record.features},
        )

    def _replay_broker_change(self, record: stored_records.BrokerRegistrationChangeRecord) -> None:
        old: BrokerImage = self._own("brokers")[record.broker_id]
        assert old.epoch == record.broker_epoch, "a change of another incarnation of the broker"
        # 1 sets, -1 clears, 0 leaves as it is (KIP-841).
        fenced = old.fenced if record.fenced == 0 else record.fenced == 1
        stopping = old.in_controlled_shutdown if record.in_controlled_shutdown == 0 else True
        log_dirs = tuple(map(Uuid, record.log_dirs)) or old.log_dirs
        self._own("brokers")[record.broker_id] = old._replace(
            fenced=fenced, in_controlled_shutdown=stopping, log_dirs=log_dirs
        )

    def _replay_unregister_broker(self, record: stored_records.UnregisterBrokerRecord) -> None:
        del self._own("brokers")[record.broker_id]

    def _replay_register_controller(self, record: stored_records.RegisterControllerRecord) -> None:
        self._own("controllers")[record.controller_id] = controller_image(record)

    def _replay_feature(self, record: stored_records.FeatureLevelRecord) -> None:
        features = self._own("features")
        if record.feature_level == 0:
            features.pop(record.name, None)
        else:
            features[record.name] = record.feature_level

    def _replay_producer_ids(self, record: stored_records.ProducerIdsRecord) -> None:
        assert record.next_producer_id > self._part("next_producer_id"), "producer ids were given out twice"
        self._parts["next_producer_id"] = record.next_producer_id

    def _replay_acl(self, record: stored_records.AccessControlEntryRecord) -> None:
        acl, acl_id = _acl(record), Uuid(record.id)
        acls, ids = self._own("acls"), self._own("acl_ids")
        assert acl not in ids, "an ACL was created twice"
        acls[acl_id], ids[acl] = acl, acl_id

    def _replay_remove_acl(self, record: stored_records.RemoveAccessControlEntryRecord) -> None:
        acl = self._own("acls").pop(record.id)
        del self._own("acl_ids")[acl]

    def _replay_client_quota(self, record: stored_records.ClientQuotaRecord) -> None:
        entity = quota_entity((part.entity_type, part.entity_name) for part in record.entity)
        quotas = self._own("client_quotas")
        values = {key: value for key, value in quotas.get(entity, {}).items() if key != record.key}
        if not record.remove:
            values[record.key] = record.value
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)

    def _replay_scram_credential(self, record: stored_records.UserScramCredentialRecord) -> None:
        self._own("scram_credentials")[record.name, record.mechanism] = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )

    def _replay_remove_scram_credential(self, record: stored_records.RemoveUserScramCredentialRecord) -> None:
        del self._own("scram_credentials")[record.name, record.mechanism]

    def _replay_delegation_token(self, record: stored_records.DelegationTokenRecord) -> None:
        """A new one, or one that was renewed."""
        self._own("delegation_tokens")[record.token_id] = DelegationToken(
            record.token_id,
            _principal(record.owner),
            _principal(record.requester),
            tuple(map(_principal, record.renewers)),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def _replay_remove_delegation_token(self, record: stored_records.RemoveDelegationTokenRecord) -> None:
        del self._own("delegation_tokens")[record.token_id]

    def _replay_mirror_link(self, record: stored_records.MirrorLinkRecord) -> None:
        link_id = Uuid(record.link_id)
        settings = {setting.name: setting.value for setting in record.settings}
        self._own("mirror_links")[link_id] = MirrorLink(
            link_id, record.name, record.source_cluster_id, record.is_paused, settings
        )

    def _replay_remove_mirror_link(self, record: stored_records.RemoveMirrorLinkRecord) -> None:
        del self._own("mirror_links")[record.link_id]

    def _replay_mirror_topic(self, record: stored_records.MirrorTopicRecord) -> None:
        topics, name = self._own("topics"), self._part("topic_names")[record.topic_id]
        mirror = MirrorTopic(
            Uuid(record.link_id),
            record.source_topic,
            Uuid(record.source_topic_id),
            MirrorState(record.state),
            record.opening_epoch,
            Uuid(record.handover_id),
            tuple(record.origins),
        )
        topics[name] = topics[name]._replace(mirror=mirror)

    def _replay_closed_topic(self, record: stored_records.ClosedTopicRecord) -> None:
        topics, name = self._own("topics"), self._part("topic_names")[record.topic_id]
        closed = ClosedTopic(record.cluster_id, Uuid(record.handover_id)) if record.cluster_id else None
        topics[name] = topics[name]._replace(closed=closed)

    _HANDLERS: ClassVar[dict[type[Message], Callable[[Any, Any], None]]] = {
        stored_records.TopicRecord: _replay_topic,
        stored_records.RemoveTopicRecord: _replay_remove_topic,
        stored_records.PartitionRecord: _replay_partition,
        stored_records.PartitionChangeRecord: _replay_partition_change,
        stored_records.ConfigRecord: _replay_config,
        stored_records.RegisterBrokerRecord: _replay_register_broker,
        stored_records.BrokerRegistrationChangeRecord: _replay_broker_change,
        stored_records.UnregisterBrokerRecord: _replay_unregister_broker,
        stored_records.RegisterControllerRecord: _replay_register_controller,
        stored_records.ClearElrRecord: _replay_clear_elr,
        stored_records.FeatureLevelRecord: _replay_feature,
        stored_records.ProducerIdsRecord: _replay_producer_ids,
        stored_records.AccessControlEntryRecord: _replay_acl,
        stored_records.RemoveAccessControlEntryRecord: _replay_remove_acl,
        stored_records.ClientQuotaRecord: _replay_client_quota,
        stored_records.UserScramCredentialRecord: _replay_scram_credential,
        stored_records.RemoveUserScramCredentialRecord: _replay_remove_scram_credential,
        stored_records.DelegationTokenRecord: _replay_delegation_token,
        stored_records.RemoveDelegationTokenRecord: _replay_remove_delegation_token,
        stored_records.MirrorLinkRecord: _replay_mirror_link,
        stored_records.RemoveMirrorLinkRecord: _replay_remove_mirror_link,
        stored_records.MirrorTopicRecord: _replay_mirror_topic,
        stored_records.ClosedTopicRecord: _replay_closed_topic,
    }


def _acl(record: stored_records.AccessControlEntryRecord) -> Acl:
    return Acl(
        Kind(record.resource_type),
        record.resource_name,
        PatternType(record.pattern_type),
        record.principal,
        record.host,
        Operation(record.operation),
        Permission(record.permission_type),
    )


def _principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def _nodes(numbers: Sequence[int]) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))

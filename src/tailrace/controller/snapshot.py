"""An image as records: what a snapshot of the metadata log holds.

Replaying them into an empty image gives an equal one, once the offset that the snapshot stands for is set as well.
They come in small groups, so that whoever writes them can pause between two; a group is not a unit of anything.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from tailrace.controller.image import (
    METADATA_VERSION,
    BrokerImage,
    ClosedTopic,
    ControllerImage,
    DelegationToken,
    MetadataImage,
    MirrorLink,
    MirrorTopic,
    PartitionImage,
)
from tailrace.controller.security.limits import quota_record
from tailrace.model.acls import Acl
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.wire.apis import stored_records
from tailrace.wire.schema import Message

# About a millisecond's worth.
GROUP_SIZE = 250


def records_of(image: MetadataImage) -> Iterator[Sequence[Message]]:
    records = _records(image)
    while group := list(islice(records, GROUP_SIZE)):
        yield group


def _records(image: MetadataImage) -> Iterator[Message]:
    # The version comes first: a reader has to know how to read what follows.
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield stored_records.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for _, broker in sorted(image.brokers.items()):
        yield _broker_record(broker)
    for _, controller in sorted(image.controllers.items()):
        yield _controller_record(controller)
    yield from map(mirror_link_record, image.mirror_links.values())
    for topic in image.topics.values():
        yield stored_records.TopicRecord(name=topic.name, topic_id=topic.id)
        if topic.mirror is not None:
            yield mirror_topic_record(topic.id, topic.mirror)
        if topic.closed is not None:
            yield closed_topic_record(topic.id, topic.closed)
        for index, partition in topic.partitions.items():
            yield existing_partition_record(topic.id, index, partition)
    for (resource_type, name), values in sorted(image.configs.items()):
        for key, value in sorted(values.items()):
            yield stored_records.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
    for entity, quotas in image.client_quotas.items():
        for key in sorted(quotas):
            yield quota_record(entity, key, quotas[key])
    if image.next_producer_id:
        yield stored_records.ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
    for acl_id, acl in image.acls.items():
        yield acl_record(acl_id, acl)
    for (user, mechanism), credential in sorted(image.scram_credentials.items()):
        yield stored_records.UserScramCredentialRecord(name=user, mechanism=mechanism, **credential._asdict())
    yield from map(token_record, image.delegation_tokens.values())


def token_record(token: DelegationToken) -> Message:
    return stored_records.DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(renewer) for renewer in token.renewers],
        issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.id,
    )


def acl_record(acl_id: Uuid, acl: Acl) -> Message:
    return stored_records.AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.kind,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _broker_record(broker: BrokerImage) -> Message:
    return stored_records.RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            stored_records.RegisterBrokerRecord.BrokerEndpoint(name=end.listener_name, host=end.host, port=end.port)
            for end in broker.endpoints
        ],
        features=[
            stored_records.RegisterBrokerRecord.BrokerFeature(
                name=name, min_supported_version=lowest, max_supported_version=highest
            )
            for name, (lowest, highest) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def _controller_record(controller: ControllerImage) -> Message:
    return stored_records.RegisterControllerRecord(
        controller_id=controller.node_id,
        incarnation_id=controller.incarnation_id,
        end_points=[
            stored_records.RegisterControllerRecord.ControllerEndpoint(
                name=end.listener_name, host=end.host, port=end.port
            )
            for end in controller.endpoints
        ],
        features=[
            stored_records.RegisterControllerRecord.ControllerFeature(
                name=name, min_supported_version=lowest, max_supported_version=highest
            )
            for name, (lowest, highest) in controller.features.items()
        ],
    )


def mirror_link_record(link: MirrorLink) -> Message:
    settings = [stored_records.MirrorLinkRecord.Setting(name=name, value=link.settings[name]) for name in link.settings]
    return stored_records.MirrorLinkRecord(
        link_id=link.id,
        name=link.name,
        source_cluster_id=link.source_cluster_id,
        is_paused=link.is_paused,
        settings=settings,
    )


def mirror_topic_record(topic_id: Uuid, mirror: MirrorTopic) -> Message:
    values = {**mirror._asdict(), "origins": list(mirror.origins)}
    return stored_records.MirrorTopicRecord(topic_id=topic_id, **values)


def closed_topic_record(topic_id: Uuid, closed: ClosedTopic | None) -> Message:
    """With None it is opened again."""
    cluster_id, handover_id = closed or ("", ZERO_UUID)
    return stored_records.ClosedTopicRecord(topic_id=topic_id, cluster_id=cluster_id, handover_id=handover_id)


def existing_partition_record(topic_id: Uuid, index: int, partition: PartitionImage) -> Message:
    """All of it, as it is."""
    return stored_records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )

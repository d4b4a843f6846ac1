"""FollowMirrorSource: what a broker has found at the source of a link becomes metadata here.

- A topic that has no mirror gets one, with as many partitions; one that has grown, more.
- Leader epochs are raised to those of the source: a batch of the source is taken by leaders of its epoch or a later one
  alone, and a consumer that has committed an epoch of the source never finds an older one here.
- Settings follow, as far as the link says.
- A promoted mirror that has caught up is opened.

What cannot be followed is told, topic by topic, and changes nothing. The same finding twice changes nothing either.
"""

from collections.abc import Mapping

from tailrace.controller.brokers.registration import check_epoch
from tailrace.controller.image import MirrorLink, MirrorState, MirrorTopic, ResourceType, TopicImage
from tailrace.controller.mirrors.links import mirrors_of
from tailrace.controller.mirrors.opening import decide_opening
from tailrace.controller.mirrors.settings import LinkSettings, parse_link_settings
from tailrace.controller.names import check_topic_name, collision_key
from tailrace.controller.partitions.creation import partition_record, place_partitions
from tailrace.controller.snapshot import existing_partition_record, mirror_topic_record
from tailrace.controller.view import Result, View
from tailrace.model.config import parse_topic_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.wire.apis.mirrors import FollowMirrorSourceRequest, FollowMirrorSourceResponse
from tailrace.wire.apis.stored_records import ConfigRecord, TopicRecord
from tailrace.wire.schema import Message

Found = FollowMirrorSourceRequest.Topic


def follow_mirror_source(view: View, request: FollowMirrorSourceRequest) -> Result:
    error = check_epoch(view.image.brokers.get(request.broker_id), request.broker_epoch)
    if error:
        return Result([], FollowMirrorSourceResponse(error_code=error))
    link = view.image.mirror_links.get(Uuid(request.link_id))
    if link is None or link.is_paused:
        return Result([], FollowMirrorSourceResponse(error_code=ErrorCode.RESOURCE_NOT_FOUND))
    settings = parse_link_settings(link.settings)
    caught_up = {each.source_topic: Uuid(each.handover_id) for each in request.caught_up}
    agreeing = frozenset(request.agreeing)
    known = {topic.mirror.source_topic: topic for topic in mirrors_of(view.image, link.id) if topic.mirror}
    records: list[Message] = []
    refused: list[FollowMirrorSourceResponse.Topic] = []
    created: set[str] = set()
    for found in request.topics:
        try:
            promoted = caught_up.get(found.source_topic)
            records += _follow(view, link, settings, found, known, created=created, promoted=promoted)
            if found.source_topic in agreeing:
                records += _end_cutting(known.get(found.source_topic))
        except KafkaError as refusal:
            answer = FollowMirrorSourceResponse.Topic(
                source_topic=found.source_topic, error_code=refusal.code, error_message=refusal.message
            )
            refused.append(answer)
    return Result(records, FollowMirrorSourceResponse(topics=refused))


def _follow(
    view: View,
    link: MirrorLink,
    settings: LinkSettings,
    found: Found,
    known: Mapping[str, TopicImage],
    *,
    created: set[str],
    promoted: Uuid | None,
) -> list[Message]:
    """`known` are the mirrors by the link, whatever they are called here: after a reverse they have the names that they
    had. `promoted` is the promote of which it was found that all is here."""
    name = settings.topic_prefix + found.source_topic
    topic = known.get(found.source_topic) or view.image.topics.get(name)
    if topic is None:
        if name in created:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The topic was told twice.")
        created.add(name)
        return _create(view, link, settings, found, name)
    mirror = topic.mirror
    if mirror is None or mirror.link_id != link.id:
        raise KafkaError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"Topic {name!r} exists here and is no mirror by the link {link.name!r}: it is left as it is. Exclude it "
            "from the link (topics.exclude), give the link a topic.prefix, or delete the topic here.",
        )
    if not mirror.is_read_only:
        return []
    _check_same(topic, mirror, found)
    changed = _changed_settings(view, topic.name, found)
    is_caught_up = mirror.state is MirrorState.PROMOTING and promoted == mirror.handover_id
    if is_caught_up and len(found.leader_epochs) == len(topic.partitions):
        return [*changed, *decide_opening(_raised(topic, found), mirror)]
    return [*changed, *_raise_epochs(topic, found), *_grow(view, topic, found)]


def _end_cutting(topic: TopicImage | None) -> list[Message]:
    if topic is None or topic.mirror is None or topic.mirror.state is not MirrorState.CUTTING:
        return []
    return [mirror_topic_record(topic.id, topic.mirror._replace(state=MirrorState.MIRRORING))]


def _create(view: View, link: MirrorLink, settings: LinkSettings, found: Found, name: str) -> list[Message]:
    check_topic_name(name)
    if view.image.cluster_id in found.origins:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{found.source_topic!r} comes from here: it is not mirrored back.")
    key = collision_key(name)
    other = key and view.image.collisions.get(key)
    if other:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")
    count = len(found.leader_epochs)
    if view.image.partition_count + count > view.config.max_partitions_per_cluster:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"The mirror of {found.source_topic!r} with its {count} partitions would exceed max.partitions.per.cluster "
            f"({view.config.max_partitions_per_cluster}).",
        )
    factor = settings.replication_factor
    factor = view.config.default_replication_factor if factor == -1 else factor
    topic_id = Uuid(view.random.uuid())
    mirror = MirrorTopic(
        link.id,
        found.source_topic,
        Uuid(found.source_topic_id),
        MirrorState.MIRRORING,
        origins=(*found.origins, link.source_cluster_id),
    )
    placed = place_partitions(view, range(count), replication_factor=factor)
    partitions: list[Message] = []
    for index, nodes in enumerate(placed):
        record = partition_record(view, topic_id, index, nodes)
        record.leader_epoch = max(0, found.leader_epochs[index])
        partitions.append(record)
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *_changed_settings(view, name, found),
        mirror_topic_record(topic_id, mirror),
        *partitions,
    ]


def _check_same(topic: TopicImage, mirror: MirrorTopic, found: Found) -> None:
    if ZERO_UUID != mirror.source_topic_id != Uuid(found.source_topic_id):
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"Topic {found.source_topic!r} was deleted at the source and made again: it is another one than "
            f"{topic.name!r} here mirrors. Nothing is mirrored any more. Keep what is here by a failover of it, or "
            "delete it here to mirror the new one.",
        )
    if 0 < len(found.leader_epochs) < len(topic.partitions):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {found.source_topic!r} has {len(found.leader_epochs)} partitions at the source, {topic.name!r} has "
            f"{len(topic.partitions)} here: partitions never become fewer, so it is another topic.",
        )


def _changed_settings(view: View, name: str, found: Found) -> list[Message]:
    """Raises KafkaError INVALID_CONFIG for what this cluster does not take."""
    now: Mapping[str, str] = view.image.config(ResourceType.TOPIC, name)
    changed = [each for each in found.settings if now.get(each.name) != each.value]
    if changed:
        wanted = {**now, **{each.name: each.value for each in changed}}
        parse_topic_config({key: value for key, value in wanted.items() if value is not None}, view.config)
    return [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=each.name, value=each.value)
        for each in changed
    ]


def _raise_epochs(topic: TopicImage, found: Found) -> list[Message]:
    raised = _raised(topic, found)
    return [
        existing_partition_record(topic.id, index, partition)
        for index, partition in raised.partitions.items()
        if partition is not topic.partitions[index]
    ]


def _raised(topic: TopicImage, found: Found) -> TopicImage:
    partitions = dict(topic.partitions)
    for index, epoch in enumerate(found.leader_epochs[: len(partitions)]):
        partition = partitions[index]
        if partition.leader_epoch < epoch:
            partitions[index] = partition._replace(leader_epoch=epoch, partition_epoch=partition.partition_epoch + 1)
    return topic._replace(partitions=partitions)


def _grow(view: View, topic: TopicImage, found: Found) -> list[Message]:
    count = len(topic.partitions)
    new = range(count, len(found.leader_epochs))
    if not new:
        return []
    placed = place_partitions(view, new, replication_factor=len(topic.partitions[0].replicas))
    records: list[Message] = []
    for index, nodes in zip(new, placed, strict=True):
        record = partition_record(view, topic.id, index, nodes)
        record.leader_epoch = max(0, found.leader_epochs[index])
        records.append(record)
    return records

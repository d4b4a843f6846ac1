"""OpenMirrorTopics: mirrors become topics of their own.

    failover  at once, with what is here
    promote   noted, and done once a broker has found that nothing comes any more (controller.mirrors.following)
    cancel    a promote that still waits is taken back
    cut       what the source has lost is cut here too, and then it is mirrored on (controller.mirrors.reversing)

Opening is one record for the topic and one for each of its partitions, in one batch: all partitions get the same new
leader epoch, higher than any of the source's that could be known here. What leaders write in it first ends what was
mirrored (`replica.opening`); until then they take no produces.
"""

from collections.abc import Iterable

from tailrace.controller.image import MirrorLink, MirrorState, MirrorTopic, TopicImage
from tailrace.controller.mirrors.links import find_link, mirrors_of
from tailrace.controller.snapshot import existing_partition_record, mirror_topic_record
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.mirrors import OpenMirrorTopicsRequest, OpenMirrorTopicsResponse
from tailrace.wire.schema import Message

FAILOVER, PROMOTE, CANCEL, CUT = "failover", "promote", "cancel", "cut"
# Leaders that the source may have had since it was last heard, and no more: epochs must not come back.
_EPOCH_MARGIN = 100


def open_mirror_topics(view: View, request: OpenMirrorTopicsRequest) -> Result:
    link = find_link(view.image, request.link_name)
    records: list[Message] = []
    names: list[str] = []
    for topic, mirror in _chosen(view, link, request.topics):
        if request.action == FAILOVER and mirror.is_read_only:
            records += decide_opening(topic, mirror)
        elif request.action == PROMOTE and mirror.state is MirrorState.MIRRORING:
            _check_can_promote(link)
            promoted = mirror._replace(state=MirrorState.PROMOTING, handover_id=Uuid(view.random.uuid()))
            records.append(mirror_topic_record(topic.id, promoted))
        elif request.action == CANCEL and mirror.state is MirrorState.PROMOTING:
            records.append(mirror_topic_record(topic.id, mirror._replace(state=MirrorState.MIRRORING)))
        elif request.action == CUT and mirror.state is MirrorState.MIRRORING:
            records.append(mirror_topic_record(topic.id, mirror._replace(state=MirrorState.CUTTING)))
        else:
            continue
        names.append(topic.name)
    if request.action not in (FAILOVER, PROMOTE, CANCEL, CUT):
        reason = f"{request.action!r} is none of {FAILOVER}, {PROMOTE}, {CANCEL} and {CUT}."
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return Result([] if request.validate_only else records, OpenMirrorTopicsResponse(topics=names))


def decide_opening(topic: TopicImage, mirror: MirrorTopic) -> list[Message]:
    epoch = max(partition.leader_epoch for partition in topic.partitions.values()) + _EPOCH_MARGIN
    opened = mirror_topic_record(topic.id, mirror._replace(state=MirrorState.OPEN, opening_epoch=epoch))
    partitions = [
        existing_partition_record(
            topic.id, index, partition._replace(leader_epoch=epoch, partition_epoch=partition.partition_epoch + 1)
        )
        for index, partition in topic.partitions.items()
    ]
    return [opened, *partitions]


def _check_can_promote(link: MirrorLink) -> None:
    if link.is_paused:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"The link {link.name!r} is paused: nothing tells whether all of the source is here. Resume it first, or "
            "fail over.",
        )


def _chosen(view: View, link: MirrorLink, names: Iterable[str]) -> list[tuple[TopicImage, MirrorTopic]]:
    known = {topic.name: (topic, topic.mirror) for topic in mirrors_of(view.image, link.id) if topic.mirror is not None}
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name!r} is no mirror by the link {link.name!r}.")
    return [known[name] for name in wanted or known]

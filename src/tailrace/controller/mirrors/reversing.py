"""ReverseMirror: topics of this cluster become mirrors of those that have mirrored them.

The new source has been written to since it was promoted or failed over; what this cluster has beyond the common point
its leaders save to another topic, and cut (`decide_cut`). Leader epochs are raised above those of the new source before
anything of it is fetched.

A cut takes confirmed records. So it begins a leader epoch of its own, in which the leader that asks for it is alone in
sync: its followers go by its history, as after an unclean election.
"""

from collections.abc import Iterator

from tailrace.controller.image import MirrorLink, MirrorState, MirrorTopic, TopicImage
from tailrace.controller.mirrors.links import find_link
from tailrace.controller.mirrors.settings import parse_link_settings
from tailrace.controller.partitions.change import RECOVERING
from tailrace.controller.snapshot import closed_topic_record, existing_partition_record, mirror_topic_record
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.mirrors import ReverseMirrorRequest, ReverseMirrorResponse
from tailrace.wire.schema import Message


def reverse_mirror(view: View, request: ReverseMirrorRequest) -> Result:
    link = find_link(view.image, request.link_name)
    settings = parse_link_settings(link.settings)
    records: list[Message] = []
    names: list[str] = []
    for asked in request.topics:
        topic = view.image.topics.get(asked.name)
        if topic is None:
            continue  # It was deleted here: the link makes a mirror of it from the beginning.
        if not settings.takes_topic(asked.source_topic):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The link {link.name!r} does not take the topic {asked.source_topic!r}. Choose another name for the "
                "new link.",
            )
        decided = list(_reverse(link, topic, asked))
        records += decided
        names += [topic.name] if decided else []
    return Result([] if request.validate_only else records, ReverseMirrorResponse(topics=names))


def _reverse(link: MirrorLink, topic: TopicImage, asked: ReverseMirrorRequest.Topic) -> Iterator[Message]:
    before = topic.mirror
    if before is not None and before.is_read_only:
        if before.link_id != link.id:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic.name!r} is a mirror by another link already.")
        return
    if len(asked.leader_epochs) < len(topic.partitions):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{topic.name!r} has {len(topic.partitions)} partitions here and {len(asked.leader_epochs)} there: "
            "a mirror has those of its source. It cannot become one.",
        )
    if topic.closed is not None and topic.closed.cluster_id != link.source_cluster_id:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic.name!r} was handed over to the cluster {topic.closed.cluster_id}, and this link is of "
            f"{link.source_cluster_id}.",
        )
    mirror = MirrorTopic(
        link.id,
        asked.source_topic,
        Uuid(asked.source_topic_id),
        MirrorState.CUTTING,
        origins=(link.source_cluster_id,),
    )
    yield mirror_topic_record(topic.id, mirror)
    if topic.closed is not None:
        yield closed_topic_record(topic.id, None)
    for index, partition in topic.partitions.items():
        epoch = max(partition.leader_epoch, asked.leader_epochs[index]) + 1
        raised = partition._replace(leader_epoch=epoch, partition_epoch=partition.partition_epoch + 1)
        yield existing_partition_record(topic.id, index, raised)


def decide_cut(topic: TopicImage, index: int, node_id: NodeId) -> Message:
    """The leader may cut what its source does not have. Raises KafkaError if nobody has decided that."""
    if topic.mirror is None or topic.mirror.state is not MirrorState.CUTTING:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic.name!r} is not to be cut.")
    partition = topic.partitions[index]
    alone = partition._replace(
        isr=(node_id,),
        eligible_leader_replicas=(),
        last_known_elr=(),
        leader_recovery_state=RECOVERING,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )
    return existing_partition_record(topic.id, index, alone)

"""CloseMirrorSource: topics of this cluster are handed over to another one that mirrors them.

A closed topic takes records of no client, so that it and its promoted mirror are never written to at a time; markers of
transactions are still written, else none that is open would ever end. Each promote has an id, and what takes it back
opens nothing that a later promote has closed.
"""

from collections.abc import Iterator

from tailrace.controller.image import ClosedTopic, MetadataImage, TopicImage
from tailrace.controller.mirrors.links import begin_using_mirrors
from tailrace.controller.snapshot import closed_topic_record, existing_partition_record
from tailrace.controller.view import Result, View
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import ZERO_UUID, Uuid
from tailrace.wire.apis.mirrors import CloseMirrorSourceRequest, CloseMirrorSourceResponse
from tailrace.wire.schema import Message


def close_mirror_source(view: View, request: CloseMirrorSourceRequest) -> Result:
    if not request.cluster_id or request.cluster_id == view.image.cluster_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is handed over to another cluster, by its id.")
    records = [
        record
        for asked in request.topics
        for record in _decide(view.image, asked, ClosedTopic(request.cluster_id, Uuid(asked.handover_id)), request)
    ]
    if records and request.is_closed:
        records = [*begin_using_mirrors(view.image), *records]
    return Result(records, CloseMirrorSourceResponse())


def _decide(
    image: MetadataImage, asked: CloseMirrorSourceRequest.Topic, closed: ClosedTopic, request: CloseMirrorSourceRequest
) -> Iterator[Message]:
    topic = image.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {asked.name!r}.")
    if not request.is_closed:
        # An operator names no promote: whichever it was.
        if topic.closed is not None and closed.handover_id in (ZERO_UUID, topic.closed.handover_id):
            yield from _records(topic, None)
        return
    _check_can_close(topic, closed)
    if topic.closed != closed:
        yield from _records(topic, closed)


def _records(topic: TopicImage, closed: ClosedTopic | None) -> Iterator[Message]:
    """Each partition gets a new epoch, so that its leader looks at what it may do."""
    yield closed_topic_record(topic.id, closed)
    for index, partition in topic.partitions.items():
        changed = partition._replace(partition_epoch=partition.partition_epoch + 1)
        yield existing_partition_record(topic.id, index, changed)


def _check_can_close(topic: TopicImage, closed: ClosedTopic) -> None:
    if topic.mirror is not None and topic.mirror.is_read_only:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic.name!r} is a mirror itself: its own source has to be closed. Promote it there first.",
        )
    if topic.closed is not None and topic.closed.cluster_id != closed.cluster_id:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{topic.name!r} was handed over to the cluster {topic.closed.cluster_id} already.",
        )

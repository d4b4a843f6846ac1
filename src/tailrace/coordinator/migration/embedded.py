"""The consumer protocol inside the classic one: the bytes that consumers exchange as member metadata and assignment.

Both begin with an int16, the version they are written in. A version later than those that we know begins with what the
last one that we know holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.assignors.spec import Partitions
from tailrace.model.errors import ProtocolError
from tailrace.model.ids import Uuid
from tailrace.wire.apis.stored_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tailrace.wire.compile import decode, encode

CONSUMER_PROTOCOL_TYPE = "consumer"
# What three records of a member take beside its ids and what is counted: keys, fields of fixed size, their framing.
MEMBER_BYTES = 150
_VERSION_BYTES = 2
_VERSION_MAX = ConsumerProtocolSubscription.versions.stop - 1

_NamedPartitions = ConsumerProtocolAssignment.TopicPartition | ConsumerProtocolSubscription.TopicPartition


def read_version(written: bytes) -> int:
    """Raises ProtocolError. Only versions that we know."""
    version = int.from_bytes(written[:_VERSION_BYTES], "big", signed=True)
    if len(written) < _VERSION_BYTES or version < 0:
        raise ProtocolError("the embedded consumer protocol has no version")
    return min(version, _VERSION_MAX)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises ProtocolError."""
    return decode(ConsumerProtocolSubscription, read_version(metadata), metadata, _VERSION_BYTES)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Raises ProtocolError. A member that the leader left out has no bytes, and no partitions."""
    if not assignment:
        return ConsumerProtocolAssignment()
    return decode(ConsumerProtocolAssignment, read_version(assignment), assignment, _VERSION_BYTES)


def write_assignment(partitions: Partitions, image: MetadataImage, metadata: bytes) -> bytes:
    """In the version in which the member wrote its metadata. Topics that are gone are left out."""
    names = {image.topic_names[topic_id]: topic_id for topic_id in partitions if topic_id in image.topic_names}
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=sorted(partitions[names[name]]))
            for name in sorted(names)
        ]
    )
    try:
        version = read_version(metadata)
    except ProtocolError:
        # All versions are alike. A member may list metadata that nobody has read so far.
        version = 0
    return version.to_bytes(_VERSION_BYTES, "big") + encode(assignment, version)


def by_topic_id(named: Iterable[_NamedPartitions], image: MetadataImage) -> Partitions:
    """Topics that are gone are left out."""
    partitions: dict[Uuid, frozenset[int]] = {}
    for each in named:
        topic = image.topics.get(each.topic)
        if topic is not None and each.partitions:
            partitions[topic.id] = partitions.get(topic.id, frozenset()) | frozenset(each.partitions)
    return partitions


def topic_names(subscription: ConsumerProtocolSubscription) -> tuple[str, ...]:
    return tuple(sorted(set(subscription.topics)))

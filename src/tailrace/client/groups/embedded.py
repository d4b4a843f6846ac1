"""What classic consumers tell each other through the coordinator, which passes it on unread: subscriptions on the way
to the leader, assignments on the way back. Both begin with the int16 of their version, as stored records do.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.client.groups.assignors import Subscriber
from tailrace.client.groups.membership import NO_PARTITIONS, Partitions
from tailrace.client.groups.offsets import by_topic
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.model.ports import Bytes
from tailrace.wire.apis.stored_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tailrace.wire.compile import decode
from tailrace.wire.record_envelopes import encode_coordinator_value

# The protocol type of groups whose members are consumers; Connect and schema registries have types of their own.
PROTOCOL_TYPE = "consumer"


def subscription_bytes(topics: Iterable[str], owned: Partitions, *, generation: int, rack_id: str | None) -> bytes:
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(owned).items()
        ],
        generation_id=generation,
        rack_id=rack_id,
    )
    return encode_coordinator_value(subscription)


def read_subscriber(metadata: Bytes, instance_id: str | None) -> Subscriber:
    found = decode(ConsumerProtocolSubscription, _version(metadata, ConsumerProtocolSubscription.versions), metadata, 2)
    owned = frozenset(
        TopicPartition(each.topic, PartitionIndex(index))
        for each in found.owned_partitions
        for index in each.partitions
    )
    return Subscriber(frozenset(found.topics), owned, found.generation_id, instance_id)


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    topics = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    return encode_coordinator_value(ConsumerProtocolAssignment(assigned_partitions=topics))


def read_assignment(assignment: Bytes) -> Partitions:
    """A member that the leader has left out gets nothing, not even a version."""
    if not assignment:
        return NO_PARTITIONS
    version = _version(assignment, ConsumerProtocolAssignment.versions)
    found = decode(ConsumerProtocolAssignment, version, assignment, 2)
    return frozenset(
        TopicPartition(each.topic, PartitionIndex(index))
        for each in found.assigned_partitions
        for index in each.partitions
    )


def _version(written: Bytes, known: range) -> int:
    """A newer version only adds to the end, which may be left unread."""
    return min(int.from_bytes(written[:2], "big"), known[-1])

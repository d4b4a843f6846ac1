"""The topics of a group as the metadata tells them: their hash, and what assignors see of them.

The hash tells whether a change of the metadata matters to a group: partitions were added, a topic came or went,
replicas moved to other racks. It is Kafka's idea with a hash of our own, for none but coordinators ever compare it; the
same metadata gives the same hash on every broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from tailrace.controller.image import MetadataImage, TopicImage
from tailrace.coordinator.assignors.spec import TopicSpec


def metadata_hash(topics: Iterable[str], image: MetadataImage) -> int:
    """The hash of the topics that exist; 0 if none does."""
    racks = rack_of(image)
    return combine(topic_hash(topic, racks) for name in topics if (topic := image.topics.get(name)) is not None)


def combine(hashes: Iterable[int]) -> int:
    """As an int64. A sum has no order, as a subscription has none."""
    total = sum(hashes) & 0xFFFF_FFFF_FFFF_FFFF
    return total - (1 << 64) if total >> 63 else total


def topic_hash(topic: TopicImage, racks: Mapping[int, str]) -> int:
    digest = blake2b(topic.id, digest_size=8)
    digest.update(len(topic.partitions).to_bytes(4, "big"))
    digest.update(topic.name.encode())
    if racks:
        for racks_of_partition in topic_spec(topic, racks).racks:
            digest.update(repr(sorted(racks_of_partition)).encode())
    return int.from_bytes(digest.digest(), "big")


def topic_spec(topic: TopicImage, racks: Mapping[int, str]) -> TopicSpec:
    if not racks:
        return TopicSpec(len(topic.partitions))
    return TopicSpec(
        len(topic.partitions),
        [
            frozenset(racks[replica] for replica in partition.replicas if replica in racks)
            for partition in topic.partitions.values()
        ],
    )


def rack_of(image: MetadataImage) -> Mapping[int, str]:
    return {node_id: broker.rack for node_id, broker in image.brokers.items() if broker.rack is not None}

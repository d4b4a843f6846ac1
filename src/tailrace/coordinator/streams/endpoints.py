"""Where an application answers queries about its state: which partitions each of its endpoints has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.streams.member import StreamsMember
from tailrace.coordinator.streams.topology import Configured
from tailrace.wire.apis.groups import StreamsGroupHeartbeatResponse

_Endpoint = StreamsGroupHeartbeatResponse.EndpointToPartitions
_TopicPartition = StreamsGroupHeartbeatResponse.TopicPartition


def partitions_by_endpoint(
    members: Iterable[StreamsMember], configured: Configured, image: MetadataImage
) -> list[_Endpoint]:
    """Of the topics that their tasks read; who told no endpoint is left out."""
    found = []
    for member in members:
        if member.endpoint is not None:
            host, port = member.endpoint
            found.append(
                _Endpoint(
                    user_endpoint=StreamsGroupHeartbeatResponse.Endpoint(host=host, port=port),
                    active_partitions=list(_read_by(member.assigned.active, configured, image)),
                    standby_partitions=list(_read_by(member.assigned.standby, configured, image)),
                )
            )
    return found


def _read_by(
    tasks: Mapping[str, Iterable[int]], configured: Configured, image: MetadataImage
) -> Iterator[_TopicPartition]:
    for name, partitions in sorted(tasks.items()):
        subtopology = configured.subtopologies.get(name)
        if subtopology is None:
            continue  # Its topics are no longer good: the tasks are about to be taken away.
        for topic in (*subtopology.source_topics, *sorted(subtopology.repartition_source_topics)):
            known = image.topics.get(topic)
            if known is not None:
                # A topic may have fewer partitions than the subtopology has tasks.
                there = [index for index in sorted(partitions) if index in known.partitions]
                yield _TopicPartition(topic=topic, partitions=there)

"""The topology of a streams group, and what becomes of it with the topics that there are: a pure function.

A topology is a set of subtopologies. Each reads source topics and repartition topics, keeps its state in changelog
topics, and has as many tasks as the largest of what it reads has partitions. The topics of the latter two kinds are
internal: the group makes them. How many partitions they have follows from what feeds them:

    a repartition topic  as its members of a copartition group; as the application says; or as the largest topic that
                         the subtopology reads which writes it
    a changelog topic    as many as its subtopology has tasks

Members only tell their topology when they join. It stays as it is while the group has members, and after that until the
group is deleted: Kafka has no updates of a topology yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.assignors.sticky import TaskSpec
from tailrace.coordinator.groups import shown
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import StreamsGroupHeartbeatRequest
from tailrace.wire.apis.stored_records import StreamsGroupTopologyValue

_Subtopology = StreamsGroupTopologyValue.Subtopology
# Of topics that a sentence names.
_NAMES_MAX = 3


class StatusCode(IntEnum):
    """What a member is told beside its tasks."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class Status(NamedTuple):
    code: StatusCode
    detail: str


class Topology:
    """As it is stored. Never changed."""

    def __init__(self, stored: StreamsGroupTopologyValue) -> None:
        self.stored = stored
        self.epoch = stored.epoch
        # By id, in ascending order.
        self.subtopologies: Mapping[str, _Subtopology] = {
            each.subtopology_id: each for each in sorted(stored.subtopologies, key=lambda each: each.subtopology_id)
        }
        # Topic -> the subtopology that reads it.
        self.readers: Mapping[str, str] = {
            name: each.subtopology_id
            for each in self.subtopologies.values()
            for name in (*each.source_topics, *_names(each.repartition_source_topics))
        }
        self.topics = frozenset(self.readers).union(
            *(_names(each.state_changelog_topics) for each in self.subtopologies.values())
        )

    def __eq__(self, other: object) -> bool:
        """The order in which subtopologies were told means nothing."""
        return isinstance(other, Topology) and self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]


class InternalTopic(NamedTuple):
    name: str
    partition_count: int
    # 0 for the cluster's default.
    replication_factor: int
    settings: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    task_count: int
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    repartition_source_topics: Mapping[str, InternalTopic]
    changelog_topics: Mapping[str, InternalTopic]


class Configured(NamedTuple):
    """A topology with the topics that there are. Without a problem it is ready: it has tasks."""

    # Empty if the numbers of partitions cannot be decided.
    subtopologies: Mapping[str, ConfiguredSubtopology]
    # To be created.
    missing: Mapping[str, InternalTopic]
    problem: Status | None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    def tasks(self) -> dict[str, TaskSpec]:
        return {
            name: TaskSpec(each.task_count, bool(each.changelog_topics)) for name, each in self.subtopologies.items()
        }


class _ProblemError(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


def read_topology(told: StreamsGroupHeartbeatRequest.Topology) -> Topology:
    """As a member tells it. Raises STREAMS_INVALID_TOPOLOGY."""
    for each in told.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
    if told.epoch < 0:
        raise _invalid("Topology epoch must be non-negative.")
    topology = Topology(_stored(told))
    if len(topology.subtopologies) < len(told.subtopologies):
        raise _invalid("Two subtopologies have the same id.")
    for subtopology in topology.subtopologies.values():
        for group in subtopology.copartition_groups:
            _copartitioned(subtopology, group)
    return topology


def topic_names(topology: Any) -> Iterator[str]:
    """All topics that a topology names, as it is told, stored or described; None names none."""
    for each in () if topology is None else topology.subtopologies or ():
        yield from each.source_topics
        yield from each.repartition_sink_topics
        yield from _names((*each.repartition_source_topics, *each.state_changelog_topics))


def configure(topology: Topology, image: MetadataImage) -> Configured:
    """Raises STREAMS_INVALID_TOPOLOGY for one that no topics could make good."""
    try:
        _check_sources(topology, image)
        counts = _Counts(image, _count_repartition_topics(topology, image))
        for each in topology.subtopologies.values():
            for group in each.copartition_groups:
                _copartition(each, _copartitioned(each, group), counts)
        subtopologies = {name: _configure(each, counts) for name, each in topology.subtopologies.items()}
        missing = _missing(subtopologies, image)
    except _ProblemError as error:
        return Configured({}, {}, error.status)
    if not missing:
        return Configured(subtopologies, {}, None)
    detail = f"Internal topics are missing: {_some(missing)}"
    return Configured(subtopologies, missing, Status(StatusCode.MISSING_INTERNAL_TOPICS, detail))


class _Counts:
    """How many partitions a topic has, or is to have: what there is comes first."""

    def __init__(self, image: MetadataImage, decided: dict[str, int]) -> None:
        self._image = image
        self.decided = decided

    def find(self, topic: str) -> int | None:
        there = self._image.topics.get(topic)
        return self.decided.get(topic) if there is None else len(there.partitions)

    def of(self, topic: str) -> int:
        count = self.find(topic)
        if count is None:
            raise _invalid(f"The number of partitions of topic {topic} cannot be decided.")
        return count


def _check_sources(topology: Topology, image: MetadataImage) -> None:
    missing = {
        name for each in topology.subtopologies.values() for name in each.source_topics if name not in image.topics
    }
    if missing:
        detail = f"Source topics {_some(sorted(missing))} are missing."
        raise _ProblemError(StatusCode.MISSING_SOURCE_TOPICS, detail)


def _count_repartition_topics(topology: Topology, image: MetadataImage) -> dict[str, int]:
    """As the application says, or as the largest topic that is read by who writes it. Those that are read from
    repartition topics wait for these."""
    subtopologies = topology.subtopologies.values()
    decided = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    waiting = {(name, each.subtopology_id) for each in subtopologies for name in each.repartition_sink_topics}
    while waiting := {(name, writer) for name, writer in waiting if name not in decided}:
        known_before = len(decided)
        for name, writer in sorted(waiting):
            read = topology.subtopologies[writer]
            counts = [decided[each.name] for each in read.repartition_source_topics if each.name in decided]
            counts += [len(image.topics[each].partitions) for each in read.source_topics]
            if counts:
                decided.setdefault(name, max(counts))
        if len(decided) == known_before:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology"
                " that cannot be resolved."
            )
    for each in subtopologies:
        for topic in each.repartition_source_topics:
            if topic.name not in decided:
                raise _invalid(
                    "Failed to compute number of partitions for all repartition topics, because a repartition source"
                    " topic is never used as a sink topic."
                )
    return decided


def _copartition(subtopology: _Subtopology, group: Sequence[str], counts: _Counts) -> None:
    """Topics that are joined have as many partitions as each other; repartition topics are made so."""
    if not group:
        return
    fixed = {topic.name: topic.partitions > 0 for topic in subtopology.repartition_source_topics}
    found = {name: counts.of(name) for name in sorted(group)}
    external = {name: count for name, count in found.items() if name not in fixed}
    chosen = external or {name: count for name, count in found.items() if fixed[name]}
    if len(set(chosen.values())) > 1:
        told = ", ".join(f"{name}={count}" for name, count in (external or found).items())
        detail = f"Following topics do not have the same number of partitions: [{{{told}}}]"
        raise _ProblemError(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    count = max((chosen or found).values())
    for name in found.keys() - external.keys():
        if fixed[name] and found[name] != count:
            detail = (
                f"Number of partitions [{found[name]}] of repartition topic [{name}] doesn't match number of partitions"
                f" [{count}] of the source topic."
            )
            raise _ProblemError(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
        counts.decided[name] = count


def _configure(subtopology: _Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    sources = (*subtopology.source_topics, *_names(subtopology.repartition_source_topics))
    if not sources:
        raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
    task_count = max(counts.of(name) for name in sources)
    return ConfiguredSubtopology(
        task_count=task_count,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        repartition_source_topics={
            each.name: _internal(each, each.partitions or counts.decided[each.name])
            for each in subtopology.repartition_source_topics
        },
        changelog_topics={each.name: _internal(each, task_count) for each in subtopology.state_changelog_topics},
    )


def _internal(topic: StreamsGroupTopologyValue.TopicInfo, partition_count: int) -> InternalTopic:
    settings = {each.key: each.value for each in topic.topic_configs}
    return InternalTopic(topic.name, partition_count, topic.replication_factor, settings)


def _missing(subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage) -> dict[str, InternalTopic]:
    missing: dict[str, InternalTopic] = {}
    for each in subtopologies.values():
        for topic in (*each.repartition_source_topics.values(), *each.changelog_topics.values()):
            there = image.topics.get(topic.name)
            if there is None:
                missing[topic.name] = topic
            elif len(there.partitions) != topic.partition_count:
                detail = (
                    f"Existing topic {topic.name} has different number of partitions: expected {topic.partition_count},"
                    f" found {len(there.partitions)}"
                )
                raise _ProblemError(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return missing


def _copartitioned(subtopology: _Subtopology, group: StreamsGroupTopologyValue.CopartitionGroup) -> list[str]:
    """The group's topics, which it names by their places."""
    sources, repartitioned = subtopology.source_topics, subtopology.repartition_source_topics
    try:
        return [
            *(sources[_place(index)] for index in group.source_topics),
            *(repartitioned[_place(index)].name for index in group.repartition_source_topics),
        ]
    except IndexError:
        raise _invalid(
            f"A copartition group of subtopology {subtopology.subtopology_id} names topics that it does not read."
        ) from None


def _place(index: int) -> int:
    if index < 0:
        raise IndexError
    return index


def _stored(told: StreamsGroupHeartbeatRequest.Topology) -> StreamsGroupTopologyValue:
    stored = StreamsGroupTopologyValue
    return stored(
        epoch=told.epoch,
        subtopologies=[
            stored.Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                state_changelog_topics=_stored_topics(each.state_changelog_topics),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=_stored_topics(each.repartition_source_topics),
                copartition_groups=[
                    stored.CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in told.subtopologies
        ],
    )


def _stored_topics(told: Iterable[Any]) -> list[StreamsGroupTopologyValue.TopicInfo]:
    stored = StreamsGroupTopologyValue
    return [
        stored.TopicInfo(
            name=each.name,
            partitions=each.partitions,
            replication_factor=each.replication_factor,
            topic_configs=[stored.TopicConfig(key=pair.key, value=pair.value) for pair in each.topic_configs],
        )
        for each in told
    ]


def _names(topics: Iterable[Any]) -> list[str]:
    return [topic.name for topic in topics]


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    left = len(listed) - _NAMES_MAX
    told = ", ".join(shown(name) for name in listed[:_NAMES_MAX])
    return told + (f" and {left} additional topics" if left > 0 else "")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)

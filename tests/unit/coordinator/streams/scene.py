"""Members of streams groups in front of a machine: what they ask, and the topics that there are."""

from collections.abc import Mapping
from typing import Any

from tailrace.controller.image import MetadataImage, PartitionImage, ResourceType, TopicImage
from tailrace.coordinator.streams.group import StreamsGroup
from tailrace.model.ids import NodeId, PartitionIndex, Uuid
from tailrace.wire.apis.groups import StreamsGroupHeartbeatRequest
from tests.unit.coordinator import scene
from tests.unit.coordinator.scene import Asked

GROUP = "counting"
_PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)
_Request = StreamsGroupHeartbeatRequest

Tasks = Mapping[str, list[int]]


class Scene(scene.Scene):
    """Without an initial delay and an assignment interval, if nothing else is said."""

    def __init__(self, sizes: Mapping[str, int], **settings: Any) -> None:
        self._sizes = dict(sizes)
        settings = {
            "group_streams_initial_rebalance_delay_ms": 0,
            "group_streams_assignment_interval_ms": 0,
        } | settings
        super().__init__(self._image({}), **settings)

    def durable(self, machine: Any) -> Any:
        return {
            name: (
                group.epoch,
                group.basis,
                group.assignment_epoch,
                group.assignment_timestamp_ms,
                group.topology,
                group.members,
                group.targets,
                group.active_owners,
                group.copy_owners,
            )
            for name, group in machine.state.groups.items()
            if isinstance(group, StreamsGroup)
        }

    def _image(self, configs: Mapping[Any, Mapping[str, str]]) -> MetadataImage:
        topics = {
            name: TopicImage(
                name, Uuid(name.encode()[:16].ljust(16)), dict.fromkeys(map(PartitionIndex, range(size)), _PARTITION)
            )
            for name, size in self._sizes.items()
        }
        names = {topic.id: name for name, topic in topics.items()}
        return MetadataImage("cluster", topics=topics, topic_names=names, configs=dict(configs))

    def set_topics(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self.publish(self._image(self.image.configs))

    def set_config(self, name: str, value: str, group: str = GROUP) -> None:
        key = ResourceType.GROUP, group
        old = self.image.configs.get(key, {})
        self.publish(self._image({**self.image.configs, key: {**old, name: value}}))

    @property
    def group(self) -> StreamsGroup:
        group = self.machine.state.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group

    def create_missing(self) -> None:
        """The internal topics of the group, as the broker creates them."""
        assert self.group.configured is not None
        missing = self.group.configured.missing
        self.set_topics({**self._sizes, **{name: each.partition_count for name, each in missing.items()}})

    def join(self, member: str = "m", *subtopologies: Any, epoch: int = 0, **fields: Any) -> Asked:
        given: dict[str, Any] = {
            "rebalance_timeout_ms": 1_000,
            "process_id": f"p{member}",
            "topology": _Request.Topology(epoch=epoch, subtopologies=list(subtopologies or [subtopology()])),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        return self.ask(_Request(group_id=GROUP, member_id=member, member_epoch=0, **(given | fields)))

    def beat(
        self, member: str = "m", active: Tasks | None = None, standby: Tasks | None = None, **fields: Any
    ) -> Asked:
        """In the epoch that it is in, if nothing else is said."""
        if "member_epoch" not in fields:
            fields["member_epoch"] = self.group.members[member].member_epoch
        told = None if active is None else task_ids(active)
        kept = None if active is None else task_ids(standby or {})
        warm: list[Any] | None = None if active is None else []
        request = _Request(
            group_id=GROUP, member_id=member, active_tasks=told, standby_tasks=kept, warmup_tasks=warm, **fields
        )
        return self.ask(request)

    def leave(self, member: str = "m") -> Asked:
        return self.beat(member, member_epoch=-1)

    def active(self) -> dict[str, Tasks]:
        """What each member has."""
        return {
            name: {each: sorted(epochs) for each, epochs in member.assigned.active.items()}
            for name, member in self.group.members.items()
        }


def subtopology(name: str = "0", sources: tuple[str, ...] = ("t",), changelogs: tuple[str, ...] = ()) -> Any:
    return _Request.Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        state_changelog_topics=[_Request.TopicInfo(name=each) for each in changelogs],
    )


def task_ids(tasks: Tasks) -> list[Any]:
    return [_Request.TaskIds(subtopology_id=name, partitions=list(each)) for name, each in tasks.items()]

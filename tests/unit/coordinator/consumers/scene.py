"""Members of a consumer group, what they ask of its coordinator, and the topics that there are."""

from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.history import Rebalance
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest
from tests.unit.coordinator import scene
from tests.unit.coordinator.scene import Asked

GROUP = "g"
SESSION_MS = 45_000
HEARTBEAT_MS = 5_000
ASSIGNMENT_MS = 1_000
REBALANCE_MS = 60_000

Partitions = dict[str, set[int]]


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode().ljust(16, b"."))


def make_image(topics: Mapping[str, int], racks: Iterable[str | None] = (None,), offset: int = 0) -> MetadataImage:
    """Brokers 0, 1 and so on, each with a rack; partition p has one replica, on broker p modulo their number."""
    rack_list = list(racks)
    images = {}
    for name, count in topics.items():
        replicas = [(NodeId(partition % len(rack_list)),) for partition in range(count)]
        images[name] = TopicImage(
            name,
            topic_id(name),
            {index: PartitionImage(nodes, nodes, nodes[0], 0, 0) for index, nodes in enumerate(replicas)},
        )
    brokers = {
        node: BrokerImage(NodeId(node), 0, Uuid(bytes(16)), (), rack, False, False, ())
        for node, rack in enumerate(rack_list)
    }
    return MetadataImage(
        "cluster",
        topics=images,
        topic_names={image.id: name for name, image in images.items()},
        brokers=brokers,
        next_offset=offset,
    )


class Scene(scene.Scene):
    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        super().__init__(make_image({"t": 4} if topics is None else topics), **settings)

    @property
    def group(self) -> ConsumerGroup:
        group = self.machine.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def history(self) -> list[Rebalance]:
        return list(self.machine.state.history.of(GROUP))

    def set_topics(self, topics: Mapping[str, int], racks: Iterable[str | None] = (None,)) -> None:
        self.publish(make_image(topics, racks, self.image.next_offset + 1))
        self.work()

    def beat(self, member_id: str, epoch: int, owned: Partitions | None = None, **fields: Any) -> Asked:
        version = fields.pop("version", None)
        return self.ask(self._beating(member_id, epoch, owned, **fields), version)

    def join(self, member_id: str, *topics: str, **fields: Any) -> Asked:
        version = fields.pop("version", None)
        return self.ask(self.joining(member_id, *topics, **fields), version)

    def joining(self, member_id: str, *topics: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        names = list(topics) if topics or "subscribed_topic_regex" in fields else ["t"]
        given = {"subscribed_topic_names": names, "rebalance_timeout_ms": REBALANCE_MS, **fields}
        return self._beating(member_id, 0, {}, **given)

    def _beating(
        self, member_id: str, epoch: int, owned: Partitions | None, **fields: Any
    ) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch)
        if owned is not None:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id(name), partitions=sorted(partitions))
                for name, partitions in owned.items()
            ]
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    def refusal(self, member_id: str, epoch: int, owned: Partitions | None = None, **fields: Any) -> ErrorCode:
        version = fields.pop("version", None)
        return self.refusal_of(self._beating(member_id, epoch, owned, **fields), version)

    def has(self, member_id: str) -> Partitions:
        """What the coordinator says that a member has been given."""
        return named(self.group.members[member_id].assigned)

    def durable(self, machine: Any) -> Any:
        return durable(machine)


def named(partitions: Mapping[Uuid, Iterable[int]]) -> Partitions:
    return {uuid.rstrip(b".").decode(): set(indexes) for uuid, indexes in partitions.items()}


def told(asked: Asked) -> Partitions:
    """The assignment of an answer."""
    assert asked.answer.assignment is not None, "the answer has no assignment"
    return {
        Uuid(topic.topic_id).rstrip(b".").decode(): set(topic.partitions)
        for topic in asked.answer.assignment.topic_partitions
    }


def durable(machine: Any) -> dict[str, Any]:
    """All that the log tells about the groups of a machine."""
    soft = {"waiting", "unconfirmed", "is_resolving", "resolving_for", "may_describe"}
    return {
        name: {field: value for field, value in vars(group).items() if field not in soft}
        for name, group in machine.state.groups.items()
        if isinstance(group, ConsumerGroup)
    }

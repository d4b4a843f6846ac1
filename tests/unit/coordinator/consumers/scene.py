"""Members of a consumer group and their coordinator: the machine, its log, topics, and a clock that tests move.

After every op the log is replayed by a second machine, which must hold the same groups. Computations run to their end
right after the op that asked for them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tailrace.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.history import History, Rebalance
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.op import Call, Result, Steps
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Offset, Uuid
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tailrace.wire.apis.stored import GROUP_RECORDS
from tailrace.wire.compile import encode
from tailrace.wire.schema import Message
from tailrace.wire.stored import decode_coordinator_record, encode_coordinator_key, encode_coordinator_value

GROUP = "g"
START_MS = 1_000_000
SESSION_MS = 45_000
HEARTBEAT_MS = 5_000
ASSIGNMENT_MS = 1_000
REBALANCE_MS = 60_000

Partitions = dict[str, set[int]]


class Asked:
    """A request, and what came back; a Caller to the machine."""

    client_id = "app"
    client_host = "/127.0.0.1"
    is_over = False

    def __init__(self, api_version: int) -> None:
        self.api_version = api_version
        self.answers: list[Any] = []

    @property
    def is_waiting(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> ConsumerGroupHeartbeatResponse:
        (answer,) = self.answers
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)


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
        next_offset=Offset(offset),
    )


class Scene:
    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        self.config = BrokerConfig(node_id=1, **settings)
        self.monotonic_ms = 0.0
        self.image = make_image({"t": 4} if topics is None else topics)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.machine = self._new_machine()
        self._random = SimRandom(1)
        # While it is set, computations are the test's to take.
        self.work_is_held = False

    @property
    def group(self) -> ConsumerGroup:
        group = self.machine.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def history(self) -> list[Rebalance]:
        return list(self.machine.state.history.of(GROUP))

    def call(self) -> Call:
        return Call(START_MS + int(self.monotonic_ms), self.monotonic_ms, self.image, self.config, self._random)

    def ask(self, request: Message, version: int | None = None) -> Asked:
        asked = Asked(request.versions[-1] if version is None else version)
        self._apply(self.machine.op(self.call(), asked, request))
        self.work()
        return asked

    def work(self) -> None:
        while not self.work_is_held and (steps := self.machine.take_work(self.call())) is not None:
            self.finish(steps)
        self.pass_ms(0)

    def finish(self, steps: Steps) -> None:
        try:
            while True:
                next(steps)
        except StopIteration as done:
            self._apply(done.value)

    def pass_ms(self, duration_ms: float) -> None:
        """Deadlines are met one after the other, each at its time."""
        end_ms = self.monotonic_ms + duration_ms
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.monotonic_ms = max(self.monotonic_ms, due_ms)
            result = self.machine.on_deadline(self.call())
            assert result is not None
            self._apply(result)
            if self.machine.state.work and not self.work_is_held:
                self.work()
        self.monotonic_ms = end_ms

    def set_topics(self, topics: Mapping[str, int], racks: Iterable[str | None] = (None,)) -> None:
        old, self.image = self.image, make_image(topics, racks, self.image.next_offset + 1)
        for result in self.machine.on_image(self.call(), old):
            self._apply(result)
        self.work()

    def fail_over(self) -> None:
        """Another coordinator, which has the log and nothing else."""
        self.machine = self.replayed()
        for result in self.machine.on_loaded(self.call()):
            self._apply(result)
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
        try:
            self.beat(member_id, epoch, owned, **fields)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def has(self, member_id: str) -> Partitions:
        """What the coordinator says that a member has been given."""
        return named(self.group.members[member_id].assigned)

    def _apply(self, result: Result) -> None:
        for key, value, version in result.records:
            encoded = None if value is None else encode_coordinator_value(value, version)
            self.log.append((encode_coordinator_key(key), encoded))
            self.machine.replay(key, value)
        for asked, response in result.answers:
            assert isinstance(asked, Asked)
            # What cannot be encoded would reach nobody.
            encode(response, asked.api_version)
            asked.answers.append(response)
        assert durable(self.replayed()) == durable(self.machine)

    def replayed(self) -> GroupMachine:
        machine = self._new_machine()
        for key, value in self.log:
            machine.replay(*decode_coordinator_record(GROUP_RECORDS, key, value))
        return machine

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(History(groups_max=10, rebalances_max=50))


def named(partitions: Mapping[Uuid, Iterable[int]]) -> Partitions:
    return {uuid.rstrip(b".").decode(): set(indexes) for uuid, indexes in partitions.items()}


def told(asked: Asked) -> Partitions:
    """The assignment of an answer."""
    assert asked.answer.assignment is not None, "the answer has no assignment"
    return {
        Uuid(topic.topic_id).rstrip(b".").decode(): set(topic.partitions)
        for topic in asked.answer.assignment.topic_partitions
    }


def durable(machine: GroupMachine) -> dict[str, Any]:
    """All that the log tells about the groups of a machine."""
    soft = {"waiting", "is_resolving", "resolving_for"}
    return {
        name: {field: value for field, value in vars(group).items() if field not in soft}
        for name, group in machine.state.groups.items()
        if isinstance(group, ConsumerGroup)
    }

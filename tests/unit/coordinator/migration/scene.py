"""A group whose clients change their protocol: clients of either one, and the coordinator of the consumers' scene.

Clients act when they are asked to (`run`), and each keeps what it believes to own; after every step of one of them no
partition may have two owners.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.apis.groups import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tailrace.wire.apis.stored_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tailrace.wire.compile import decode, encode
from tailrace.wire.schema import Message
from tests.unit.coordinator.classic.scene import stored
from tests.unit.coordinator.consumers import scene as consumers
from tests.unit.coordinator.consumers.scene import GROUP, topic_id
from tests.unit.coordinator.scene import Asked

SESSION_MS = 10_000
REBALANCE_MS = 60_000
BEAT_MS = 1_000

Owned = set[tuple[str, int]]


class Scene(consumers.Scene):
    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        super().__init__(topics or {"t": 6}, **{"group_initial_rebalance_delay_ms": 0, **settings})

    @property
    def type(self) -> str:
        return self.machine.state.groups[GROUP].type.value

    @property
    def classic(self) -> ClassicGroup:
        group = self.machine.state.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def send(self, request: Message, version: int | None = None, client_id: str = "app") -> Asked:
        """A refusal is an answer like any other."""
        try:
            return super().send(request, version, client_id)
        except KafkaError as fault:
            asked = Asked(request.versions[-1] if version is None else version, client_id)
            asked.answers.append(fault)
            return asked

    def durable(self, machine: Any) -> Any:
        return super().durable(machine), stored(machine)


class ClassicClient:
    """A consumer of the classic protocol; a cooperative one keeps its partitions while it joins."""

    def __init__(self, scene: Scene, *, is_cooperative: bool = False, instance_id: str | None = None) -> None:
        self.scene = scene
        self.protocol = "cooperative-sticky" if is_cooperative else "range"
        self.is_cooperative = is_cooperative
        self.instance_id = instance_id
        self.topics = ["t"]
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = set()
        self.errors: list[ErrorCode] = []
        self._asked: Asked | None = None
        self._has_to_join = True

    @property
    def is_settled(self) -> bool:
        return self._asked is None and not self._has_to_join

    def step(self) -> None:
        if self._asked is None:
            if self._has_to_join:
                self._join()
            else:
                self.heartbeat()
        if self._asked is not None and self._asked.answers:
            response, self._asked = self._asked.answers[0], None
            self._on_join_answer(response)

    def ask_to_join(self) -> None:
        """And no more: it does not even look at the answer."""
        assert self._asked is None
        self._join()

    def lose_connection(self) -> None:
        """Nobody will answer what it asked."""
        if self._asked is not None:
            self._asked, self._has_to_join = None, True
            self.__dict__.pop("_on_join_answer", None)

    def leave(self) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        answer = self.scene.send(LeaveGroupRequest(group_id=GROUP, members=[identity])).answers[0]
        assert [each.error_code for each in answer.members] == [ErrorCode.NONE]
        self.owned = set()

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        subscription = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(self.owned)
            ],
        )
        metadata = (1).to_bytes(2, "big") + bytes(encode(subscription, 1))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=self.protocol, metadata=metadata)],
        )
        self._asked = self.scene.send(request)

    def _on_join_answer(self, response: Any) -> None:
        code = self._note(response)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._start_over()
        elif code is ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self._has_to_join = False
            self._sync(response)

    def _sync(self, joined: JoinGroupResponse) -> None:
        assignments = self._assign(joined) if joined.leader == self.member_id else []
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        self._asked = self.scene.send(request)
        self._on_join_answer = self._on_sync_answer  # type: ignore[method-assign]

    def _on_sync_answer(self, response: Any) -> None:
        del self._on_join_answer
        if self._note(response) is not ErrorCode.NONE:
            self._has_to_join = True
            return
        assigned = read_assignment(response.assignment)
        revoked = self.owned - assigned
        self.owned = assigned
        self._has_to_join = bool(revoked) and self.is_cooperative

    def heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        code = self._note(self.scene.send(request).answers[0])
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._start_over()
        elif code is not ErrorCode.NONE:
            self._has_to_join = True

    def _start_over(self) -> None:
        self.member_id, self.generation, self._has_to_join = "", -1, True
        self.owned = set()

    def _note(self, response: Any) -> ErrorCode:
        code = ErrorCode(response.code if isinstance(response, KafkaError) else response.error_code)
        self.errors.append(code)
        return code

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Everybody the same number; what another one has yet to give up goes to nobody."""
        owners: dict[tuple[str, int], str] = {}
        for member in joined.members:
            for each in decode(ConsumerProtocolSubscription, 1, member.metadata, 2).owned_partitions:
                owners.update(dict.fromkeys(((each.topic, index) for index in each.partitions), member.member_id))
        ids = sorted(member.member_id for member in joined.members)
        given: dict[str, Owned] = {member_id: set() for member_id in ids}
        count = len(self.scene.image.topics["t"].partitions)
        for partition in range(count):
            member_id = ids[partition * len(ids) // count]
            if owners.get(("t", partition), member_id) == member_id:
                given[member_id].add(("t", partition))
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=write_assignment(owned))
            for member_id, owned in given.items()
        ]


class ConsumerClient:
    """A consumer of the consumer protocol (KIP-848)."""

    def __init__(self, scene: Scene, member_id: str, instance_id: str | None = None) -> None:
        self.scene = scene
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: Owned = set()
        self.errors: list[ErrorCode] = []
        self._asked: Asked | None = None

    @property
    def is_settled(self) -> bool:
        return self._asked is None and self.epoch > 0

    def step(self) -> None:
        if self._asked is None:
            self._asked = self._send(self.epoch)
        if self._asked.answers:
            response, self._asked = self._asked.answers[0], None
            self._on_answer(response)

    def lose_connection(self) -> None:
        """Nobody will answer what it asked."""
        self._asked = None

    def leave(self, epoch: int = -1) -> None:
        self._send(epoch)
        self.owned = set()

    def _send(self, epoch: int) -> Asked:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        if epoch == 0:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = ["t"]
        request.topic_partitions = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id(topic), partitions=partitions)
            for topic, partitions in by_topic(self.owned)
        ]
        return self.scene.send(request)

    def _on_answer(self, response: Any) -> None:
        code = ErrorCode(response.code if isinstance(response, KafkaError) else response.error_code)
        self.errors.append(code)
        if code is not ErrorCode.NONE:
            self.epoch, self.owned = 0, set()
            return
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {
                (topic.topic_id.rstrip(b".").decode(), partition)
                for topic in response.assignment.topic_partitions
                for partition in topic.partitions
            }


Client = ClassicClient | ConsumerClient


def run(scene: Scene, clients: Sequence[Client], rounds: int = 12) -> None:
    """Everybody acts in turn, a heartbeat's time apart."""
    for _ in range(rounds):
        for client in clients:
            client.step()
            check_owners(clients)
            scene.work()
        scene.pass_ms(BEAT_MS)


def settle(scene: Scene, clients: Sequence[Client]) -> None:
    """All partitions are shared out evenly, and nobody has anything left to do."""
    run(scene, clients)
    count = len(scene.image.topics["t"].partitions)
    assert set().union(*(client.owned for client in clients)) == {("t", partition) for partition in range(count)}
    sizes = [len(client.owned) for client in clients]
    assert max(sizes) - min(sizes) <= 1
    assert all(client.is_settled for client in clients)


def check_owners(clients: Iterable[Client]) -> None:
    owners: dict[tuple[str, int], Client] = {}
    for client in clients:
        for partition in client.owned:
            assert partition not in owners, f"{partition} has two owners"
            owners[partition] = client


def by_topic(owned: Owned) -> list[tuple[str, list[int]]]:
    return [(topic, sorted(p for name, p in owned if name == topic)) for topic in sorted({name for name, _ in owned})]


def read_assignment(assignment: bytes) -> Owned:
    if not assignment:
        return set()
    read = decode(ConsumerProtocolAssignment, int.from_bytes(assignment[:2], "big"), assignment, 2)
    return {(each.topic, partition) for each in read.assigned_partitions for partition in each.partitions}


def write_assignment(owned: Owned) -> bytes:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(owned)
        ]
    )
    return (1).to_bytes(2, "big") + bytes(encode(assignment, 1))

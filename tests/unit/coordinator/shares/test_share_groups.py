"""Members of share groups: who has which partitions, and when."""

from typing import Any

import pytest

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.history import History
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.op import Told
from tailrace.coordinator.shares.group import ShareTopic
from tailrace.coordinator.shares.states import begin_deletion, begin_reset, on_deleted, on_initialized
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.groups import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tailrace.wire.apis.shares import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tailrace.wire.schema import Message
from tests.unit.coordinator import scene
from tests.unit.coordinator.scene import Asked

T, U = Uuid(b"t" * 16), Uuid(b"u" * 16)
_PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
JOINING: dict[str, Any] = {
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
}
SESSION_MS, INTERVAL_MS = 45_000, 5_000


def image(**partitions: int) -> MetadataImage:
    ids = {"t": T, "u": U}
    topics = {
        name: TopicImage(name, ids[name], dict.fromkeys(range(count), _PARTITION)) for name, count in partitions.items()
    }
    return MetadataImage("c", topics=topics, topic_names={ids[name]: name for name in topics})


class Owed(Asked):
    """Stands for the one who asks share coordinators."""

    def __init__(self, group_id: str) -> None:
        super().__init__(0)
        self.group_id = group_id


class Scene(scene.Scene):
    def __init__(self, **settings: Any) -> None:
        self.owed: list[Owed] = []
        self.keeps_states = True
        super().__init__(image(t=2), **settings)

    def new_machine(self) -> GroupMachine:
        return GroupMachine(History(groups_max=10, rebalances_max=50), self._owe)

    def _owe(self, group_id: str) -> Told:
        self.owed.append(Owed(group_id))
        return self.owed[-1]

    def durable(self, machine: Any) -> Any:
        return {
            name: (
                group.epoch,
                group.metadata_hash,
                group.assignment_epoch,
                group.members,
                group.targets,
                group.initializing,
                group.initialized,
                group.deleting,
            )
            for name, group in machine.state.groups.items()
        }

    def keep_states(self) -> None:
        """Share coordinators do what they are asked."""
        owed, self.owed = self.owed, []
        for each in owed:
            if each.answer is None:
                continue
            done = {
                Uuid(topic.topic_id): ShareTopic(
                    self.image.topic_names[Uuid(topic.topic_id)],
                    frozenset(partition.partition for partition in topic.partitions),
                )
                for topic in each.answer.topics
            }
            self.apply(on_initialized(self.machine.state, self.call(), each.group_id, done))

    def settle(self) -> None:
        """Everything that is due now, and what follows from it."""
        for _ in range(20):
            self.work()
            if self.keeps_states:
                self.keep_states()
            result = self.machine.on_deadline(self.call())
            if result is not None:
                self.apply(result)

    def beat(self, member: str = "m", epoch: int = 0, topics: list[str] | None = None, group: str = "g") -> Asked:
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
        )
        asked = self.ask(request)
        self.settle()
        return asked

    def join(self, member: str = "m", *topics: str) -> Any:
        return self.beat(member, 0, list(topics) or ["t"]).answer

    def refusal(self, request: Any) -> ErrorCode:
        return self.refusal_of(request)

    def move(self, new: MetadataImage) -> None:
        old, self.image = self.image, new
        for result in self.machine.on_image(self.call(), old):
            self.apply(result)
        self.settle()

    @property
    def group(self) -> Any:
        return self.machine.state.groups["g"]


def parts(answer: Any) -> list[tuple[bytes, list[int]]]:
    return [(each.topic_id, each.partitions) for each in answer.assignment.topic_partitions]


def test_a_member_that_joins_gets_its_partitions_with_the_answer() -> None:
    scene = Scene()
    answer = scene.join()
    assert (answer.error_code, answer.member_id, answer.heartbeat_interval_ms) == (0, "m", INTERVAL_MS)
    assert parts(answer) == [(T, [0, 1])]
    again = scene.beat("m", answer.member_epoch).answer
    assert (again.member_epoch, again.assignment) == (answer.member_epoch, None)


def test_partitions_are_assigned_once_their_state_is_kept() -> None:
    scene = Scene()
    scene.keeps_states = False
    asked = scene.beat("m", 0, ["t"])
    assert asked.is_waiting
    assert scene.group.initializing == {T: ShareTopic("t", frozenset({0, 1}))}
    scene.pass_ms(INTERVAL_MS / 2)
    scene.settle()
    # It is not kept waiting for longer than half of a heartbeat's interval.
    assert parts(asked.answer) == []
    scene.keeps_states = True
    scene.settle()
    assert parts(scene.beat("m", asked.answer.member_epoch).answer) == [(T, [0, 1])]


def test_what_nobody_has_kept_is_asked_for_again() -> None:
    scene = Scene()
    scene.keeps_states = False
    scene.beat("m", 0, ["t"])
    scene.owed.clear()
    for _ in range(8):
        scene.pass_ms(INTERVAL_MS)
        scene.beat("m", scene.group.members["m"].member_epoch)
    assert scene.owed
    scene.keeps_states = True
    scene.settle()
    assert scene.group.initialized == {T: ShareTopic("t", frozenset({0, 1}))}
    # The next coordinator does so too.
    scene.move(image(t=3))
    assert scene.group.initialized[T].partitions == {0, 1, 2}


def test_members_share_partitions_and_learn_of_it() -> None:
    scene = Scene()
    first = scene.join("a")
    scene.pass_ms(2000)
    second = scene.join("b")
    assert parts(second) == [(T, [1])] or parts(second) == [(T, [0])]
    told = scene.beat("a", first.member_epoch).answer
    assert [len(each) for _, each in parts(told)] == [1]
    scene.pass_ms(2000)
    third = scene.join("c")
    assert len(parts(third)) == 1, "with more members than partitions they are shared"
    targets = [each.assigned[T] for each in scene.group.members.values()]
    assert {0, 1} == set().union(*targets)


def test_members_that_join_within_an_interval_are_assigned_together() -> None:
    scene = Scene()
    scene.join("a")
    epoch = scene.group.assignment_epoch
    waiting = [scene.beat(name, 0, ["t"]) for name in ("b", "c")]
    assert all(asked.is_waiting for asked in waiting)
    scene.pass_ms(1000)
    scene.settle()
    assert all(parts(asked.answer) for asked in waiting)
    assert scene.group.assignment_epoch == scene.group.epoch == epoch + 2


def test_a_member_that_is_silent_or_leaves_is_out() -> None:
    scene = Scene()
    scene.join("a")
    scene.pass_ms(30_000)
    scene.join("b")
    scene.pass_ms(SESSION_MS - 30_000)
    scene.settle()
    assert list(scene.group.members) == ["b"]
    assert scene.refusal(heartbeat("a", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.beat("b", -1).answer.member_epoch == -1
    assert scene.group.state_name == "Empty"


def heartbeat(member: str, epoch: int, *, group: str = "g", topics: list[str] | None = None, **fields: Any) -> Any:
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics, **fields
    )


def test_what_is_wrong_is_refused() -> None:
    scene = Scene(group_share_max_size=1)
    epoch = scene.join("m").member_epoch
    refused = {
        ErrorCode.INVALID_REQUEST: [
            heartbeat("", 0, topics=["t"]),
            heartbeat("m", 0, topics=["t"], group=""),
            heartbeat("m", 0),
            heartbeat("m", -2),
            heartbeat("m", 0, topics=["t"], rack_id=""),
        ],
        ErrorCode.GROUP_ID_NOT_FOUND: [heartbeat("m", 1, group="other"), heartbeat("m", -1, group="other")],
        ErrorCode.FENCED_MEMBER_EPOCH: [heartbeat("m", epoch + 1)],
        ErrorCode.UNKNOWN_MEMBER_ID: [heartbeat("n", 1), heartbeat("n", -1)],
        ErrorCode.GROUP_MAX_SIZE_REACHED: [heartbeat("n", 0, topics=["t"])],
    }
    for code, requests in refused.items():
        for request in requests:
            assert scene.refusal(request) is code, request


def test_a_consumer_group_is_no_share_group_and_the_other_way_round() -> None:
    scene = Scene()
    scene.join("m")
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="c", rebalance_timeout_ms=1000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert scene.refusal(joining) is ErrorCode.GROUP_ID_NOT_FOUND
    scene.beat("m", -1)
    assert scene.refusal(joining) is ErrorCode.GROUP_ID_NOT_FOUND, "not even without members"


@pytest.mark.parametrize("has_members", [True, False])
@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (JoinGroupRequest(group_id="g", member_id="", **JOINING), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (JoinGroupRequest(group_id="g", member_id="m", **JOINING), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (SyncGroupRequest(group_id="g", member_id="m", protocol_type="consumer", protocol_name="range"), UNKNOWN),
        (HeartbeatRequest(group_id="g", member_id="m"), UNKNOWN),
        (LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id="m")]), UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_classic_members_find_no_share_group(request_: Message, code: ErrorCode, *, has_members: bool) -> None:
    """As in Kafka. Whatever is asked, the coordinator lives on."""
    scene = Scene()
    epoch = scene.join("m").member_epoch
    if not has_members:
        scene.beat("m", -1)
    for version in request_.versions:
        if isinstance(request_, LeaveGroupRequest):
            answer = scene.ask(request_, version).answer
            assert [each.error_code for each in answer.members] == [code] or answer.error_code == code
        elif not isinstance(request_, SyncGroupRequest | JoinGroupRequest) or version >= 5:
            assert scene.ask(request_, version).answer.error_code == code
    if has_members:
        assert scene.beat("m", epoch).answer.error_code == 0


def test_a_group_is_described_and_deleted_without_members() -> None:
    scene = Scene()
    scene.join("m")
    (group,) = scene.ask(ShareGroupDescribeRequest(group_ids=["g"])).answer.groups
    assert (group.group_state, group.assignor_name, [each.member_id for each in group.members]) == (
        "Stable",
        "simple",
        ["m"],
    )
    (unknown,) = scene.ask(ShareGroupDescribeRequest(group_ids=["x"])).answer.groups
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.refusal(DeleteGroupsRequest(groups_names=["g"])) is ErrorCode.NON_EMPTY_GROUP
    scene.beat("m", -1)
    assert scene.refusal(DeleteGroupsRequest(groups_names=["g"])) is ErrorCode.NONE
    assert scene.machine.state.groups == {}


def test_topics_that_come_and_go_change_assignments() -> None:
    scene = Scene()
    epoch = scene.join("m", "t", "u").member_epoch
    scene.move(image(t=2, u=1))
    told = scene.beat("m", epoch).answer
    assert parts(told) == [(T, [0, 1]), (U, [0])]
    scene.move(image(u=1))
    assert parts(scene.beat("m", told.member_epoch).answer) == [(U, [0])]


def test_start_offsets_are_set_by_a_new_epoch_and_only_without_members() -> None:
    scene = Scene()
    scene.join("m")
    topics = {T: ShareTopic("t", frozenset({0}))}
    with pytest.raises(KafkaError) as failure:
        begin_reset(scene.machine.state, scene.call(), "g", topics)
    assert failure.value.code is ErrorCode.NON_EMPTY_GROUP
    scene.beat("m", -1)
    before = scene.group.epoch
    epoch, result = begin_reset(scene.machine.state, scene.call(), "g", topics)
    scene.apply(result)
    assert epoch == scene.group.epoch == before + 1


def test_offsets_of_a_topic_are_forgotten() -> None:
    scene = Scene()
    scene.join("m")
    scene.beat("m", -1)
    going, result = begin_deletion(scene.machine.state, scene.call(), "g", frozenset({T}))
    scene.apply(result)
    assert going == {T: ShareTopic("t", frozenset({0, 1}))}
    assert scene.group.deleting == {T: "t"}
    scene.apply(on_deleted(scene.machine.state, scene.call(), "g", frozenset({T})))
    assert (scene.group.initialized, scene.group.deleting) == ({}, {})


@pytest.mark.parametrize("has_members", [True, False])
def test_topics_that_are_deleted_are_forgotten(has_members: bool) -> None:
    scene = Scene()
    scene.join("m", "t", "u")
    scene.move(image(t=2, u=1))
    if not has_members:
        scene.beat("m", -1)
    assert scene.group.initialized.keys() == {T, U}
    scene.move(image(u=1))
    assert scene.group.initialized == {U: ShareTopic("u", frozenset({0}))}


def test_a_topic_that_is_deleted_while_its_offsets_are_is_forgotten() -> None:
    scene = Scene()
    scene.join("m")
    scene.beat("m", -1)
    _, result = begin_deletion(scene.machine.state, scene.call(), "g", frozenset({T}))
    scene.apply(result)
    scene.move(image(u=1))
    assert scene.group.deleting == {}

"""What a share coordinator keeps, and whom it fences."""

from typing import Any

from tailrace.controller.image import MetadataImage, PartitionImage, TopicImage
from tailrace.coordinator.share_state.machine import ShareStateMachine
from tailrace.model.errors import ErrorCode
from tailrace.model.ids import NodeId, Uuid
from tailrace.wire.apis.shares import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from tailrace.wire.schema import Message
from tests.unit.coordinator import scene
from tests.unit.coordinator.scene import Asked

TOPIC = Uuid(b"topic-of-shares!")
_PARTITION = PartitionImage((NodeId(1),), (NodeId(1),), NodeId(1), 0, 0)
IMAGE = MetadataImage("c", topics={"t": TopicImage("t", TOPIC, {0: _PARTITION})}, topic_names={TOPIC: "t"})
Range = tuple[int, int, int, int]


class Scene(scene.Scene):
    def __init__(self, **settings: Any) -> None:
        super().__init__(IMAGE, **settings)

    def new_machine(self) -> ShareStateMachine:
        return ShareStateMachine()

    def durable(self, machine: Any) -> Any:
        return machine.states

    def initialize(self, start_offset: int = -1, state_epoch: int = 1) -> ErrorCode:
        request = InitializeShareGroupStateRequest
        data = request.PartitionData(partition=0, state_epoch=state_epoch, start_offset=start_offset)
        return self._about(request, request.InitializeStateData, data)

    def write(self, *batches: Range, start_offset: int = -1, leader_epoch: int = 0, state_epoch: int = 1) -> ErrorCode:
        request = WriteShareGroupStateRequest
        data = request.PartitionData(
            partition=0,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=len(batches),
            state_batches=[
                request.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        return self._about(request, request.WriteStateData, data)

    def read(self, leader_epoch: int = 0) -> tuple[int, int, list[Range]]:
        data = ReadShareGroupStateRequest.PartitionData(partition=0, leader_epoch=leader_epoch)
        found = self._result(self._ask(ReadShareGroupStateRequest, ReadShareGroupStateRequest.ReadStateData, data))
        batches = [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        ]
        return found.state_epoch, found.start_offset, batches

    def refused_read(self, leader_epoch: int) -> ErrorCode:
        data = ReadShareGroupStateRequest.PartitionData(partition=0, leader_epoch=leader_epoch)
        return self._about(ReadShareGroupStateRequest, ReadShareGroupStateRequest.ReadStateData, data)

    def summary(self) -> Any:
        request = ReadShareGroupStateSummaryRequest
        data = request.PartitionData(partition=0, leader_epoch=0)
        return self._result(self._ask(request, request.ReadStateSummaryData, data))

    def delete(self) -> ErrorCode:
        request = DeleteShareGroupStateRequest
        return self._about(request, request.DeleteStateData, request.PartitionData(partition=0))

    def _about(self, request: type[Message], topic: Any, data: Any) -> ErrorCode:
        return self.refusal_of(self._request(request, topic, data))

    def _ask(self, request: type[Message], topic: Any, data: Any) -> Asked:
        return self.ask(self._request(request, topic, data))

    @staticmethod
    def _request(request: Any, topic: Any, data: Any) -> Message:
        made: Message = request(group_id="g", topics=[topic(topic_id=TOPIC, partitions=[data])])
        return made

    @staticmethod
    def _result(asked: Asked) -> Any:
        ((partition,),) = [result.partitions for result in asked.answer.results]
        return partition

    def kinds(self) -> list[str]:
        return ["update" if written.key[:2] == b"\0\1" else "snapshot" for written in self.log]


def test_what_was_written_is_read() -> None:
    scene = Scene()
    assert scene.refused_read(0) is ErrorCode.INVALID_REQUEST
    assert scene.write() is ErrorCode.INVALID_REQUEST
    assert scene.initialize() is ErrorCode.NONE
    assert scene.read(leader_epoch=3) == (1, -1, [])
    assert scene.write((0, 9, 2, 1), (10, 14, 0, 1), start_offset=0, leader_epoch=3) is ErrorCode.NONE
    assert scene.write((10, 12, 4, 2), start_offset=5, leader_epoch=3) is ErrorCode.NONE
    assert scene.read(leader_epoch=3) == (1, 5, [(5, 9, 2, 1), (10, 12, 4, 2), (13, 14, 0, 1)])
    summary = scene.summary()
    assert (summary.start_offset, summary.leader_epoch, summary.delivery_complete_count) == (5, 3, 1)


def test_an_older_leader_is_fenced() -> None:
    scene = Scene()
    scene.initialize()
    scene.read(leader_epoch=4)
    assert scene.write((0, 0, 2, 1), start_offset=0, leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.refused_read(3) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.refused_read(-1) is ErrorCode.NONE


def test_who_does_not_know_of_a_reset_is_fenced() -> None:
    scene = Scene()
    scene.initialize(state_epoch=1)
    scene.write((0, 9, 2, 1), start_offset=0)
    assert scene.initialize(start_offset=3, state_epoch=2) is ErrorCode.NONE
    assert scene.write((0, 9, 2, 1), start_offset=0, state_epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    assert scene.initialize(start_offset=0, state_epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    assert scene.read() == (2, 3, [])


def test_after_so_many_updates_there_is_a_snapshot() -> None:
    scene = Scene(share_coordinator_snapshot_update_records_per_snapshot=2)
    scene.initialize()
    for offset in range(6):
        scene.write((offset, offset, 2, 1), start_offset=0)
    assert scene.kinds() == ["snapshot", "update", "update", "snapshot", "update", "update", "snapshot"]
    assert scene.read() == (1, 0, [(0, 5, 2, 1)])


def test_everything_is_written_once_more_before_the_log_is_cut() -> None:
    scene = Scene()
    scene.initialize()
    scene.write((0, 3, 2, 1), start_offset=0)
    told = Asked(0)
    before = scene.read()
    written = len(scene.log)
    scene.machine.renew(told, DeleteShareGroupStateRequest())
    scene.work()
    assert told.answers
    del scene.log[:written]
    scene.check_replay()
    assert scene.read() == before


def test_what_is_deleted_is_gone_and_so_is_a_deleted_topic() -> None:
    scene = Scene()
    scene.initialize()
    assert scene.delete() is ErrorCode.NONE
    assert scene.delete() is ErrorCode.NONE
    assert scene.refused_read(0) is ErrorCode.INVALID_REQUEST
    scene.initialize()
    old, scene.image = scene.image, MetadataImage("c")
    for result in scene.machine.on_image(scene.call(), old):
        scene.apply(result)
    assert scene.machine.states == {}
    assert scene.initialize() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

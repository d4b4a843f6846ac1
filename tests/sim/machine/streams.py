"""A member of a streams group as a machine sees it: a thread of an application, which follows the rules of Kafka's own
client.

Active tasks count as the partitions that they read. Of copies of their state another promise is checked: a process has
a task once, as active one or as a copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.errors import ErrorCode
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.sim.checks.groups import GroupChecks
from tailrace.wire.apis.groups import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from tests.sim.machine.bench import Asked
from tests.sim.machine.members import REBALANCE_MS, ModelMember, by_topic

# Subtopology -> the topic that it reads. That of events has a state.
_READS = {"0": "events", "1": "orders"}
CHANGELOG = "app-events-changelog"
_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_Request = StreamsGroupHeartbeatRequest


class StreamsMember(ModelMember):
    def __init__(self, *facts: object, process: str, copies: GroupChecks) -> None:
        """`copies` judges which process has which task."""
        super().__init__(*facts)  # type: ignore[arg-type]
        self.member_id = f"{self.name}-id"
        self.topics = sorted(_READS.values())
        self.standby: set[TopicPartition] = set()
        self._process = process
        self._copies = copies
        self._target: tuple[set[TopicPartition], set[TopicPartition]] | None = None
        self._told: tuple[set[TopicPartition], set[TopicPartition]] | None = None
        self._connections = 0

    def lose_answer(self) -> None:
        super().lose_answer()
        self._told = None
        self._connections += 1

    def die(self) -> None:
        super().die()
        self._copies.note_gone(self)

    def ask(self) -> None:
        if self._target is not None:
            self._move(*self._target)
            self._target = None
        is_joining = self.epoch <= 0
        held = set(self.owned), set(self.standby)
        tells = is_joining or (held != self._told and (self._told is not None or any(held)))
        self._told = held if tells else self._told
        request = _Request(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=max(self.epoch, 0),
            rebalance_timeout_ms=REBALANCE_MS if is_joining else -1,
            process_id=self._process if is_joining else None,
            topology=_topology() if is_joining else None,
            active_tasks=_task_ids(self.owned) if tells else None,
            standby_tasks=_task_ids(self.standby) if tells else None,
            warmup_tasks=[] if tells else None,
        )
        peer = f"127.0.0.1:{50_000 + self._connections}"
        self.asked = self.bench.ask(request, client_id=self.name, peer=peer)

    def hear(self, asked: Asked) -> None:
        answer = asked.answer
        if asked.error in _AGAIN:
            self._move(set(), set())
            self.epoch, self._target, self._told = 0, None, None
        elif isinstance(answer, StreamsGroupHeartbeatResponse):
            self.session.hear(asked.asked_ms / 1000)
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None and answer.standby_tasks is not None:
                self._target = _partitions(answer.active_tasks), _partitions(answer.standby_tasks)
        else:
            self._told = None

    def leave(self) -> None:
        self._move(set(), set())
        request = _Request(group_id=self.group_id, member_id=self.member_id, member_epoch=-1)
        self.bench.ask(request, client_id=self.name)
        self.die()

    def _move(self, active: set[TopicPartition], standby: set[TopicPartition]) -> None:
        """Gives up what it is no longer to have, and then takes what is new."""
        leaving = (self.owned - active) | (self.standby - standby)
        self._copies.note_given_up(self, self._in_process(leaving))
        self.give_up(self.owned - active)
        self._copies.note_assigned(self, self._in_process((active - self.owned) | (standby - self.standby)))
        self.take(active)
        self.standby = standby

    def _in_process(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(f"{self._process}: {topic}", index) for topic, index in sorted(partitions)]


def _topology() -> _Request.Topology:
    stored = _Request.TopicInfo(name=CHANGELOG)
    return _Request.Topology(
        subtopologies=[
            _Request.Subtopology(
                subtopology_id=name,
                source_topics=[topic],
                state_changelog_topics=[stored] if topic == "events" else [],
            )
            for name, topic in _READS.items()
        ]
    )


def _task_ids(partitions: Iterable[TopicPartition]) -> list[_Request.TaskIds]:
    names = {topic: name for name, topic in _READS.items()}
    return [
        _Request.TaskIds(subtopology_id=names[topic], partitions=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]


def _partitions(tasks: Iterable[StreamsGroupHeartbeatResponse.TaskIds]) -> set[TopicPartition]:
    return {
        TopicPartition(_READS[each.subtopology_id], PartitionIndex(index))
        for each in tasks
        for index in each.partitions
    }

"""Members of a classic group and their coordinator: the machine, its log, and a clock that tests move.

After every op the log is replayed by a second machine, which must hold the same groups.
"""

from typing import Any

from tailrace.controller.image import MetadataImage
from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.coordinator.history import History, Rebalance
from tailrace.coordinator.machine import GroupMachine
from tailrace.coordinator.op import Call, Result, Steps
from tailrace.model.config import BrokerConfig
from tailrace.model.errors import ErrorCode
from tailrace.sim.random import SimRandom
from tailrace.wire.apis.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tailrace.wire.apis.stored import GROUP_RECORDS, ConsumerProtocolSubscription
from tailrace.wire.compile import encode
from tailrace.wire.schema import Message
from tailrace.wire.stored import decode_coordinator_record, encode_coordinator_key, encode_coordinator_value

GROUP = "g"
START_MS = 1_000_000
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, version: int = 0) -> bytes:
    body = encode(ConsumerProtocolSubscription(topics=list(topics)), version)
    return version.to_bytes(2, "big") + bytes(body)


RANGE = ("range", subscription("t"))
ROUNDROBIN = ("roundrobin", subscription("t"))


def run(steps: Steps) -> Result:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Result = done.value
            return result


class Asked:
    """A request, and what came back; a Caller to the machine."""

    client_host = "/127.0.0.1"
    is_over = False

    def __init__(self, api_version: int, client_id: str) -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.answers: list[Any] = []

    @property
    def is_waiting(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        """Of the type that was asked for; a request is answered once."""
        (answer,) = self.answers
        return answer

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)


class Scene:
    def __init__(self, **settings: Any) -> None:
        self.config = BrokerConfig(node_id=1, **{"group_initial_rebalance_delay_ms": DELAY_MS, **settings})
        self.monotonic_ms = 0.0
        self.log: list[tuple[bytes, bytes | None]] = []
        # Whether records are too large, and who was told so.
        self.refuses = False
        self.refused: list[Any] = []
        self.machine = self._new_machine()
        self._random = SimRandom(1)

    @property
    def group(self) -> ClassicGroup:
        group = self.machine.state.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def history(self) -> list[Rebalance]:
        return list(self.machine.state.history.of(GROUP))

    def call(self) -> Call:
        now_ms = START_MS + int(self.monotonic_ms)
        return Call(now_ms, self.monotonic_ms, MetadataImage("cluster"), self.config, self._random)

    def ask(self, request: Message, version: int | None = None, client_id: str = "app") -> Asked:
        asked = Asked(request.versions[-1] if version is None else version, client_id)
        self._apply(self.machine.op(self.call(), asked, request))
        return asked

    def pass_ms(self, duration_ms: float) -> None:
        """Deadlines are met one after the other, each at its time."""
        end_ms = self.monotonic_ms + duration_ms
        while (due_ms := self.machine.next_deadline_ms()) is not None and due_ms <= end_ms:
            self.monotonic_ms = max(self.monotonic_ms, due_ms)
            result = self.machine.on_deadline(self.call())
            assert result is not None
            self._apply(result)
        self.monotonic_ms = end_ms

    def fail_over(self) -> None:
        """Another coordinator, which has the log and nothing else."""
        self.machine = self._replayed()
        for result in self.machine.on_loaded(self.call()):
            self._apply(result)
        while (steps := self.machine.take_work(self.call())) is not None:
            self._apply(run(steps))

    def join(
        self,
        member_id: str = "",
        *protocols: tuple[str, bytes],
        version: int = 9,
        client_id: str = "app",
        **fields: Any,
    ) -> Asked:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols or (RANGE,)
            ],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        asked = self.ask(request, version, client_id)
        assert all(isinstance(answer, JoinGroupResponse) for answer in asked.answers)
        return asked

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any
    ) -> Asked:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=generation,
            member_id=member_id,
            protocol_type=self.group.protocol_type,
            protocol_name=self.group.protocol_name or "",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                for each, assignment in (assignments or {}).items()
            ],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        asked = self.ask(request)
        assert all(isinstance(answer, SyncGroupResponse) for answer in asked.answers)
        return asked

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        asked = self.ask(request)
        assert isinstance(asked.answer, HeartbeatResponse)
        return asked.error

    def leave(self, *members: tuple[str, str | None]) -> list[ErrorCode]:
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id, reason="closed")
            for member_id, instance_id in members
        ]
        response = self.ask(LeaveGroupRequest(group_id=GROUP, members=identities)).answer
        assert isinstance(response, LeaveGroupResponse)
        assert response.error_code == ErrorCode.NONE
        assert [(each.member_id, each.group_instance_id) for each in response.members] == list(members)
        return [ErrorCode(each.error_code) for each in response.members]

    def new_member_id(self, **fields: Any) -> str:
        """Joins for the first time (KIP-394)."""
        asked = self.join(**fields)
        assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
        member_id = asked.answer.member_id
        assert isinstance(member_id, str)
        return member_id

    def stable(self, count: int, *protocols: tuple[str, bytes], **fields: Any) -> list[str]:
        """A group of dynamic members in its first generation, each assigned its own member id; the first one leads."""
        ids = [self.new_member_id(**fields) for _ in range(count)]
        joins = [self.join(member_id, *protocols, **fields) for member_id in ids]
        self.pass_ms(DELAY_MS)
        if count > 1:
            self.pass_ms(DELAY_MS)
        assert [asked.error for asked in joins] == [ErrorCode.NONE] * count
        self.sync_all(ids)
        return ids

    def sync_all(self, ids: list[str]) -> None:
        """The followers first."""
        generation, leader = self.group.generation, self.group.leader_id
        waiting = [self.sync(each, generation) for each in ids if each != leader]
        assert leader is not None
        waiting.append(self.sync(leader, generation, {each: each.encode() for each in ids}))
        assert [asked.error for asked in waiting] == [ErrorCode.NONE] * len(ids)
        assert self.group.state == "Stable"

    def _apply(self, result: Result) -> None:
        if result.records and self.refuses:
            assert result.on_refused is not None
            self.refused += [asked for asked, _ in result.answers]
            self._apply(result.on_refused(self.call()))
            return
        for key, value, version in result.records:
            encoded = None if value is None else encode_coordinator_value(value, version)
            self.log.append((encode_coordinator_key(key), encoded))
            self.machine.replay(key, value)
        for asked, response in result.answers:
            assert isinstance(asked, Asked)
            # What cannot be encoded would reach nobody.
            encode(response, asked.api_version)
            asked.answers.append(response)
        assert _stored(self._replayed()) == _stored(self.machine)

    def _replayed(self) -> GroupMachine:
        machine = self._new_machine()
        for key, value in self.log:
            machine.replay(*decode_coordinator_record(GROUP_RECORDS, key, value))
        return machine

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(History(groups_max=10, rebalances_max=50))


def _stored(machine: GroupMachine) -> dict[str, Message | None]:
    return {name: group.stored for name, group in machine.state.groups.items() if isinstance(group, ClassicGroup)}

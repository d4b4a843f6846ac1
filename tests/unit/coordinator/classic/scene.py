"""Members of a classic group and what they ask of its coordinator."""

from typing import Any

from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.coordinator.history import Rebalance
from tailrace.coordinator.op import Result
from tailrace.model.errors import ErrorCode
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
from tailrace.wire.apis.stored_records import ConsumerProtocolSubscription
from tailrace.wire.compile import encode
from tailrace.wire.schema import Message
from tests.unit.coordinator import scene
from tests.unit.coordinator.scene import Asked

GROUP = "g"
DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str, version: int = 0) -> bytes:
    body = encode(ConsumerProtocolSubscription(topics=list(topics)), version)
    return version.to_bytes(2, "big") + bytes(body)


RANGE = ("range", subscription("t"))
ROUNDROBIN = ("roundrobin", subscription("t"))


class Scene(scene.Scene):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"group_initial_rebalance_delay_ms": DELAY_MS, **settings})
        # Whether records are too large, and who was told so.
        self.refuses = False
        self.refused: list[Any] = []

    @property
    def group(self) -> ClassicGroup:
        group = self.machine.state.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def history(self) -> list[Rebalance]:
        return list(self.machine.state.history.of(GROUP))

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

    def apply(self, result: Result) -> None:
        if result.records and self.refuses:
            assert result.on_refused is not None
            self.refused += [asked for asked, _ in result.answers]
            result = result.on_refused(self.call())
        super().apply(result)

    def durable(self, machine: Any) -> dict[str, Message | None]:
        return stored(machine)


def stored(machine: Any) -> dict[str, Message | None]:
    """The classic groups of a machine, as they are in the log."""
    return {name: group.stored for name, group in machine.state.groups.items() if isinstance(group, ClassicGroup)}

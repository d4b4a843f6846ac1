"""The clients of a scenario, in front of some coordinator: they remember their ids, and write down what they hear."""

from typing import Any, Protocol

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tailrace.wire.apis.stored_records import GroupMetadataValue
from tailrace.wire.schema import Message
from tests.golden.groups.scenarios import RANGE, REBALANCE_MS, SESSION_MS, STEP_MS


class Coordinator(Protocol):
    def send(self, number: int, request: Message, version: int, client_id: str) -> None:
        """The answer, if it ever comes, is told by this number."""

    def pass_ms(self, duration_ms: int) -> None: ...

    def take_answers(self) -> list[tuple[int, Message]]:
        """Those that have come since the last time."""

    def stored(self, group_id: str) -> list[GroupMetadataValue | None]:
        """All that was ever stored of the group, in order."""


class Clients:
    def __init__(self, coordinator: Coordinator, group_id: str) -> None:
        self.transcript: list[str] = []
        self._coordinator = coordinator
        self._group_id = group_id
        self._asked: list[tuple[str, str]] = []  # By number: the client, and what it did.
        self._ids: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}  # By member id: the client, and how many ids it has had.
        self._joined: dict[str, JoinGroupResponse] = {}  # The last good answer of each client.

    def join(
        self, client: str, *protocols: tuple[str, bytes], version: int = 9, new: bool = False, **fields: Any
    ) -> None:
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id="" if new else self._member_id(client),
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols or (RANGE,)
            ],
        )
        self._do(client, "join", request, version, fields)

    def sync(self, client: str, assigns: str = "", version: int = 5, **fields: Any) -> None:
        joined = self._joined.get(client, JoinGroupResponse(protocol_type="consumer", protocol_name="range"))
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self._member_id(client),
            protocol_type=joined.protocol_type or "consumer",
            protocol_name=joined.protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(
                    member_id=self._member_id(each), assignment=f"for {each}".encode()
                )
                for each in assigns
            ],
        )
        self._do(client, "sync", request, version, fields)

    def heartbeat(self, client: str, **fields: Any) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self._joined[client].generation_id if client in self._joined else -1,
            member_id=self._member_id(client),
        )
        self._do(client, "heartbeat", request, 4, fields)

    def leave(self, *clients: str, version: int = 5, instances: str = "", reason: str | None = None) -> None:
        identities = [
            LeaveGroupRequest.MemberIdentity(
                member_id=self._member_id(client), group_instance_id=instances or None, reason=reason
            )
            for client in clients
        ]
        request = LeaveGroupRequest(group_id=self._group_id, member_id=self._member_id(clients[0]), members=identities)
        self._do(" and ".join(clients), "leave", request, version, {})

    def leave_id(self, member_id: str, instance: str | None = None) -> None:
        identity = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
        self._do("admin", "leave", LeaveGroupRequest(group_id=self._group_id, members=[identity]), 5, {})

    def wait(self, duration_ms: int) -> None:
        self._coordinator.pass_ms(duration_ms)
        self.transcript.append(f"after {duration_ms} ms")
        self._note_answers()

    def finish(self) -> list[str]:
        """The transcript, with what was stored."""
        stored = self._coordinator.stored(self._group_id)
        return [*self.transcript, *(f"stored {self._show_stored(value)}" for value in stored)]

    def _do(self, client: str, what: str, request: Message, version: int, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            setattr(request, name, value)
        number = len(self._asked)
        self._asked.append((client, f"{what} of {client}"))
        shown = "".join(f" {name}={value!r}" for name, value in fields.items())
        self.transcript.append(f"{number}: {what} of {client} v{version}{shown}")
        self._coordinator.send(number, request, version, client)
        self._coordinator.pass_ms(STEP_MS)
        self._note_answers()

    def _note_answers(self) -> None:
        answers = sorted(self._coordinator.take_answers(), key=lambda each: each[0])
        for number, answer in answers:
            if isinstance(answer, JoinGroupResponse):
                self._learn(self._asked[number][0], answer)
        for number, answer in answers:
            self.transcript.append(f"  {number}: {self._asked[number][1]}: {self._show(answer)}")

    def _learn(self, client: str, answer: JoinGroupResponse) -> None:
        if answer.member_id and answer.member_id not in self._names and answer.error_code in _WITH_NEW_ID:
            ids = self._ids.setdefault(client, [])
            ids.append(answer.member_id)
            self._names[answer.member_id] = f"{client}{len(ids)}"
        if answer.error_code == ErrorCode.NONE:
            self._joined[client] = answer

    def _member_id(self, client: str) -> str:
        if client.startswith("old "):
            return self._ids[client.removeprefix("old ")][-2]
        return self._ids.get(client, ["none"])[-1]

    def _name(self, member_id: str | None) -> str:
        return self._names.get(member_id or "", repr(member_id))

    def _show(self, answer: Message) -> str:
        error = ErrorCode(answer.error_code).name  # type: ignore[attr-defined]
        if isinstance(answer, JoinGroupResponse):
            members = sorted(
                f"{self._name(each.member_id)} instance={each.group_instance_id} {each.metadata!r}"
                for each in answer.members
            )
            return (
                f"{error} generation={answer.generation_id} protocol={answer.protocol_name!r}"
                f" type={answer.protocol_type!r} leader={self._name(answer.leader)} skip={answer.skip_assignment}"
                f" member={self._name(answer.member_id)} members={members}"
            )
        if isinstance(answer, SyncGroupResponse):
            return f"{error} {answer.protocol_type!r} {answer.protocol_name!r} {answer.assignment!r}"
        if isinstance(answer, LeaveGroupResponse):
            members = [
                f"{self._name(each.member_id)} instance={each.group_instance_id} {ErrorCode(each.error_code).name}"
                for each in answer.members
            ]
            return f"{error} {members}"
        return error

    def _show_stored(self, value: GroupMetadataValue | None) -> str:
        if value is None:
            return "tombstone"
        members = sorted(
            f"{self._name(each.member_id)} instance={each.group_instance_id} client={each.client_id}"
            f" host={each.client_host} rebalance={each.rebalance_timeout} session={each.session_timeout}"
            f" {each.subscription!r} {each.assignment!r}"
            for each in value.members
        )
        return (
            f"generation={value.generation} protocol={value.protocol!r} type={value.protocol_type!r}"
            f" leader={self._name(value.leader)} has_time={value.current_state_timestamp > 0} members={members}"
        )


_WITH_NEW_ID = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.FENCED_INSTANCE_ID)

"""What an op on a classic group decides, gathered step by step: records and answers."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.coordinator.classic.member import ClassicMember
from tailrace.coordinator.groups import GroupState
from tailrace.coordinator.history import Cause, Rebalance
from tailrace.coordinator.op import Call, Caller, Result, StoredRecord
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.groups import JoinGroupResponse
from tailrace.wire.apis.stored_records import GroupMetadataKey, GroupMetadataValue
from tailrace.wire.schema import Message

# The one that Kafka 4.3 writes.
_VERSION = 3
# From here on a JoinGroupResponse may name no protocol.
_NO_PROTOCOL_VERSION = 7


class ClassicGroupChange:
    def __init__(self, state: GroupState, call: Call) -> None:
        self.state = state
        self.call = call
        self.records: list[StoredRecord] = []
        self.answers: list[tuple[Caller, Message]] = []
        # What to do if the records are too large to be written. The records of most ops are small.
        self.on_refused: Callable[[Call], Result] | None = None

    def result(self) -> Result:
        return Result(self.records, self.answers, on_refused=self.on_refused)

    def answer(self, caller: Caller | None, response: Message) -> None:
        if caller is not None:
            self.answers.append((caller, response))

    def refuse_join(self, caller: Caller | None, code: ErrorCode, member_id: str = "") -> None:
        if caller is not None:
            protocol_name = None if caller.api_version >= _NO_PROTOCOL_VERSION else ""
            self.answer(caller, JoinGroupResponse(error_code=code, protocol_name=protocol_name, member_id=member_id))

    def write(self, group: ClassicGroup, value: GroupMetadataValue) -> None:
        group.unreplayed.append(value)
        self.records.append(StoredRecord(GroupMetadataKey(group=group.group_id), value, _VERSION))

    def extend_session(self, group: ClassicGroup, member: ClassicMember) -> None:
        group.extend_session(member, self.call, self.state.deadlines)

    def note(self, group: ClassicGroup, why: Why) -> None:
        self.state.history.note(group.group_id, why.rebalance(self.call.now_ms, group.generation))


class Why:
    """Why a group rebalances, for its history."""

    def __init__(self, cause: Cause, detail: str, member: ClassicMember | None = None) -> None:
        self._cause = cause
        self._detail = detail
        # A member that is replaced changes its id, so it is looked at now.
        self._member_id = member.member_id if member else ""
        self._client_id = member.client_id if member else ""

    def rebalance(self, now_ms: int, generation: int) -> Rebalance:
        return Rebalance(now_ms, self._cause, self._detail, generation, self._member_id, self._client_id)


def stored_group(group: ClassicGroup) -> GroupMetadataValue:
    """A group with its members, as Kafka stores it once a generation has its assignment, or is empty."""
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=member.assignment,
        )
        for member in group.members.values()
    ]
    return GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=_timestamp(group),
        members=members,
    )


def stored_rebalancing_group(group: ClassicGroup) -> GroupMetadataValue:
    """A group that was a consumer group until now, and begins as a classic one with a rebalance, which its next
    coordinator is to go on with: it has no leader, for nobody has assigned yet. And no member is in the generation that
    is stored, so that a coordinator that takes the group for a stable one, as Kafka's does, has them join again too."""
    value = stored_group(group)
    value.leader = None
    value.generation += 1
    return value


def is_rebalancing(value: GroupMetadataValue) -> bool:
    return bool(value.members) and value.leader is None


def stored_new_group(group: ClassicGroup) -> GroupMetadataValue:
    """A group whose first members are only gathering: that it exists."""
    return GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=_timestamp(group))


def _timestamp(group: ClassicGroup) -> int:
    return -1 if group.state_since_ms is None else group.state_since_ms

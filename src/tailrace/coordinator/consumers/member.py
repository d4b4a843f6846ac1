"""A member of a consumer group, as the log tells it. Never changed: an op makes a new one, replay puts it in place."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from tailrace.model.ids import Uuid
from tailrace.wire.apis.stored_records import ConsumerGroupMemberMetadataValue

# Topic -> partition -> the epoch in which the member got it. A topic without partitions is left out.
Assigned = Mapping[Uuid, Mapping[int, int]]

# The epochs that a heartbeat joins and leaves with; LEAVE_STATIC: for a while, the instance id stays taken.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of the stored record."""

    STABLE = 0
    # It has yet to confirm that it gave up partitions.
    UNREVOKED_PARTITIONS = 1
    # It waits for partitions that others have yet to give up.
    UNRELEASED_PARTITIONS = 2
    # Written by a version that knows more states.
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in _STATES else cls.UNKNOWN


_STATES = frozenset(int(state) for state in MemberState)


class Member(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    # Sorted.
    subscribed_topic_names: tuple[str, ...] = ()
    # Empty for none.
    subscribed_topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    # Set for a member that still speaks the classic protocol.
    classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None
    # LEAVE_STATIC_EPOCH while a static member is away.
    member_epoch: int = 0
    # The one before: the answer that told of member_epoch may have been lost.
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = {}
    # Still the member's own, until it confirms. No partition is in both.
    pending_revocation: Assigned = {}

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def with_epoch(self, epoch: int) -> Member:
        return self._replace(member_epoch=epoch, previous_member_epoch=self.member_epoch)

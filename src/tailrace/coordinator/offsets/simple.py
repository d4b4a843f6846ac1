"""Groups that only have offsets: their consumers choose partitions themselves, and never join.

Nothing is stored about such a group but its offsets. It exists while it has any, and is, to those who ask, an empty
classic group without a protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from tailrace.coordinator.groups import Group, GroupDeadlines, GroupState, GroupType
from tailrace.coordinator.op import Call, StoredRecord
from tailrace.model.errors import ErrorCode, KafkaError


class SimpleGroup:
    """Satisfies groups.Group."""

    __slots__ = ("group_id",)

    type = GroupType.CLASSIC
    state_name = "Empty"
    protocol_type = ""
    is_empty = True
    # Its offsets expire by the times at which they were committed.
    empty_since_ms = None

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    def is_subscribed_to(self, topic: str) -> bool:
        del topic
        return False

    def check_offset_commit(self, *, member_id: str, generation: int, **_rest: object) -> None:
        if generation >= 0:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"The group '{self.group_id}' has no members, so not {member_id}.",
            )

    def check_offset_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        pass

    def check_offset_delete(self) -> None:
        pass

    def check_deletion(self) -> None:
        pass

    def note_commit(self, member_id: str, call: Call, deadlines: GroupDeadlines) -> None:
        pass

    def deletion_records(self) -> Sequence[StoredRecord]:
        return ()


def find_group(state: GroupState, group_id: str) -> Group | None:
    group = state.groups.get(group_id)
    if group is None and state.offsets.has_group(group_id):
        return SimpleGroup(group_id)
    return group


def all_group_ids(state: GroupState) -> Iterator[str]:
    """The ids of all groups that there are now, whatever comes and goes meanwhile. Those with members and offsets come
    twice: to leave that out for 100,000 groups takes too long for one turn."""
    return chain(list(state.groups), state.offsets.group_ids())

"""How far a group has got in each partition, and who reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.client.groups.admin import GroupMember, PartitionLag
from tailrace.model.ids import TopicPartition


class Progress(NamedTuple):
    """Of one partition. None where there is none, or it is not known."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    member: GroupMember | None
    judged: PartitionLag | None = None  # By the coordinator, some seconds ago.

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


def find_progress(
    members: Sequence[GroupMember],
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    judged: Mapping[TopicPartition, PartitionLag] | None = None,
) -> list[Progress]:
    """Of all partitions that the group has committed, or that a member has."""
    owners = {partition: member for member in members for partition in member.assignment}
    judged = judged or {}
    return [
        Progress(each, committed.get(each), ends.get(each), owners.get(each), judged.get(each))
        for each in sorted({*committed, *owners})
    ]


def total_lag(progress: Sequence[Progress]) -> int:
    """In records."""
    return sum(each.lag or 0 for each in progress)

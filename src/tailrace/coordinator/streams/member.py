"""A member of a streams group, as the log tells it, and the tasks that it has. Never changed: an op makes a new one,
replay puts it in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from tailrace.coordinator.assignors.sticky import Target, TaskId, Tasks

# Subtopology -> partition -> the epoch in which the member got the task. A subtopology without any is left out.
ActiveTasks = Mapping[str, Mapping[int, int]]

# The epochs that a heartbeat joins and leaves with; LEAVE_STATIC is for static members, which there are not yet.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of the stored record."""

    STABLE = 1
    # It has yet to confirm that it gave up tasks.
    UNREVOKED_TASKS = 2
    # It waits for tasks that others, or its own process, have yet to give up.
    UNRELEASED_TASKS = 3
    # Written by a version that knows more states.
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in _STATES else cls.UNKNOWN


_STATES = frozenset(int(state) for state in MemberState)


class Held(NamedTuple):
    """Tasks that a member has."""

    active: ActiveTasks = {}
    standby: Tasks = {}
    warmup: Tasks = {}

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def overlaps(self, tasks: Target) -> bool:
        pairs = ((self.active, tasks.active), (self.standby, tasks.standby), (self.warmup, tasks.warmup))
        return any(
            not partitions.isdisjoint(held.get(name, ())) for held, told in pairs for name, partitions in told.items()
        )

    def is_same(self, tasks: Target) -> bool:
        active = {name: frozenset(epochs) for name, epochs in self.active.items()}
        return (active, self.standby, self.warmup) == tasks

    def holds(self, tasks: Target) -> bool:
        """All of them."""
        pairs = ((self.active, tasks.active), (self.standby, tasks.standby), (self.warmup, tasks.warmup))
        return all(partitions <= set(held.get(name, ())) for held, told in pairs for name, partitions in told.items())


class StreamsMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    # Members of one process share its disk: a task is there once.
    process_id: str = ""
    # Host and port at which the application answers queries about its state.
    endpoint: tuple[str, int] | None = None
    # Sorted.
    client_tags: tuple[tuple[str, str], ...] = ()
    member_epoch: int = 0
    # The one before: the answer that told of member_epoch may have been lost.
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Held = Held()
    # Still the member's own, until it confirms. No task is in both.
    pending_revocation: Held = Held()

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def with_epoch(self, epoch: int) -> StreamsMember:
        return self._replace(member_epoch=epoch, previous_member_epoch=self.member_epoch)


def task_ids(tasks: Mapping[str, Iterable[int]]) -> Iterator[TaskId]:
    return ((name, index) for name, partitions in tasks.items() for index in partitions)

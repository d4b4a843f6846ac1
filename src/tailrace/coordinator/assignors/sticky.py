"""Kafka's `sticky` assignor of streams groups: which member runs a task, and which processes keep a copy of its state.

A task goes, as long as its member has room for it, to who runs it already, then to who keeps a copy of its state, and
else to the process with the least load. Members get as many active tasks, and as many tasks in all, as any other, give
or take one. A process has a task once: as active one, or as one of its standbys.

At first the tasks of a subtopology lie side by side, so they are looked at in the order of partitions when they stay,
and in that of subtopologies when they move.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

# Subtopology -> partitions; a subtopology without any is left out.
Tasks = Mapping[str, frozenset[int]]
TaskId = tuple[str, int]

# Tasks that are placed between two steps, each in some microseconds.
_STEP_TASKS = 100


class TaskSpec(NamedTuple):
    """A subtopology as an assignor sees it."""

    task_count: int
    # It keeps a state, of which there may be copies.
    is_stateful: bool


class TaskMemberSpec(NamedTuple):
    process_id: str
    # Its last target.
    active: Tasks = {}
    standby: Tasks = {}


class Target(NamedTuple):
    """What a member is to have."""

    active: Tasks = {}
    standby: Tasks = {}
    # Kafka has them in its records and assigns none yet.
    warmup: Tasks = {}


def assign(
    members: Mapping[str, TaskMemberSpec], subtopologies: Mapping[str, TaskSpec], standby_count: int
) -> Generator[None, None, dict[str, Target]]:
    """In steps; few tasks take none."""
    if not members:
        return {}
    plan = _Plan(members, subtopologies, standby_count)
    yield from plan.place_active()
    if standby_count:
        yield from plan.place_standbys()
    targets: dict[str, Target] = {}
    for count, member_id in enumerate(members):
        targets[member_id] = Target(_by_subtopology(plan.active[member_id]), _by_subtopology(plan.standby[member_id]))
        if count % _STEP_TASKS == _STEP_TASKS - 1:
            yield
    return targets


class _Process:
    __slots__ = ("counts", "task_ids")

    def __init__(self) -> None:
        self.task_ids: set[TaskId] = set()
        # Of its members, in the order of their ids: how many tasks.
        self.counts: dict[str, int] = {}

    @property
    def load(self) -> float:
        return len(self.task_ids) / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=self.counts.__getitem__)


class _Quota:
    """How many tasks a member may have: who has as many takes no part in sharing out the rest."""

    __slots__ = ("_members_left", "_tasks_left", "each")

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks_left, self._members_left = task_count, member_count
        self.each = 0
        self._share_out()

    def note(self, count: int) -> None:
        """A member has `count` tasks now."""
        if count == self.each:
            self._members_left -= 1
            self._tasks_left -= count
            self._share_out()

    def _share_out(self) -> None:
        self.each = -(-self._tasks_left // self._members_left) if self._members_left > 0 else 0


class _Plan:
    def __init__(
        self, members: Mapping[str, TaskMemberSpec], subtopologies: Mapping[str, TaskSpec], standby_count: int
    ) -> None:
        self.active: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self.standby: dict[str, list[TaskId]] = {member_id: [] for member_id in members}
        self._members = members
        self._standby_count = standby_count
        self._tasks = [(name, index) for name, spec in subtopologies.items() for index in range(spec.task_count)]
        self._stateful = [task for task in self._tasks if subtopologies[task[0]].is_stateful]
        self._processes: dict[str, _Process] = {}
        self._ran: dict[TaskId, str] = {}
        self._kept: dict[TaskId, list[str]] = {}
        for member_id, spec in sorted(members.items()):
            self._processes.setdefault(spec.process_id, _Process()).counts[member_id] = 0
            self._ran |= dict.fromkeys(_task_ids(spec.active), member_id)
            for task in _task_ids(spec.standby):
                self._kept.setdefault(task, []).append(member_id)
        self._active_quota = _Quota(len(self._tasks), len(members))
        self._quota = _Quota(len(self._tasks) + standby_count * len(self._stateful), len(members))

    def place_active(self) -> Generator[None, None, None]:
        left = sorted(self._tasks, key=_by_partition)
        for previous in (self._who_ran, self._who_kept):
            moving = []
            for count, task in enumerate(left):
                member_id = previous(task)
                if member_id is not None and self._count_of(member_id) < self._active_quota.each:
                    self._add(task, member_id, self.active)
                else:
                    moving.append(task)
                if count % _STEP_TASKS == _STEP_TASKS - 1:
                    yield
            left = moving
        by_load = self._by_load()
        for count, task in enumerate(sorted(left)):
            _, process_id = heappop(by_load)
            process = self._processes[process_id]
            self._add(task, process.least_loaded(), self.active)
            heappush(by_load, (process.load, process_id))
            if count % _STEP_TASKS == _STEP_TASKS - 1:
                yield

    def place_standbys(self) -> Generator[None, None, None]:
        moving: list[tuple[TaskId, int]] = []
        for count, task in enumerate(sorted(self._stateful, key=_by_partition, reverse=True)):
            copies = self._standby_count
            while copies:
                member_id = self._who_may_keep(task)
                if member_id is None:
                    moving.append((task, copies))
                    break
                self._add(task, member_id, self.standby)
                copies -= 1
            if count % _STEP_TASKS == _STEP_TASKS - 1:
                yield
        by_load = self._by_load()
        for count, (task, copies) in enumerate(sorted(moving, reverse=True)):
            for _ in range(copies):
                if not self._add_to_least_loaded(task, by_load):
                    break  # There are fewer processes than copies.
            if count % _STEP_TASKS == _STEP_TASKS - 1:
                yield

    def _who_ran(self, task: TaskId) -> str | None:
        return self._ran.get(task)

    def _who_kept(self, task: TaskId) -> str | None:
        return self._least_loaded(self._kept.get(task, ()))

    def _who_may_keep(self, task: TaskId) -> str | None:
        """Who ran it, or kept a copy of it, until now, and has room."""
        ran = self._ran.get(task)
        for candidates in ((ran,) if ran is not None else (), self._kept.get(task, ())):
            free = [each for each in candidates if task not in self._process_of(each).task_ids]
            member_id = self._least_loaded(free)
            if member_id is not None and self._count_of(member_id) < self._quota.each:
                return member_id
        return None

    def _least_loaded(self, member_ids: Sequence[str]) -> str | None:
        if len(member_ids) <= 1:
            return member_ids[0] if member_ids else None
        return min(member_ids, key=lambda each: (self._process_of(each).load, self._count_of(each)))

    def _add_to_least_loaded(self, task: TaskId, by_load: list[tuple[float, str]]) -> bool:
        passed: list[tuple[float, str]] = []
        is_added = False
        while by_load and not is_added:
            load, process_id = heappop(by_load)
            process = self._processes[process_id]
            if task in process.task_ids:
                passed.append((load, process_id))
            else:
                self._add(task, process.least_loaded(), self.standby)
                heappush(by_load, (process.load, process_id))
                is_added = True
        for each in passed:
            heappush(by_load, each)
        return is_added

    def _add(self, task: TaskId, member_id: str, to: dict[str, list[TaskId]]) -> None:
        process = self._process_of(member_id)
        process.task_ids.add(task)
        process.counts[member_id] = count = process.counts[member_id] + 1
        to[member_id].append(task)
        if to is self.active:
            self._active_quota.note(count)
        self._quota.note(count)

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._members[member_id].process_id]

    def _count_of(self, member_id: str) -> int:
        return self._process_of(member_id).counts[member_id]

    def _by_load(self) -> list[tuple[float, str]]:
        by_load = [(process.load, process_id) for process_id, process in self._processes.items()]
        heapify(by_load)
        return by_load


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task[1], task[0]


def _task_ids(tasks: Tasks) -> Iterable[TaskId]:
    return ((name, index) for name, partitions in tasks.items() for index in partitions)


def _by_subtopology(task_ids: Iterable[TaskId]) -> Tasks:
    found: dict[str, set[int]] = {}
    for name, index in task_ids:
        found.setdefault(name, set()).add(index)
    return {name: frozenset(found[name]) for name in sorted(found)}

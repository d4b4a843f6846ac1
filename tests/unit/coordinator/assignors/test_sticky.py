"""Tasks of streams groups: everyone gets as much, what works stays, and a process has a task once."""

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from tailrace.coordinator.assignors.sticky import Target, TaskMemberSpec, TaskSpec, assign


def targets(
    members: Mapping[str, TaskMemberSpec], subtopologies: Mapping[str, TaskSpec], standbys: int = 0
) -> dict[str, Target]:
    steps = assign(members, subtopologies, standbys)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: dict[str, Target] = done.value
            return found


def carried_on(processes: Mapping[str, str], before: Mapping[str, Target]) -> dict[str, TaskMemberSpec]:
    return {member: TaskMemberSpec(process, *before.get(member, Target())[:2]) for member, process in processes.items()}


def tasks_of(tasks: Mapping[str, frozenset[int]]) -> set[tuple[str, int]]:
    return {(name, index) for name, partitions in tasks.items() for index in partitions}


def check(
    processes: Mapping[str, str], subtopologies: Mapping[str, TaskSpec], standbys: int, found: Mapping[str, Target]
) -> None:
    wanted = {(name, index) for name, spec in subtopologies.items() for index in range(spec.task_count)}
    active = Counter(task for target in found.values() for task in tasks_of(target.active))
    assert active == Counter(wanted), "each task has one member"
    copies = Counter(task for target in found.values() for task in tasks_of(target.standby))
    possible = min(standbys, len(set(processes.values())) - 1)
    assert copies == Counter({task: possible for task in wanted if subtopologies[task[0]].is_stateful and possible}), (
        "as many copies as there are processes for them"
    )
    for process in set(processes.values()):
        members = [found[member] for member, each in processes.items() if each == process]
        held = [task for target in members for kind in target[:2] for task in tasks_of(kind)]
        assert len(held) == len(set(held)), "once in a process"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_comes_and_goes(seed: int) -> None:
    choose = random.Random(seed)
    subtopologies = {
        str(number): TaskSpec(choose.randint(1, 9), choose.random() < 0.6) for number in range(choose.randint(1, 4))
    }
    processes: dict[str, str] = {}
    before: dict[str, Target] = {}
    for step in range(8):
        if processes and choose.random() < 0.4:
            del processes[choose.choice(sorted(processes))]
        if not processes or choose.random() < 0.7:
            processes[f"m{step}"] = f"p{choose.randint(0, 3)}"
        standbys = choose.randint(0, 2)
        found = targets(carried_on(processes, before), subtopologies, standbys)
        check(processes, subtopologies, standbys, found)
        before = found


@pytest.mark.parametrize("seed", range(30))
def test_members_get_as_many_as_each_other(seed: int) -> None:
    choose = random.Random(seed)
    subtopologies = {str(number): TaskSpec(choose.randint(1, 9), False) for number in range(choose.randint(1, 4))}
    before: dict[str, Target] = {}
    for count in (1, choose.randint(2, 5), choose.randint(1, 7)):
        processes = {f"m{number}": f"p{number}" for number in range(count)}
        before = targets(carried_on(processes, before), subtopologies)
        sizes = [len(tasks_of(target.active)) for target in before.values()]
        assert max(sizes) - min(sizes) <= 1


def test_nothing_moves_without_a_reason() -> None:
    subtopologies = {"0": TaskSpec(7, True), "1": TaskSpec(3, False)}
    processes = {f"m{number}": f"p{number}" for number in range(4)}
    first = targets(carried_on(processes, {}), subtopologies, 1)
    assert targets(carried_on(processes, first), subtopologies, 1) == first


def test_who_has_a_copy_of_its_state_takes_a_task_over() -> None:
    subtopologies = {"0": TaskSpec(6, True)}
    processes = {"a": "pa", "b": "pb", "c": "pc", "d": "pd"}
    first = targets(carried_on(processes, {}), subtopologies, 1)
    del processes["a"]
    joined = {**processes, "e": "pe"}
    second = targets(carried_on(joined, first), subtopologies, 1)
    lost = tasks_of(first["a"].active)
    taken = {task for member in processes for task in lost & tasks_of(second[member].active)}
    assert taken, "some of them have room, and need not read the changelog from its beginning"
    for member in processes:
        assert lost & tasks_of(second[member].active) <= tasks_of(first[member].standby)


def test_tasks_of_a_subtopology_lie_apart_at_first() -> None:
    found = targets(carried_on({"a": "pa", "b": "pb"}, {}), {"0": TaskSpec(2, True), "1": TaskSpec(2, True)})
    assert [tasks_of(each.active) for each in found.values()] == [{("0", 0), ("1", 0)}, {("0", 1), ("1", 1)}]


def test_a_group_without_tasks_or_members() -> None:
    assert targets({}, {"0": TaskSpec(2, True)}, 1) == {}
    assert targets({"a": TaskMemberSpec("pa")}, {}, 1) == {"a": Target()}

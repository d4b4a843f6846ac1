"""Each check of consumer groups is shown to fail on a bug that the test plants, as in test_planted_bugs."""

import dataclasses

import pytest

from tailrace.broker.coordinators.batches import Batch
from tailrace.broker.coordinators.shard import Shard
from tailrace.client.groups.offsets import GroupOffsets
from tailrace.coordinator.classic import timers
from tailrace.coordinator.classic.group import ClassicGroup
from tailrace.coordinator.consumers.group import ConsumerGroup
from tailrace.coordinator.streams import heartbeat
from tailrace.coordinator.streams.group import StreamsGroup
from tailrace.sim.checks.history import ViolationError
from tailrace.sim.groups.groups import GroupPlan
from tailrace.sim.groups.members import CONSUMER
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Scenario
from tests.sim.machine.play import Play

RANGE = ("range",)
SMALL = Plan(topics=(("orders", 3, ()),), groups=(GroupPlan(),), faults=("slow links",))


def broken_promise(seeds=range(1, 2), *, kind=CONSUMER, members=2, **changes) -> str:
    """What the first seed that fails has found."""
    plan = dataclasses.replace(SMALL, groups=(GroupPlan(kinds=(kind,), members=members),), **changes)
    for seed in seeds:
        outcome = Scenario(seed, plan=plan).run()
        if outcome.failure is not None:
            return outcome.failure
    return "none"


def broken_promise_of_machine(kind: str, seeds=range(100)) -> str:
    for seed in seeds:
        try:
            Play(seed, kind).run()
        except ViolationError as violation:
            return str(violation)
    return "none"


@pytest.mark.parametrize("kind", [CONSUMER, RANGE])
def test_without_a_bug_nothing_is_found(kind):
    assert broken_promise(kind=kind) == "none"


def test_partitions_that_are_given_before_they_are_given_up(monkeypatch):
    monkeypatch.setattr(ConsumerGroup, "is_owned", lambda *_arguments: False)
    assert broken_promise(range(1, 6)).startswith("a partition has one owner")
    assert broken_promise_of_machine("consumer").startswith("a partition has one owner")


def test_a_zombie_of_an_old_generation(monkeypatch):
    monkeypatch.setattr(ClassicGroup, "check_generation", lambda *_arguments: None)
    assert broken_promise_of_machine("range").startswith("a partition is assigned to one member per epoch")


def test_tasks_that_are_given_before_they_are_given_up(monkeypatch):
    monkeypatch.setattr(StreamsGroup, "runs_at", lambda *_arguments: None)
    assert broken_promise_of_machine("streams").startswith("a partition has one owner")


def test_tasks_that_a_process_has_twice(monkeypatch):
    monkeypatch.setattr(StreamsGroup, "kept_at", lambda *_arguments: frozenset())
    assert "p-" in broken_promise_of_machine("streams")


def test_tasks_that_are_told_once(monkeypatch):
    monkeypatch.setattr(heartbeat, "_is_to_be_told", lambda *_arguments, is_wanted: is_wanted)
    assert broken_promise_of_machine("streams").startswith("a group settles once everybody behaves")


@pytest.mark.parametrize(
    ("kind", "group"), [("consumer", ConsumerGroup), ("range", ClassicGroup), ("streams", StreamsGroup)]
)
def test_commits_that_are_not_fenced(monkeypatch, kind, group):
    monkeypatch.setattr(group, "check_offset_commit", lambda *_arguments, **_options: None)
    assert broken_promise_of_machine(kind).startswith("only the owner of a partition can commit")


def test_commits_that_are_acknowledged_before_they_are_replicated(monkeypatch):
    monkeypatch.setattr(Shard, "_wait", lambda self, answers: self._give(answers))
    found = broken_promise(range(3, 10), faults=("isolate", "isolate", "kill leader"), fault_seconds=12.0)
    assert found.startswith(("a committed offset is there", "a partition is assigned to one member per epoch"))


def test_records_that_are_passed_over(monkeypatch):
    original = GroupOffsets.fetch

    async def skip(self, partitions=None):
        found = await original(self, partitions)
        return {partition: each._replace(offset=each.offset + 1) for partition, each in found.items()}

    monkeypatch.setattr(GroupOffsets, "fetch", skip)
    assert broken_promise(range(1, 4)).startswith("groups process every record")


def test_members_that_never_time_out(monkeypatch):
    monkeypatch.setattr(timers, "_on_session_end", lambda *_arguments: None)
    found = broken_promise(range(6, 12), kind=RANGE, members=3)
    assert found.startswith("groups are stable again")


def test_state_that_is_not_in_the_log(monkeypatch):
    original = Batch.add

    def forget_one(self, encoded, now_ms):
        original(self, encoded, now_ms)
        if len(encoded.pairs) > 2:
            self._records.pop()

    monkeypatch.setattr(Batch, "add", forget_one)
    assert broken_promise(range(1, 3)).startswith("the replay of a coordinator's log gives the live state")

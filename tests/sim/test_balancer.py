"""A balancer that works while brokers die, and is killed itself: nothing is lost, and nothing of it is left behind."""

import dataclasses

import pytest

from tailrace.balance.plan.search import Search
from tailrace.balance.run.throttles import Throttles
from tailrace.controller.partitions import reassignment
from tailrace.sim.faults import ALL_KINDS
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Outcome, Scenario

CALM = {"faults": ("slow links",), "fault_seconds": 5.0}
PLAN = Plan(brokers=4, producers=1, has_balancer=True, fault_seconds=8.0, faults=ALL_KINDS)


def outcome_of(seed: int, **changes) -> Outcome:
    return Scenario(seed, plan=dataclasses.replace(PLAN, **changes)).run()


def broken_promise(seeds: range, **changes) -> str:
    return next((found for seed in seeds if (found := outcome_of(seed, **changes).failure) is not None), "none")


def test_a_balancer_under_faults():
    outcome = outcome_of(1, has_operator=True, is_dedicated=True)
    assert outcome.failure is None, outcome.failure
    assert " 0 moves" not in outcome.story, outcome.story


@pytest.mark.long
def test_many_balancers_under_faults():
    failed = {
        seed: outcome.failure
        for seed in range(10, 34)
        if (outcome := outcome_of(seed, has_operator=seed % 2 == 0, is_dedicated=seed % 3 == 0)).failure is not None
    }
    assert not failed


def test_a_rate_that_nobody_takes_away(monkeypatch: pytest.MonkeyPatch):
    original = Throttles.remove

    async def forget(self: Throttles) -> None:
        self.sets_rate = False
        await original(self)

    monkeypatch.setattr(Throttles, "remove", forget)
    assert broken_promise(range(1, 3), **CALM).startswith("no throttled rate is left")


def test_a_run_that_does_not_look_what_another_has_left(monkeypatch: pytest.MonkeyPatch):
    async def see_nothing(self: Throttles, topics: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr(Throttles, "find_marked", see_nothing)
    assert broken_promise(range(1, 6), **CALM).startswith("no throttle")


def test_a_move_that_ends_before_the_new_replicas_are_in_sync(monkeypatch: pytest.MonkeyPatch):
    original = reassignment._decide_target

    def at_once(partition, replicas, target):
        found = original(partition, replicas, target)
        left = tuple(node for node in found.replicas if node not in found.removing_replicas)
        isr = tuple(node for node in found.isr if node in left)
        return found._replace(replicas=left, isr=isr, adding_replicas=(), removing_replicas=()) if isr else found

    monkeypatch.setattr(reassignment, "_decide_target", at_once)
    assert broken_promise(range(1, 3), **CALM).startswith("a move leaves enough replicas in sync")


def test_a_plan_that_balances_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Search, "balance", lambda _self, _resource: iter(()))
    assert broken_promise(range(1, 3), **CALM).startswith("brokers are even at the end")

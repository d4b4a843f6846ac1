"""Brokers that share machines: a machine is lost as a whole, and nothing that was acknowledged with it."""

import dataclasses

import pytest

from tailrace.balance.plan.domains import Domains
from tailrace.controller.partitions import placement
from tailrace.sim.faults import MACHINE_KINDS
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Outcome, Scenario

PLAN = Plan(topics=(("orders", 3, ()),), fault_seconds=6.0, faults=MACHINE_KINDS).with_machines()


def outcome_of(seed: int, **changes) -> Outcome:
    return Scenario(seed, plan=dataclasses.replace(PLAN, **changes)).run()


def test_machines_are_lost():
    outcome = outcome_of(2)
    assert outcome.failure is None, outcome.failure
    assert " 3 machines" in outcome.story, outcome.story
    lost = [line for line in outcome.lines if "loses power" in line]
    assert len(lost) >= 2, "no machine was lost"


@pytest.mark.long
def test_many_machines_are_lost_beside_all_other_faults():
    failed = {
        seed: outcome.failure
        for seed in range(1, 101)
        if (outcome := Scenario(seed, has_machines=True).run()).failure is not None
    }
    assert not failed


def test_a_balancer_keeps_machines_apart():
    outcome = outcome_of(1, has_balancer=True, faults=("slow links",))
    assert outcome.failure is None, outcome.failure
    assert " 0 moves" not in outcome.story, outcome.story


def test_a_placement_that_does_not_look_at_machines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(placement, "machine_of", lambda *_facts: "the same for all")
    assert (outcome_of(1).failure or "none").startswith("replicas lie on different machines")


def test_a_balancer_that_does_not_look_at_machines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Domains, "keeps", lambda _self, held, _giver, taker: taker not in held)
    failures = (outcome_of(seed, has_balancer=True, faults=("slow links",)).failure or "" for seed in range(1, 8))
    assert any(failure.startswith("replicas lie on different machines") for failure in failures)

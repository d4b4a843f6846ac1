"""Brokers that go on without controllers, or without having heard what these decide: nothing pauses that need not, and
nobody answers for long beside another leader. Each check is shown to fail on a bug that the test plants."""

import dataclasses

import pytest

from tailrace.broker.sessions import FetchSessions
from tailrace.controller.brokers import heartbeats
from tailrace.controller.brokers.sessions import Sessions
from tailrace.replica import lease
from tailrace.replica.lease import Lease
from tailrace.sim.groups.groups import GroupPlan
from tailrace.sim.plan import SESSION_MS, Plan
from tailrace.sim.scenario import Scenario

BUSY = Plan(
    is_dedicated=True,
    topics=(("orders", 2, ()),),
    producers=1,
    pipelines=2,
    consumers=1,
    fault_seconds=15.0,
)
HEADLESS = dataclasses.replace(BUSY, faults=("headless",), must_go_on=True, groups=(GroupPlan(),))
APART = ("blind", "lonely", "stop leader", "slow links", "refused", "denied")
SOLE = "a leader that is confirmed past its lease was the only one a session ago"


def broken_promise(plan: Plan, seeds: range) -> str:
    """What the first seed that fails has found."""
    for seed in seeds:
        outcome = Scenario(seed, plan=plan).run()
        if outcome.failure is not None:
            return outcome.failure
    return "none"


def check(seed: int, plan: Plan) -> None:
    outcome = Scenario(seed, plan=plan).run()
    assert outcome.failure is None, "\n".join(outcome.lines[-60:])


@pytest.mark.parametrize("seed", range(1, 4))
def test_without_controllers_no_partition_pauses(seed: int):
    check(seed, HEADLESS)


@pytest.mark.parametrize("seed", range(1, 4))
def test_apart_from_controllers_nobody_leads_beside_another_for_long(seed: int):
    check(seed, dataclasses.replace(BUSY, faults=APART))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4, 30))
def test_more_clusters_without_controllers(seed: int):
    check(seed, HEADLESS)
    check(seed, dataclasses.replace(BUSY, faults=APART))


def test_a_leader_that_goes_by_its_lease_alone(monkeypatch):
    monkeypatch.setattr(Lease, "_is_followed", lambda _self, _partition, _within_ms: False)
    assert broken_promise(HEADLESS, range(1, 4)).startswith("without controllers partitions go on")


def test_a_leader_that_goes_by_nothing(monkeypatch):
    monkeypatch.setattr(Lease, "is_confirmed", lambda _self, partition: partition.is_leader)
    assert broken_promise(dataclasses.replace(BUSY, faults=("blind",)), range(1, 9)).startswith(SOLE)


def test_a_leader_that_forgets_the_eligible_replicas(monkeypatch):
    original = lease.decide_takers

    def forget(leader_id, *, eligible, **sets):
        return original(leader_id, eligible=(), **sets)

    monkeypatch.setattr(lease, "decide_takers", forget)
    assert broken_promise(dataclasses.replace(BUSY, faults=("lonely",)), range(1, 9)).startswith(SOLE)


def test_a_fetch_that_counts_from_when_it_is_read(monkeypatch):
    """It may have lain in a buffer while its leader was stopped."""
    original = FetchSessions.plan

    def plan(self, *arguments, **options):
        planned = original(self, *arguments, **options)
        if planned.watch is not None:
            planned.watch.proof.sent_ms = self._clock.monotonic_ms()
        return planned

    monkeypatch.setattr(FetchSessions, "plan", plan)
    faults = ("stop leader", "slow links")
    assert broken_promise(dataclasses.replace(BUSY, faults=faults), range(1, 12)).startswith(SOLE)


def test_a_controller_that_does_not_wait_for_what_the_last_one_granted(monkeypatch):
    """The others are refused by the last one and elect at once, while brokers still reach it."""
    monkeypatch.setattr("tailrace.controller.machine.grant_ms", lambda _fetch_timeout_ms: 0.0)
    found = broken_promise(dataclasses.replace(BUSY, faults=("refused",), lease_ms=SESSION_MS), range(20, 22))
    assert found.startswith("a broker is fenced after its lease has ended")


def test_a_lease_that_is_longer_than_the_session(monkeypatch):
    monkeypatch.setattr("tailrace.broker.cluster.lifecycle.LEASE_SHARE", 1.2)
    found = broken_promise(dataclasses.replace(BUSY, faults=("blind",), lease_ms=SESSION_MS), range(1, 5))
    assert found.startswith("a broker is fenced after its lease has ended")


def test_a_port_that_refuses_is_taken_for_proof(monkeypatch):
    """The broker lives, and only the controllers and it refuse each other."""
    original = Sessions._ends_ms

    def end_at_once(self, session):
        return session.heard_ms if session.is_refused else original(self, session)

    monkeypatch.setattr(Sessions, "_ends_ms", end_at_once)
    found = broken_promise(dataclasses.replace(BUSY, faults=("denied",)), range(1, 5))
    assert found.startswith("a broker is fenced after its lease has ended")


def test_word_of_a_death_that_meets_the_successor(monkeypatch):
    original = heartbeats.report_death

    def forget_the_epoch(view, request):
        for word in request.brokers:
            word.broker_epoch = view.image.brokers[word.broker_id].epoch
        return original(view, request)

    monkeypatch.setattr(heartbeats, "report_death", forget_the_epoch)
    found = broken_promise(dataclasses.replace(BUSY, faults=("kill",)), range(1, 9))
    assert found.startswith("a broker is fenced after its lease has ended")

"""Whole clusters whose listeners ask who comes, while users, ACLs and quotas change: seeds, and planted bugs."""

import dataclasses

import pytest

from tailrace.broker.auth.entrance import Entrance
from tailrace.broker.auth.security import Security
from tailrace.controller.replay import Replay
from tailrace.model.security import ANONYMOUS
from tailrace.sim.doors import tls
from tailrace.sim.doors.doors import DOOR
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Scenario

PLAN = Plan(faults=("slow links",), producers=1, has_logins=True, has_rights=True, has_quotas=True, fault_seconds=8.0)
SEEDS = range(1, 21)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[1:])])
def test_logins_hold_under_faults(seed):
    scenario = Scenario(seed, has_logins=True)
    outcome = scenario.run()
    assert outcome.failure is None, "\n".join([*outcome.lines[-60:], f"again: {outcome.command}"])
    assert scenario.doors is not None
    assert scenario.doors.let_in_count
    assert scenario.doors.refused_count
    assert scenario.doors.unanswered_count


def broken_promise(seeds: range = range(1, 4), **changes: object) -> str:
    """What the first seed that fails has found."""
    plan = dataclasses.replace(PLAN, **changes)  # type: ignore[arg-type]
    failures = (Scenario(seed, plan=plan).run().failure for seed in seeds)
    return next((failure for failure in failures if failure is not None), "none")


def test_without_a_bug_nothing_is_found():
    assert broken_promise(range(1, 2)) == "none"


def test_an_unknown_user_who_is_taken_for_another(monkeypatch):
    original = Security._find_credential

    def find_any(self, mechanism, user):
        found, is_real = original(self, mechanism, user)
        others = sorted(self._image().scram_credentials.items())
        return (others[0][1], True) if others and not is_real else (found, is_real)

    monkeypatch.setattr(Security, "_find_credential", find_any)
    assert broken_promise().startswith("nobody is let in without the password")


def test_a_connection_that_speaks_before_its_login(monkeypatch):
    """By the listener of users: without logins of nodes there would be no cluster."""
    greet = Entrance._greet

    def let_in(self):
        if self._listener.name == DOOR:
            self._admit(ANONYMOUS)
        else:
            greet(self)

    monkeypatch.setattr(Entrance, "_greet", let_in)
    assert broken_promise().startswith("nobody is answered without a login")


def test_a_certificate_of_anyone(monkeypatch):
    monkeypatch.setattr(tls._ServerStream, "_judge", lambda _self, certificate: certificate)
    assert broken_promise().startswith("nobody is answered without a login")


def test_a_user_who_is_not_deleted(monkeypatch):
    handlers = {name: apply for name, apply in Replay._HANDLERS.items() if "RemoveUserScram" not in name.__name__}
    monkeypatch.setattr(Replay, "_HANDLERS", handlers)
    assert broken_promise(range(4, 8)).startswith("a confirmed change of a user stays")

"""Whole clusters in which ACLs come and go: seeds, and bugs that are planted to be found."""

import dataclasses

import pytest

from tailrace.broker.access.access import Access
from tailrace.broker.services import LanesVersion
from tailrace.controller.replay import Replay
from tailrace.controller.security import authorizer
from tailrace.model.acls import Operation
from tailrace.model.security import ANONYMOUS
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Scenario
from tailrace.wire import principals

PLAN = Plan(faults=("slow links",), producers=1, has_rights=True)
NOT_ALLOWED = "nothing is done that no ACL has allowed"
SEEDS = range(1, 31)
FEW = (1, 2)


@pytest.mark.parametrize("seed", FEW)
def test_rights_hold_under_faults(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*SEEDS}.difference(FEW)))
def test_rights_hold_under_more_faults(seed):
    check(seed)


def check(seed: int) -> None:
    scenario = Scenario(seed, has_rights=True)
    outcome = scenario.run()
    assert outcome.failure is None, "\n".join([*outcome.lines[-60:], f"again: {outcome.command}"])
    assert scenario.rights is not None
    assert 0 < scenario.rights.refused_count < scenario.rights.tried_count


def broken_promise(seeds: range = range(1, 5)) -> str:
    """What the first seed that fails has found."""
    failures = (Scenario(seed, plan=dataclasses.replace(PLAN, fault_seconds=8.0)).run().failure for seed in seeds)
    return next((failure for failure in failures if failure is not None), "none")


def test_without_a_bug_nothing_is_found():
    assert broken_promise(range(1, 2)) == "none"


def test_denials_that_are_ignored(monkeypatch):
    monkeypatch.setattr(authorizer, "_DENYING", dict.fromkeys(Operation, 0))
    assert broken_promise().startswith(NOT_ALLOWED)


def test_decisions_that_outlive_their_acls(monkeypatch):
    class Kept(dict):
        def clear(self):
            pass

    original = Access.__init__

    def remember(self, *arguments, **options):
        original(self, *arguments, **options)
        self._decided = Kept()

    monkeypatch.setattr(Access, "__init__", remember)
    assert broken_promise().startswith(("nobody is refused", NOT_ALLOWED))


def test_lanes_that_outlive_their_acls(monkeypatch):
    monkeypatch.setattr(LanesVersion, "raise_number", lambda _self: None)
    assert broken_promise().startswith(NOT_ALLOWED)


def test_envelopes_in_which_everyone_is_a_super_user(monkeypatch):
    monkeypatch.setattr(principals, "decode_principal", lambda _data: ANONYMOUS)
    assert broken_promise().startswith(NOT_ALLOWED)


def test_acls_that_are_not_removed(monkeypatch):
    handlers = {name: apply for name, apply in Replay._HANDLERS.items() if "RemoveAccess" not in name.__name__}
    monkeypatch.setattr(Replay, "_HANDLERS", handlers)
    assert broken_promise().startswith("a confirmed change of an ACL stays")

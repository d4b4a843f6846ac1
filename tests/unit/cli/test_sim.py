"""`tailrace sim`: one seed with its trace, or only its outcome; a broken promise is told, and the exit code is 1."""

import pytest

from tailrace.cli import main
from tailrace.sim.checks.history import ViolationError
from tailrace.sim.plan import Plan
from tailrace.sim.scenario import Scenario


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """A quick run is enough to see what is printed."""
    plan = Plan(fault_seconds=0.5, faults=("reset",))
    monkeypatch.setattr(Plan, "of", classmethod(lambda _cls, _random: plan))


def test_a_seed_prints_its_trace_and_outcome(capsys):
    assert main(["sim", "7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "seed 7: 3 brokers, 3 combined controllers" in lines[0]
    assert any("orders-0     leader   epoch=0 end=" in line and " hw=" in line and " isr=" in line for line in lines)
    assert lines[-1].startswith("seed 7: ")
    assert lines[-1].endswith(": ok")


def test_quiet_prints_the_outcome_alone(capsys):
    assert main(["sim", "7", "--quiet"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_broken_promise_is_told_with_the_last_events(capsys, monkeypatch):
    def break_it(_self, _process):
        raise ViolationError("a promise that nobody keeps")

    monkeypatch.setattr(Scenario, "_after_turn", break_it)
    assert main(["sim", "7", "--quiet"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "FAILED" in lines[0]
    assert "seed 7: 3 brokers" in lines[1]
    assert lines[-2:] == ["  broken: a promise that nobody keeps", "  again: tailrace sim 7"]

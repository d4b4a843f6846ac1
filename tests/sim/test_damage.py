"""Whole clusters whose disks lose what they had synced, one at a time: seeds, and bugs that are planted to be found."""

import pytest

from tailrace.broker.cluster.replica_reports import ReplicaReports
from tailrace.controller.partitions.candidates import Candidates
from tailrace.replica.following.cuts import Cuts
from tailrace.replica.repair.repairs import Repairs
from tailrace.sim.scenario import Scenario

# Each once found a loss: what it was stands beside it.
STORIES = {
    1: "the oldest segment was gone: the log started later, and the others followed it when it led",
    4: "a leader epoch changed, which no CRC covers: the replica never got in sync again",
    15: "a byte of the active segment changed, and nobody looked at it again",
    27: "a bit flipped, recovery cut the log there, and its broker led all the same",
    42: "a partition's folder was gone, and its broker was back first and led with nothing",
    73008: "a disk was replaced while a topic was being made and all processes died: it waits for an election by hand",
}
SEEDS = range(1, 61)


@pytest.mark.parametrize("seed", STORIES)
def test_a_damaged_disk_costs_nothing(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*SEEDS}.difference(STORIES)))
def test_more_damaged_disks_cost_nothing(seed):
    check(seed)


def check(seed: int) -> None:
    outcome = Scenario(seed, has_damage=True).run()
    assert outcome.failure is None, "\n".join([*outcome.lines[-60:], f"again: tailrace sim {seed} --damage"])


def broken_promise(*seeds: int) -> str:
    """What the first seed that fails has found."""
    failures = (Scenario(seed, has_damage=True).run().failure for seed in seeds)
    return next((failure for failure in failures if failure is not None), "none")


async def say_nothing(_reports: ReplicaReports) -> None:
    pass


def test_damaged_replicas_that_lead_and_followers_that_cut_for_them(monkeypatch):
    """Reports, comparison and leave make up for each other: as before there was any of them."""
    monkeypatch.setattr(ReplicaReports, "tell_start", say_nothing)
    monkeypatch.setattr(Candidates, "choose", lambda *_, able, **__: able[0])
    monkeypatch.setattr(Cuts, "check", lambda *_: None)
    assert broken_promise(11).startswith("what is committed is in the log of every live ISR member")


def test_damage_that_is_never_repaired(monkeypatch):
    monkeypatch.setattr(Repairs, "submit", lambda *_: None)
    assert broken_promise(19).startswith("what was damaged is whole again")

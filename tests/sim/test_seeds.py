"""Whole clusters under faults: eight seeds, and every seed that ever failed (see seeds.txt)."""

from pathlib import Path

import pytest

from tailrace.sim.scenario import Scenario

STORIES = Path(__file__).with_name("seeds.txt")
SEEDS = range(1, 9)


def seeds_that_failed_once() -> list[int]:
    lines = [line.partition("#")[0].split() for line in STORIES.read_text().splitlines()]
    return [int(words[0]) for words in lines if words]


@pytest.mark.parametrize("seed", [*SEEDS, *(seed for seed in seeds_that_failed_once() if seed not in SEEDS)])
def test_a_cluster_keeps_its_promises(seed):
    outcome = Scenario(seed).run()
    assert outcome.failure is None, "\n".join([*outcome.lines[-60:], f"again: tailrace sim {seed}"])


def test_every_seed_that_failed_has_its_story():
    bare = [line for line in STORIES.read_text().splitlines() if line.strip() and "#" not in line]
    assert not bare, f"say in a line what was wrong: {bare}"

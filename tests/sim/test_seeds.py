"""Whole clusters under faults: fifty seeds, most of them in the long tests, and every seed that ever failed (see
seeds.txt)."""

from pathlib import Path

import pytest

from tailrace.sim.scenario import Scenario

STORIES = Path(__file__).with_name("seeds.txt")
SEEDS = range(1, 51)
# Those that there is time for whenever anything is tested.
SHORT = range(1, 9)


def seeds_that_failed_once() -> list[int]:
    lines = [line.partition("#")[0].split() for line in STORIES.read_text().splitlines()]
    return [int(words[0]) for words in lines if words]


def run_always() -> list[int]:
    return sorted({*SHORT, *seeds_that_failed_once()})


@pytest.mark.parametrize("seed", run_always())
def test_a_cluster_keeps_its_promises(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", sorted({*SEEDS}.difference(run_always())))
def test_more_clusters_keep_their_promises(seed):
    check(seed)


def check(seed: int) -> None:
    outcome = Scenario(seed).run()
    assert outcome.failure is None, "\n".join([*outcome.lines[-60:], f"again: tailrace sim {seed}"])


def test_every_seed_that_failed_has_its_story():
    bare = [line for line in STORIES.read_text().splitlines() if line.strip() and "#" not in line]
    assert not bare, f"say in a line what was wrong: {bare}"

"""Handlers fail, processes die and brokers with them: nothing is lost, and no record is moved twice."""

import time
from pathlib import Path

import pytest

from tailrace.testing import Broker

from .trial import SETTINGS, Trial


@pytest.mark.long
def test_deaths_around_a_commit(tmp_path: Path):
    """With everything written, with the offsets too, and before it is known that they are committed."""
    deaths = ("complete", "written", "committed")
    with Broker(SETTINGS) as broker, Trial(broker.bootstrap, tmp_path, deaths=deaths) as trial:
        trial.feed(600)
        trial.judge()
        assert trial.deaths["killed itself"] == len(deaths)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "protocol"), [*((seed, "consumer") for seed in range(3)), *((seed, "classic") for seed in range(2))]
)
def test_faults_in_any_order(tmp_path: Path, seed: int, protocol: str):
    """A frozen worker wakes up after its partitions were given to another."""
    with (
        Broker(SETTINGS) as broker,
        Trial(broker.bootstrap, tmp_path, workers=3, seed=seed, protocol=protocol) as trial,
    ):
        trial.feed(500)
        for _ in range(12):
            hurt(trial, broker)
            trial.feed(100)
        trial.judge()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_members_of_a_share_group_in_any_fault(tmp_path: Path, seed: int):
    with Broker(SETTINGS) as broker, Trial(broker.bootstrap, tmp_path, workers=3, seed=seed, is_shared=True) as trial:
        trial.feed(500)
        for _ in range(12):
            hurt(trial, broker)
            trial.feed(100)
        trial.judge_at_least_once()


def hurt(trial: Trial, broker: Broker) -> None:
    index = trial.random.randrange(3)
    fault = trial.random.choice(("kill", "kill", "freeze", "stop", "broker", "both"))
    time.sleep(trial.random.random())
    if fault in ("kill", "both"):
        trial.kill(index)
    if fault in ("broker", "both"):
        broker.kill()
        broker.start()
    if fault == "freeze":
        trial.freeze(index, 4)
    if fault == "stop":
        trial.stop(index)
    trial.revive()

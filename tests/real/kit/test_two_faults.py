"""Two faults at once: a broker dies with, or under, a process that is in the middle of a transaction of moves."""

import time
from pathlib import Path

import pytest

from tailrace.testing import Broker

from .trial import SETTINGS, WAIT_S, Trial

pytestmark = pytest.mark.long

POINTS = ("complete", "written", "committed")


def die_together(trial: Trial, broker: Broker, *, is_alone: bool) -> None:
    """At each point once: the broker, which coordinates group and transaction, and unless it is alone the worker."""
    for point in POINTS:
        trial.plan(f"{point} {broker.process_id}" + ("" if is_alone else " 0"))
        deadline = time.monotonic() + WAIT_S
        while broker.is_running:
            assert time.monotonic() < deadline, trial.story()
            trial.feed(10, is_waited_for=False)
            trial.revive()
            time.sleep(0.1)
        broker.kill()
        broker.start()
        trial.revive()
        trial.feed(50)
    trial.judge()


@pytest.mark.parametrize("is_alone", [True, False], ids=["broker", "broker and worker"])
def test_a_broker_dies_in_the_middle_of_a_transaction(tmp_path: Path, is_alone: bool):
    with Broker(SETTINGS) as broker, Trial(broker.bootstrap, tmp_path, workers=2) as trial:
        die_together(trial, broker, is_alone=is_alone)

"""An application whose processes are killed and frozen, on Apache Kafka 4.3: the same account as on Tailrace."""

import time
from pathlib import Path

import pytest

from tests.apache_kafka import ApacheKafka
from tests.real.kit.trial import SETTINGS, Trial

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", range(2))
def test_workers_are_killed_and_frozen(kafka_class_path: str, tmp_path: Path, seed: int):
    settings = {name: str(value) for name, value in SETTINGS.items()}
    with (
        ApacheKafka(kafka_class_path, tmp_path, settings=settings) as kafka,
        Trial(kafka.bootstrap, tmp_path, workers=3, seed=seed) as trial,
    ):
        trial.feed(500)
        for _ in range(10):
            time.sleep(trial.random.random())
            index = trial.random.randrange(3)
            if trial.random.random() < 0.3:
                trial.freeze(index, 4)
            elif trial.random.random() < 0.3:
                trial.stop(index)
            else:
                trial.kill(index)
            trial.revive()
            trial.feed(100)
        trial.judge()

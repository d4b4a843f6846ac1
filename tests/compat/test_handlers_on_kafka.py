"""Applications, and movers of delayed records, on Apache Kafka 4.3, killed and frozen: the account as on Tailrace.

Its broker is not killed here. One that is alone and starts again may know a prepared commit before it knows its topics:
then it takes the transaction for complete and writes no marker, so that offsets and readers of committed records hang
for good (seen in its files).
"""

import asyncio
import time
from pathlib import Path

import pytest

from tests.apache_kafka import ApacheKafka
from tests.real.kit.test_mover_killed import deliver_while_movers_die, movers
from tests.real.kit.trial import SETTINGS, Trial

pytestmark = pytest.mark.long

QUICK = {name: str(value) for name, value in SETTINGS.items()} | {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["consumer", "classic", "share"])
def test_workers_are_killed_and_frozen(kafka_class_path: str, tmp_path: Path, seed: int, kind: str):
    is_shared = kind == "share"
    protocol = "consumer" if is_shared else kind
    with (
        ApacheKafka(kafka_class_path, tmp_path, settings=QUICK) as kafka,
        Trial(kafka.bootstrap, tmp_path, workers=3, seed=seed, is_shared=is_shared, protocol=protocol) as trial,
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
        if is_shared:
            trial.judge_at_least_once()
        else:
            trial.judge()


def test_movers_of_delayed_records_are_killed(kafka_class_path: str, tmp_path: Path):
    with (
        ApacheKafka(kafka_class_path, tmp_path, settings=QUICK) as kafka,
        movers(kafka.bootstrap, 2) as running,
    ):
        asyncio.run(deliver_while_movers_die(kafka.bootstrap, running, count=500, kills=4, every_s=2))

"""A real driver that is killed at moments of chance, fifty times in all, and what its four sinks hold in the end."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.spark.doomed import SINKS, iceberg_catalog

# Ten runs of five, each of which fits into the time that a long test has.
SEEDS = range(10)
KILLS = 5
RECORDS_A_RUN = 1200
BATCH_RECORDS_MAX = 60
START_TIMEOUT_S = 240.0
LAST_RUN_TIMEOUT_S = 900.0


class Driver:
    def __init__(self, words, folder):
        self._words = [sys.executable, "-m", "tests.spark.doomed", *words, str(folder)]
        self._checkpoints = folder / "checkpoints"
        self._log = folder / "driver.log"

    @contextmanager
    def running(self, *more):
        """It and its JVM are gone at the end, by SIGKILL."""
        with self._log.open("a") as log:
            process = subprocess.Popen([*self._words, *more], start_new_session=True, stdout=log, stderr=log)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def marks(self, kind):
        """The last number of a batch that each pipeline has planned (`offsets`), or finished (`commits`)."""
        return {name: last_number(self._checkpoints / name / kind) for name in SINKS}

    def wait_at_work(self, process, before):
        """Until each pipeline has finished a batch since `before`."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while any(number <= before[name] for name, number in self.marks("commits").items()):
            assert process.poll() is None, self._log.read_text()[-3000:]
            assert time.monotonic() < deadline, "a pipeline does not begin"
            time.sleep(0.05)

    def finish(self):
        with self.running("1000000", "once") as process:
            assert process.wait(LAST_RUN_TIMEOUT_S) == 0, self._log.read_text()[-3000:]


def last_number(folder):
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=-1)


@pytest.mark.long
@pytest.mark.usefixtures("java_for_spark")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_driver_that_is_killed_again_and_again_writes_each_record_once(
    seed, produce, create_topic, tailrace_broker, tmp_path
):
    source, target = create_topic(3), create_topic(2)
    driver = Driver([tailrace_broker.bootstrap, source, target], tmp_path)
    chance = random.Random(seed)
    records = 0
    amid = Counter()
    for number in range(KILLS):
        produce(source, [{"value": str(n), "partition": n % 3} for n in range(records, records + RECORDS_A_RUN)])
        records += RECORDS_A_RUN
        before = driver.marks("commits")
        with driver.running(str(BATCH_RECORDS_MAX)) as process:
            if number % 5 == 4:  # Some die before they have begun.
                time.sleep(10 * chance.random())
            else:
                driver.wait_at_work(process, before)
                time.sleep(3 * chance.random())
            assert process.poll() is None, "it was done before it was killed"
        planned, finished = driver.marks("offsets"), driver.marks("commits")
        amid.update(name for name in SINKS if planned[name] > finished[name])
    driver.finish()
    print(f"killed amid a batch, of {KILLS}: {dict(amid)}; numbers of the last batches: {driver.marks('commits')}")
    assert all(amid[name] for name in SINKS), amid

    expected = Counter(range(records))
    for name in SINKS:
        found = Counter(stored(name, tmp_path, tailrace_broker.bootstrap, target))
        assert found == expected, (name, differences(found, expected))


def differences(found, expected):
    missing, extra = expected - found, found - expected
    return f"{missing.total()} missing, such as {list(missing)[:5]}; {extra.total()} extra, such as {list(extra)[:5]}"


def stored(name, folder, bootstrap, target):
    """Read without Spark, and by none of our own code."""
    match name:
        case "parquet":
            return [
                number for path in listed_files(folder / "parquet") for number in pq.read_table(path)["id"].to_pylist()
            ]
        case "delta":
            return DeltaTable(str(folder / "delta")).to_pyarrow_table()["id"].to_pylist()
        case "iceberg":
            table = load_catalog(None, **iceberg_catalog(folder)).load_table("shop.orders")
            return table.scan().to_arrow()["id"].to_pylist()
    return committed(bootstrap, target)


def listed_files(table):
    """Those of Spark's list: the last that holds all before it, and what came since."""
    lists = {path.name: path for path in (table / "_spark_metadata").iterdir() if not path.name.startswith(".")}
    compact = max((int(name.partition(".")[0]) for name in lists if name.endswith(".compact")), default=-1)
    chosen = [lists[f"{compact}.compact"]] if compact >= 0 else []
    chosen += [path for name, path in lists.items() if name.isdigit() and int(name) > compact]
    for path in chosen:
        for line in path.read_text().splitlines()[1:]:
            yield Path(json.loads(line)["path"].removeprefix("file://"))


def committed(bootstrap, topic):
    settings = {"bootstrap.servers": bootstrap, "group.id": "checker", "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    ended, found = set(), []
    deadline = time.monotonic() + 120
    while len(ended) < 2:
        assert time.monotonic() < deadline, "the topic does not end"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(int(message.value()))
        else:
            assert message.error().code() == -191, message.error()  # The end of a partition.
            ended.add(message.partition())
    consumer.close()
    return found

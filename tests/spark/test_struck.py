"""A topic gets partitions while its keys are merged by offset, and the driver is killed around that moment.

What was merged before stays as it was, nothing of what came after is in the table, and every run that follows says why.
The table is read by deltalake, the topic by nothing of ours.
"""

import json
import os
import random
import signal
import subprocess
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable

from tests.spark.test_operating import folder, running
from tests.spark.test_pipeline_command import QUICK, command, kill_group

__all__ = ["folder"]  # A fixture.

DEADLINE_S = 120.0
RECORDS = 400
KEYS = 23

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("java_for_spark")]


@pytest.fixture
def file(folder, tailrace_broker, create_topic):
    """A pipeline into a table that has the last row of each key, by offset."""
    path = folder / "latest.toml"
    path.write_text(f"""
        name = "latest"
        bootstrap = "{tailrace_broker.bootstrap}"
        checkpoint = "{folder}/checkpoint"
        [sources.r]
        topic = "{create_topic(1)}"
        batch_records_max = 40
        [transform]
        sql = "SELECT CAST(key AS STRING) AS k, CAST(value AS STRING) AS v, partition, offset FROM r"
        [sink]
        table = "{folder}/latest"
        format = "delta"
        merge_on = "k"
        omit = ["partition", "offset"]
    """)
    return path


def finished(folder):
    return max((int(path.name) for path in (folder / "checkpoint" / "commits").glob("[0-9]*")), default=-1)


def planned(folder, topic):
    """Of each batch the ends of the partitions, as Spark wrote them."""
    found = {}
    for path in (folder / "checkpoint" / "offsets").glob("[0-9]*"):
        found[int(path.name)] = json.loads(path.read_text().splitlines()[2])[topic]
    return found


def table(folder):
    rows = DeltaTable(str(folder / "latest")).to_pyarrow_table().to_pylist()
    assert len({row["k"] for row in rows}) == len(rows)
    return {row["k"]: row["v"] for row in rows}


def wait_file(path, driver):
    deadline = time.monotonic() + 2 * DEADLINE_S
    while not path.exists():
        assert driver.poll() is None, driver.stderr.read()
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_gets_partitions_while_the_driver_is_killed(folder, file, admin, tailrace_broker, seed):
    topic = file.read_text().partition('topic = "')[2].partition('"')[0]
    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": tailrace_broker.bootstrap})
    for n in range(RECORDS):
        producer.produce(topic, f"old {n}", f"k{n % KEYS}", 0)
    assert producer.flush(DEADLINE_S) == 0

    def grow():
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(DEADLINE_S)
        anew = Producer({"bootstrap.servers": tailrace_broker.bootstrap})  # It knows of no fewer partitions.
        anew.produce(topic, "moved", "k0", 1)
        assert anew.flush(DEADLINE_S) == 0

    grows_first, is_first_batch = seed % 2 == 0, seed == 3
    with running(file) as driver:
        wait_file(folder / "checkpoint" / ("offsets" if is_first_batch else "commits") / "0", driver)
        time.sleep(0 if is_first_batch else chance.uniform(0, 1))
        if grows_first:
            grow()
            time.sleep(chance.uniform(0, 0.5))
        os.kill(driver.pid, signal.SIGKILL)
        kill_group(driver)
        driver.wait(DEADLINE_S)
    if not grows_first:
        grow()
    for _ in range(2):
        words = command("run", file, "--once", "--master=local[2]", *QUICK)
        again = subprocess.run(words, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)
        assert again.returncode == 1, again.stderr
        assert f"the topic {topic} got the partitions 1: keys may have moved to them" in again.stderr
        ends = planned(folder, topic)
        last = finished(folder)
        assert (list(ends[last]), list(ends[last + 1])) == (["0"], ["0", "1"])
        merged = range(ends[last]["0"])
        assert table(folder) == {f"k{n % KEYS}": f"old {n}" for n in merged}

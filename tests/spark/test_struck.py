"""What strikes a pipeline while it runs: its topic is deleted and made again, or gets partitions; its driver is killed
while it looks after its table, or while dead letters are taken once more. Nothing is lost in silence, or doubled."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.errors import PySparkException

from tailrace.spark.pipelines import Pipeline, TableSink, TopicSource, Transform, run
from tailrace.spark.pipelines.failures import Retrying, RetryPolicy
from tailrace.spark.pipelines.landing.batches import Landing, lake_table
from tests.spark.maintaining import everything
from tests.spark.test_landing import checkpoint, sink
from tests.spark.test_merging import model_of, rows_of, table_of
from tests.spark.test_operating import declare, folder, running, table, tailrace
from tests.spark.test_pipeline_command import QUICK, command, kill_group
from tests.spark.test_pipelines import wait_until_gone

__all__ = ["checkpoint", "folder", "sink"]  # Fixtures.

DEADLINE_S = 120.0
MAINTENANCE_KILLS = 12
REPLAY_KILLS = 6

pytestmark = pytest.mark.long


class Beside:
    """A pipeline that runs in a thread, and is tried again as `tailrace pipeline run` does it."""

    def __init__(self, pipeline, spark):
        self._pipeline = pipeline
        self._spark = spark
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self):
        retrying = Retrying(RetryPolicy(), self._stop, lambda error, *_: print(f"again: {error}"))
        self._run = self._pool.submit(
            retrying.run,
            lambda: run(self._pipeline, self._spark, stop=self._stop, on_progress=retrying.progressed),
        )
        return self

    def wait_rows(self, count):
        path, deadline = self._pipeline.sink.table, time.monotonic() + DEADLINE_S
        while not DeltaTable.is_deltatable(path) or DeltaTable(path).to_pyarrow_table().num_rows != count:
            assert not self._run.done(), self._run.exception()
            assert time.monotonic() < deadline, "rows do not come"
            time.sleep(0.1)

    def wait_end(self):
        """Raises what the pipeline has raised."""
        self._run.result(DEADLINE_S)

    def __exit__(self, *_):
        self._stop.set()
        self._pool.shutdown()


@pytest.fixture
def keyed(tailrace_broker, create_topic, tmp_path):
    """A pipeline into a table that has the last row of each key, by offset."""
    transform = Transform(sql="SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS v, partition, offset FROM r")
    table = TableSink(str(tmp_path / "table"), "delta", merge_on=("key",), omit=("partition", "offset"))
    topic = TopicSource(create_topic(1))
    return Pipeline(
        "struck", tailrace_broker.bootstrap, {"r": topic}, table, str(tmp_path / "checkpoint"), transform=transform
    )


def keys_and_values(pipeline):
    return {row["key"]: row["v"] for row in DeltaTable(pipeline.sink.table).to_pyarrow_table().to_pylist()}


def test_a_topic_is_made_again_while_it_is_read(spark, keyed, admin, produce):
    topic = keyed.sources["r"].topic
    produce(topic, [{"key": f"k{n}", "value": "old"} for n in range(3)])
    with Beside(keyed, spark) as beside:
        beside.wait_rows(3)
        admin.delete_topics([topic])[topic].result(DEADLINE_S)
        wait_until_gone(admin, topic)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
        produce(topic, [{"key": f"k{n}", "value": "new"} for n in range(5)])
        with pytest.raises(PySparkException, match=f"{topic} was deleted and created anew|{topic}-0 was read before"):
            beside.wait_end()
    with pytest.raises(PySparkException, match=f"topic {topic} was deleted and created anew"):
        run(keyed, spark, once=True)
    assert keys_and_values(keyed) == dict.fromkeys(["k0", "k1", "k2"], "old")


def test_a_topic_gets_partitions_while_its_keys_are_merged(spark, keyed, admin, produce):
    topic = keyed.sources["r"].topic
    produce(topic, [{"key": f"k{n}", "value": "old"} for n in range(3)])
    with Beside(keyed, spark) as beside:
        beside.wait_rows(3)
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(DEADLINE_S)
        # A client that knows of no fewer partitions.
        producer = Producer({"bootstrap.servers": keyed.bootstrap})
        producer.produce(topic, b"moved", b"k0", 1)
        assert producer.flush(DEADLINE_S) == 0
        with pytest.raises(PySparkException, match=f"the topic {topic} got the partitions 1: keys may have moved"):
            beside.wait_end()
    with pytest.raises(PySparkException, match=f"the topic {topic} got the partitions 1"):
        run(keyed, spark, once=True)
    assert keys_and_values(keyed) == dict.fromkeys(["k0", "k1", "k2"], "old")


def files_of(sink):
    """Those in the folder of the table, and those that the table names."""
    if sink.format == "delta":
        found = {str(path) for path in DeltaTable(sink.table).file_uris()}
        root = sink.table
    else:
        loaded = load_catalog(None, **sink.catalog).load_table(sink.table)
        found = {task.file.file_path.removeprefix("file://") for task in loaded.scan().plan_files()}
        root = loaded.location().removeprefix("file://") + "/data"
    there = {os.path.join(at, name) for at, _, names in os.walk(root) for name in names if name.endswith(".parquet")}
    return {path for path in there if "_delta_log" not in path}, found


def test_a_driver_is_killed_while_it_looks_after_its_table(spark, sink, checkpoint):
    """Anywhere between two instructions, with nothing kept for the sake of age. Each batch comes twice."""
    sink = replace(
        sink,
        partition_by=(),
        merge_on=("key",),
        delete_where="text IS NULL",
        version="version",
        omit=("partition", "offset"),
    )
    land = Landing("orders", checkpoint("first"), sink)
    chance = random.Random(22)
    seen, killed, took_s = [], 0, 0.5
    for number in range(MAINTENANCE_KILLS):
        batch = [
            (f"k{chance.randrange(9)}", None if chance.random() < 0.3 else "x" * chance.randrange(5), 100 * number + n)
            for n in range(9)
        ]
        seen += batch
        for _ in range(2):
            land(rows_of(spark, batch), number)
        words = [sys.executable, "-m", "tests.spark.maintaining", json.dumps(asdict(sink))]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "begins\n"
            began = time.monotonic()
            try:
                process.wait(took_s * chance.random() if number else DEADLINE_S)
                took_s = time.monotonic() - began
            except subprocess.TimeoutExpired:
                killed += 1
                process.kill()
        assert table_of(sink) == model_of(seen)
        land(rows_of(spark, batch), number)
        assert table_of(sink) == model_of(seen)
    assert killed > MAINTENANCE_KILLS // 2
    lake_table(sink).maintain(everything())
    there, named = files_of(sink)
    assert there == named
    assert table_of(sink) == model_of(seen)


def test_dead_letters_are_taken_while_both_drivers_are_killed(folder, tailrace_broker, create_topic, produce):
    """The one that reads the topic and the one that takes its dead letters, at any moment, on two cores."""
    topic, dead = create_topic(2), create_topic()
    dead_letters = f'dead_letters = "{dead}"'
    broken = declare(folder, "orders", tailrace_broker.bootstrap, topic)
    broken.write_text(broken.read_text().replace("[transform]", f"{dead_letters}\n[transform]"))
    mended = folder / "mended.toml"
    mended.write_text(broken.read_text().replace("n INT", "n STRING").replace("value.n", "CAST(value.n AS INT) AS n"))
    replay = command("replay", mended, "--dead-letters", "--master=local[2]", *QUICK)
    chance = random.Random(22)
    count, finished = 0, 0
    for _ in range(REPLAY_KILLS):
        values = [{"n": str(n) if n % 3 == 0 else n} for n in range(count, count + 120)]
        produce(topic, [{"value": json.dumps(value), "partition": n % 2} for n, value in enumerate(values)])
        count += len(values)
        with running(broken) as stream:
            replaying = subprocess.Popen(replay, stderr=subprocess.PIPE, text=True, start_new_session=True)
            try:
                replaying.wait(chance.uniform(12, 30))
                finished += 1
            except subprocess.TimeoutExpired:
                pass
            finally:
                kill_group(replaying)
                _, errors = replaying.communicate(timeout=DEADLINE_S)
            assert replaying.returncode in (0, -signal.SIGKILL), errors
            assert stream.poll() is None
    print(f"{finished} of {REPLAY_KILLS} were not killed")
    assert finished < REPLAY_KILLS
    tailrace("run", broken, "--once", "--master=local[2]", *QUICK)
    tailrace("replay", mended, "--dead-letters", "--master=local[2]", *QUICK)
    assert sorted(table(folder, "orders")["n"].to_pylist()) == list(range(count))

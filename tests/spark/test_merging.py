"""Rows that replace those of their key: each batch once, deletions, rows that come late, and keys that moved."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

import pytest
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as sf

from tailrace.cli.pipeline.checking import sink_columns
from tailrace.spark.audit import Audit, TableSide, run_audit
from tailrace.spark.pipelines import Pipeline, TableSink, TopicSource, Transform, run
from tailrace.spark.pipelines.landing.batches import Landing, LandingError, lake_table
from tailrace.spark.pipelines.landing.iceberg import _bins
from tests.spark.test_landing import checkpoint, sink

__all__ = ["checkpoint", "sink"]  # Fixtures.

COLUMNS = "key STRING, at TIMESTAMP, text STRING, deep STRUCT<a: INT>, version INT, partition INT, offset BIGINT"


@pytest.fixture
def keyed(sink):
    return replace(
        sink, partition_by=("day(at)",), merge_on=("key",), delete_where="text IS NULL", omit=("partition", "offset")
    )


def rows_of(spark, rows, partition=0):
    """Rows are (key, text or None, version); the day is a part of the text, so that keys change their partition."""
    values = [
        (key, datetime(2026, 1, 1 + len(text or "") % 3), text, {"a": version}, version, partition, offset)
        for offset, (key, text, version) in enumerate(rows)
    ]
    return spark.createDataFrame(values, COLUMNS).repartition(2)


def stored(keyed):
    """As the table's own library reads it."""
    if keyed.format == "delta":
        return DeltaTable(keyed.table).to_pyarrow_table().to_pylist()
    return load_catalog(None, **keyed.catalog).load_table(keyed.table).scan().to_arrow().to_pylist()


def table_of(keyed):
    rows = stored(keyed)
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: (row["text"], row["deep"]["a"], row["at"].day) for row in rows if not row.get("_deleted_at")}


def random_batches(seed):
    chance = random.Random(seed)
    version = 0
    for _ in range(3):
        batch = []
        for _ in range(12):
            version += 1
            text = None if chance.random() < 0.3 else "x" * chance.randrange(5)
            batch.append((f"k{chance.randrange(8)}", text, version))
        yield batch


def model_of(rows):
    table = {}
    for key, text, version in sorted(rows, key=lambda row: row[2]):
        table.pop(key, None)
        if text is not None:
            table[key] = (text, version, 1 + len(text) % 3)
    return table


def test_the_last_row_of_each_key_by_offset(spark, keyed, checkpoint):
    land = Landing("orders", checkpoint("first"), keyed)
    seen = []
    for number, batch in enumerate(random_batches(1)):
        seen += batch
        for _ in range(2 if number == 1 else 1):
            land(rows_of(spark, batch), number)
        assert table_of(keyed) == model_of(seen)
    assert "offset" not in stored(keyed)[0]
    lake_table(keyed).compact(1 << 20)
    land(rows_of(spark, [("k0", "again", 99), ("never-there", None, 100)]), 3)
    land(rows_of(spark, []), 4)
    assert table_of(keyed) == model_of([*seen, ("k0", "again", 99)])

    both = rows_of(spark, [("k1", "a", 1)]).union(rows_of(spark, [("k1", "b", 2)], partition=1))
    with pytest.raises(PySparkException, match="has records in two partitions"):
        land(both, 5)
    with pytest.raises(PySparkException, match="has no key, by which it would be merged"):
        land(rows_of(spark, [(None, "a", 1)]), 5)
    with pytest.raises(LandingError, match="need the columns partition, offset; they have key"):
        land(rows_of(spark, []).drop("partition", "offset"), 5)


def test_the_last_row_of_each_key_by_version(spark, keyed, checkpoint):
    """Batches come in another order than their rows were made in, deletions too."""
    keyed = replace(keyed, version="version")
    land = Landing("orders", checkpoint("first"), keyed)
    seen = []
    batches = list(random_batches(2))
    for number, batch in enumerate([batches[2], batches[0], batches[1]]):
        seen += batch
        land(rows_of(spark, random.Random(number).sample(batch, len(batch))), number)
    assert table_of(keyed) == model_of(seen)
    hidden = {row["key"] for row in stored(keyed) if row["_deleted_at"]}
    assert hidden == {key for key, _, _ in seen} - set(model_of(seen))


@pytest.mark.long
def test_two_pipelines_merge_while_files_are_compacted(spark, sink, checkpoint):
    """Commits that come too late are made anew from what is there then: nothing comes back, and nothing is lost."""
    sink = replace(sink, partition_by=(), merge_on=("key",), delete_where="text IS NULL", omit=("partition", "offset"))
    Landing("zero", checkpoint("zero"), sink)(rows_of(spark, [("z0", "z", 0)]), 0)

    def land_all(name):
        land = Landing(name, checkpoint(name), sink)
        for number in range(4):
            land(rows_of(spark, [(f"{name}{number % 3}", None if number == 3 else "x", number)]), number)

    with ThreadPoolExecutor() as pool:
        landings = [pool.submit(land_all, "a"), pool.submit(land_all, "b")]
        while not all(landing.done() for landing in landings):
            lake_table(sink).compact(1 << 20)
        for landing in landings:
            landing.result()
    assert set(table_of(sink)) == {"z0", "a1", "a2", "b1", "b2"}


@pytest.mark.parametrize("sink", ["iceberg"], indirect=True)
def test_files_that_a_merge_has_written_anew_are_not_put_back(spark, sink, checkpoint):
    """Compaction has read them, and the merge is quicker."""
    sink = replace(sink, partition_by=(), merge_on=("key",), delete_where="text IS NULL", omit=("partition", "offset"))
    land = Landing("orders", checkpoint("first"), sink)
    for number in range(2):
        land(rows_of(spark, [(f"k{number}", "x", number)]), number)
    table = lake_table(sink)
    (files,) = _bins(table._table(), 1 << 20)
    land(rows_of(spark, [("k0", None, 2)]), 2)
    assert table._rewrite(files) == 0
    assert set(table_of(sink)) == {"k1"}


class Compacted(NamedTuple):
    """A topic of keys and JSON, and a pipeline that makes a table of what it holds for each key."""

    topic: str
    pipeline: Pipeline

    def audit(self, spark):
        """The topic, read as a batch and reduced by other means, against the table."""
        options = {"kafka.bootstrap.servers": self.pipeline.bootstrap, "subscribe": self.topic}
        records = spark.read.format("tailrace").options(**options, startingOffsets="earliest").load()
        last = Window.partitionBy("key").orderBy(sf.desc("offset"))
        records.withColumn("rank", sf.row_number().over(last)).where("rank = 1 AND value IS NOT NULL").selectExpr(
            "CAST(key AS STRING) AS key", "get_json_object(CAST(value AS STRING), '$.n') AS n"
        ).createOrReplaceTempView("last_records")
        report = run_audit(
            Audit(
                expected=TableSide("last_records", format="spark", by=("key",), compare=("n",)),
                actual=TableSide(self.pipeline.sink.table, format="delta", by=("key",), compare=("n",)),
            ),
            spark,
        )
        assert report.is_clean, report.text()
        return report.actual.records


@pytest.fixture
def compacted(tailrace_broker, create_topic, tmp_path):
    topic = create_topic(2, **{"cleanup.policy": "compact"})
    pipeline = Pipeline(
        name="latest",
        bootstrap=tailrace_broker.bootstrap,
        sources={"orders": TopicSource(topic, format="json", schema="n INT")},
        transform=Transform(
            sql="SELECT CAST(key AS STRING) AS key, value.n, value IS NULL AS gone, partition, offset FROM orders"
        ),
        sink=TableSink(
            str(tmp_path / "latest"),
            "delta",
            merge_on=("key",),
            delete_where="gone",
            omit=("gone", "partition", "offset"),
        ),
        checkpoint=str(tmp_path / "stream"),
    )
    return Compacted(topic, pipeline)


@pytest.mark.long
def test_a_compacted_topic_becomes_a_table_that_equals_it(spark, compacted, produce):
    topic, pipeline = compacted
    produce(topic, [{"key": f"k{n % 7}", "value": json.dumps({"n": n})} for n in range(30)])
    run(pipeline, spark, once=True)
    produce(topic, [{"key": f"k{n}", "value": None} for n in range(3)] + [{"key": "k1", "value": '{"n": 99}'}])
    run(pipeline, spark, once=True)
    assert compacted.audit(spark) == 5


def test_a_topic_that_got_partitions_is_refused(spark, compacted, produce, admin):
    topic, pipeline = compacted
    assert sink_columns(spark, pipeline) == [("key", "string"), ("n", "int")]
    with pytest.raises(LandingError, match="the rows need the columns idd; they have key, n, gone"):
        sink_columns(spark, replace(pipeline, sink=replace(pipeline.sink, merge_on=("idd",))))
    produce(topic, [{"key": f"k{n % 3}", "value": json.dumps({"n": n})} for n in range(7)])
    produce(topic, [{"key": "k1", "value": None}])
    run(pipeline, spark, once=True)
    assert sorted((row["key"], row["n"]) for row in stored(pipeline.sink)) == [("k0", 6), ("k2", 5)]

    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    produce(topic, [{"key": "k1", "value": '{"n": 100}'}])
    with pytest.raises(PySparkException, match=f"the topic {topic} got the partitions 2: keys may have moved"):
        run(pipeline, spark, once=True)


@pytest.mark.long
def test_a_driver_that_is_killed_merges_each_batch_once(sink, produce, create_topic, tailrace_broker, tmp_path):
    """SIGKILL at random moments, while batches run; at the end the table is what a dict of the records is."""
    topic = create_topic(2)
    records = [(f"k{n % 37}", None if n % 5 == 0 else json.dumps({"n": n})) for n in range(2000)]
    produce(topic, [{"key": key, "value": value} for key, value in records])
    catalog = "".join(f'{name} = "{value}"\n' for name, value in sink.catalog.items())
    file = tmp_path / "latest.toml"
    file.write_text(f"""
        name = "latest"
        bootstrap = "{tailrace_broker.bootstrap}"
        checkpoint = "{tmp_path}/stream"
        [sources.orders]
        topic = "{topic}"
        format = "json"
        schema = "n INT"
        batch_records_max = 40
        [transform]
        sql = "SELECT CAST(key AS STRING) AS key, value.n, value IS NULL AS gone, partition, offset FROM orders"
        [sink]
        table = "{sink.table}"
        format = "{sink.format}"
        merge_on = ["key"]
        delete_where = "gone"
        omit = ["gone", "partition", "offset"]
        {"[sink.catalog]" if catalog else ""}
        {catalog}
    """)
    chance = random.Random(7)
    words = [sys.executable, "-m", "tailrace", "pipeline", "run", str(file), "--once", "--conf=spark.ui.enabled=false"]
    words += ["--conf=spark.sql.shuffle.partitions=1", "--metrics"]
    for number in range(5):
        metrics = tmp_path / f"metrics-{number}"
        run_once = subprocess.Popen([*words, str(metrics)], start_new_session=True)
        try:
            deadline = time.monotonic() + 200
            while not metrics.exists() or not metrics.read_text():
                assert run_once.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            if number < 4:
                time.sleep(3 * chance.random())
                assert run_once.poll() is None, "it was done before it was killed"
            else:
                assert run_once.wait(300) == 0
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run_once.pid, signal.SIGKILL)
            run_once.wait(30)
    expected = {key: json.loads(value)["n"] for key, value in dict(records).items() if value is not None}
    assert sorted((row["key"], row["n"]) for row in stored(sink)) == sorted(expected.items())

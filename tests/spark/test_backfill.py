"""Backfill and replay on a real broker: ranges, tables, what is missing, rate limits and what a second run does."""

import json
import threading
import time

import pytest

from tailrace.spark.audit import Audit, TopicSide, run_audit
from tailrace.spark.pipelines.backfill import Backfill, run_backfill
from tailrace.spark.pipelines.declaration import TopicSink
from tailrace.spark.pipelines.reading import TableScan, TopicRange

RECORDS = 400


@pytest.fixture(scope="module")
def orders(create_topic, produce):
    topic = create_topic(partitions=2)
    rows = [
        {"key": f"k{n % 10}", "value": str(n), "partition": n % 2, "headers": [("n", str(n).encode())]}
        for n in range(RECORDS)
    ]
    produce(topic, rows)
    return topic


@pytest.mark.long
def test_a_range_of_a_topic_is_replayed_in_batches_once(spark, tailrace_broker, orders, create_topic, checkpoint):
    copy = create_topic(partitions=2)
    bootstrap = tailrace_broker.bootstrap
    bounds = {"start": {"0": 10, "1": 20}, "end": {"0": 110, "1": 150}}
    source = TopicRange(orders, bootstrap, **{name: json.dumps({orders: at}) for name, at in bounds.items()})
    backfill = Backfill(
        source, TopicSink(copy), "replay", bootstrap, checkpoint, batch_records_max=100, keep_partitions=True
    )
    # The first run is stopped after its first batch, and the second one goes on.
    stop, seen = threading.Event(), []
    run_backfill(backfill, spark, on_progress=lambda progress: (seen.append(progress), stop.set()), stop=stop)
    assert 90 <= seen[0].rows <= 100
    assert run_backfill(backfill, spark).rows == 230 - sum(progress.rows for progress in seen)
    # A clean copy, partition by partition, with its headers.
    sides = {"options": {"includeHeaders": "true"}, "compare": ("partition", "headers")}
    whole = TopicSide(**{**vars(source), **sides}, order_by=("partition",))
    report = run_audit(Audit(whole, TopicSide(copy, bootstrap, **sides)), spark)
    assert report.is_clean, report.text()
    assert [each.records for each in report.actual.partitions] == [100, 130]


def records(spark, topic, bootstrap):
    found = spark.read.format("tailrace").options(**TopicRange(topic, bootstrap).source_options).load()
    return sorted((row.key.decode(), row.value.decode()) for row in found.collect())


def test_a_table_is_written_once_and_what_is_missing_again(spark, tailrace_broker, create_topic, tmp_path):
    target = create_topic(partitions=2)
    bootstrap = tailrace_broker.bootstrap
    rows = [("a", 1), ("b", 2), ("b", 2), ("c", None)]
    spark.createDataFrame(rows, "id string, amount int").write.parquet(str(tmp_path / "table"))
    table, sink = TableScan(str(tmp_path / "table")), TopicSink(target, format="json", key="id")
    backfill = Backfill(table, sink, f"fill-{target}", bootstrap)
    seen = []
    assert run_backfill(backfill, spark, on_progress=seen.append).rows == 4
    assert sum(progress.rows for progress in seen) >= 4
    run_backfill(backfill, spark)
    written = [
        ("a", '{"id":"a","amount":1}'),
        ("b", '{"id":"b","amount":2}'),
        ("b", '{"id":"b","amount":2}'),
        ("c", '{"id":"c","amount":null}'),
    ]
    assert records(spark, target, bootstrap) == written

    spark.createDataFrame([*rows, ("b", 2), ("d", 4)], "id string, amount int").write.mode("overwrite").parquet(
        str(tmp_path / "table")
    )
    repair = Backfill(table, sink, "repair", bootstrap, only_missing=True)
    assert run_backfill(repair, spark).rows == 2
    assert records(spark, target, bootstrap) == sorted([*written, written[1], ("d", '{"id":"d","amount":4}')])


@pytest.mark.long
def test_a_rate_limit_holds(spark, tailrace_broker, orders, create_topic, checkpoint):
    copy = create_topic()
    backfill = Backfill(
        TopicRange(orders, tailrace_broker.bootstrap),
        TopicSink(copy),
        "slowly",
        tailrace_broker.bootstrap,
        checkpoint,
        records_per_second=200,
    )
    started = time.monotonic()
    assert run_backfill(backfill, spark).rows == RECORDS
    assert time.monotonic() - started >= RECORDS / 200

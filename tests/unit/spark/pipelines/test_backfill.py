"""What a backfill can be, and how fast it lets rows pass."""

import time

import pyarrow as pa
import pytest

from tailrace.spark.audit import Audit, TableSide, TopicSide
from tailrace.spark.pipelines.backfill import Backfill, throttle
from tailrace.spark.pipelines.declaration import DeclarationError, TopicSink
from tailrace.spark.pipelines.parse import load
from tailrace.spark.pipelines.reading import TableScan, TopicRange

TOPIC = TopicRange("orders", "b:1")
SINK = TopicSink("again")


@pytest.mark.parametrize(
    ("declare", "key", "message"),
    [
        (lambda: Backfill(TOPIC, SINK, "a/b", "b:1", "c"), "name", "is no name"),
        (lambda: Backfill(TOPIC, SINK, "a", "b:1"), "checkpoint", "would begin anew"),
        (lambda: Backfill(TOPIC, TopicSink("orders"), "a", "b:1", "c"), "sink", "into itself"),
        (lambda: Backfill(TOPIC, SINK, "a", "b:1", "c", records_per_second=0), "records_per_second", "below 1"),
        (lambda: Backfill(TOPIC, SINK, "a", "b:1", "c", batch_records_max=0), "batch_records_max", "1 or more"),
        (lambda: Backfill(TableScan("t"), SINK, "a", "b:1", keep_partitions=True), "keep_partitions", "no partitions"),
    ],
)
def test_what_cannot_be_is_refused_by_the_key_that_says_it(declare, key, message):
    with pytest.raises(DeclarationError, match=message) as caught:
        declare()
    assert caught.value.key == key


def test_a_topic_may_be_copied_to_its_namesake_on_another_cluster():
    backfill = Backfill(TOPIC, TopicSink("orders"), "a", "other:1", "c", kafka={"acks": "all"})
    assert backfill.sink_options == {"kafka.acks": "all", "kafka.bootstrap.servers": "other:1", "topic": "orders"}
    assert str(backfill) == "topic orders -> topic orders"


def test_files_declare_backfills_and_audits(tmp_path):
    head = 'name = "x"\nbootstrap = "b:1"\ncheckpoint = "/c"\n[kafka]\n"client.id" = "me"\n'
    path = tmp_path / "job.toml"
    path.write_text(head + '[backfill]\nrecords_per_second = 5\nsink.topic = "again"\nsource.topic = "orders"\n')
    settings = {"bootstrap.servers": "b:1", "client.id": "me"}
    source = TopicRange("orders", "b:1", kafka=settings)
    assert load(path) == Backfill(source, SINK, "x", "b:1", "/c", records_per_second=5, kafka=settings)
    path.write_text(
        head + '[audit]\n[audit.expected]\ntopic = "orders"\nby = ["key"]\n[audit.actual]\ntable = "/t"\nby = "id"\n'
    )
    expected = TopicSide("orders", "b:1", by=("key",), kafka=settings)
    assert load(path) == Audit(expected, TableSide("/t", by=("id",)), name="x")


def test_rows_pass_no_faster_than_the_limit_and_none_is_held_back():
    batches = [pa.record_batch({"n": range(start, start + 40)}) for start in (0, 40)]
    started = time.monotonic()
    passed = []
    for batch in throttle(200, iter(batches)):
        passed += batch.column("n").to_pylist()
        assert len(passed) / 200 <= time.monotonic() - started
    assert passed == list(range(80))

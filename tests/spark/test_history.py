"""A pipeline with a history: the stream and the past beside each other, and every record once, whatever is killed."""

import json
import threading
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable

from tailrace.spark.pipelines import Pipeline, TableSink, TopicSource, Transform, run
from tailrace.spark.pipelines.beside.history import ensure_cut, history_checkpoint, run_history
from tailrace.spark.pipelines.declaration import DeclarationError, History
from tailrace.spark.pipelines.landing.batches import Landing

PAST = 300


@pytest.fixture
def topic(create_topic, produce):
    topic = create_topic(2)
    produce(topic, [{"value": str(n), "partition": n % 2} for n in range(PAST)])
    return topic


@pytest.fixture
def pipeline(tailrace_broker, topic, tmp_path):
    return Pipeline(
        "orders",
        tailrace_broker.bootstrap,
        {"rows": TopicSource(topic, format="string")},
        TableSink(str(tmp_path / "table"), "delta"),
        str(tmp_path / "checkpoint"),
        transform=Transform(sql="SELECT CAST(value AS INT) AS n, offset FROM rows"),
        history=History(batch_records_max=100),
    )


@pytest.fixture
def landed(tmp_path):
    return lambda: sorted(DeltaTable(str(tmp_path / "table")).to_pyarrow_table()["n"].to_pylist())


@pytest.mark.long
def test_the_stream_first_and_its_past_beside_it(spark, pipeline, topic, produce, landed):
    cut = ensure_cut(spark, pipeline)
    assert cut == {topic: {"0": PAST // 2, "1": PAST // 2}}
    produce(topic, [{"value": str(n), "partition": n % 2} for n in range(PAST, PAST + 10)])
    assert run(pipeline, spark, once=True).rows == 10
    assert landed() == list(range(PAST, PAST + 10))
    assert run_history(pipeline, spark).rows == PAST
    assert landed() == list(range(PAST + 10))
    assert ensure_cut(spark, pipeline) == cut, "the same for ever"
    assert run_history(pipeline, spark).rows == run(pipeline, spark, once=True).rows == 0


@pytest.mark.long
@pytest.mark.parametrize("fatal", [0, 1, 2])
def test_a_history_that_is_cut_off_goes_on(spark, pipeline, landed, monkeypatch, fatal):
    land, killed = Landing.__call__, []

    def dies(self, rows, number):
        land(self, rows, number)
        if number == fatal and not killed:
            killed.append(number)
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Landing, "__call__", dies)
        with pytest.raises(Exception, match="killed"):
            run_history(pipeline, spark)
    # A driver that died in between began the live half meanwhile.
    assert run(pipeline, spark, once=True).rows == 0
    run_history(pipeline, spark)
    assert landed() == list(range(PAST))


@pytest.mark.long
def test_a_pace_is_kept_and_the_end_is_seen(spark, pipeline, landed):
    paced = replace(pipeline, history=History(records_per_second=30))
    seen = []
    run_history(paced, spark, on_progress=seen.append)
    assert max(progress.rows for progress in seen) <= 150
    assert landed() == list(range(PAST))
    assert seen[-1].lag == 0


@pytest.mark.long
def test_both_at_a_time_while_records_come(spark, pipeline, topic, produce, landed):
    stop = threading.Event()
    live = threading.Thread(target=run, args=(pipeline, spark), kwargs={"stop": stop})
    live.start()
    try:
        for first in range(PAST, PAST + 100, 10):
            produce(topic, [{"value": str(n), "partition": n % 2} for n in range(first, first + 10)])
        run_history(replace(pipeline, history=History(batch_records_max=20)), spark)
        run_out = threading.Event()
        for _ in range(600):
            if len(landed()) == PAST + 100 or run_out.wait(0.1):
                break
    finally:
        stop.set()
        live.join(60)
    assert landed() == list(range(PAST + 100))


def test_a_topic_gets_partitions_after_the_cut(spark, pipeline, admin, landed):
    """And the live half has no checkpoint yet that would know of them."""
    topic = pipeline.sources["rows"].topic
    cut = ensure_cut(spark, pipeline)
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    newcomer = Producer({"bootstrap.servers": pipeline.bootstrap})  # It knows of no fewer partitions.
    for n in range(PAST, PAST + 5):
        newcomer.produce(topic, str(n), partition=2)
    assert newcomer.flush(30) == 0
    assert run(pipeline, spark, once=True).rows == 5
    assert landed() == list(range(PAST, PAST + 5))
    assert ensure_cut(spark, pipeline) == cut


def test_a_stream_that_began_without_one(spark, pipeline, tmp_path):
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "1"}))
    with pytest.raises(DeclarationError, match="is of a stream that began without a history"):
        ensure_cut(spark, pipeline)
    counted = replace(
        pipeline, transform=Transform(sql="SELECT count(*) AS n FROM rows"), checkpoint=str(tmp_path / "c")
    )
    with pytest.raises(DeclarationError, match="several rows at a time"):
        ensure_cut(spark, counted)


def test_where_its_checkpoint_is(pipeline):
    assert history_checkpoint(pipeline) == f"{pipeline.checkpoint}-history"

"""Pipelines against a real broker: tables and topics exactly once, over restarts and repeated batches."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.errors import PySparkException

from tailrace.cli import main
from tailrace.spark import session
from tailrace.spark.pipelines import DeclarationError, Pipeline, TableSink, TopicSink, TopicSource, Transform, load, run
from tailrace.spark.pipelines.failures import failure_text, is_transient
from tailrace.spark.pipelines.landing.batches import LandingError

DEADLINE_S = 30.0
SCHEMA = "id INT, amount DOUBLE, at TIMESTAMP"


def order(number, minute=0, days=2):
    value = {"id": number, "amount": number / 2, "at": f"2026-01-0{1 + number % days}T12:{minute:02}:00Z"}
    return {"key": str(number), "value": json.dumps(value)}


def read_topic(bootstrap, topic):
    """What a reader of committed records sees."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"})
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, DEADLINE_S)
    consumer.assign([partition])
    records = []
    while consumer.position([partition])[0].offset < end:
        record = consumer.poll(1.0)
        if record is not None and record.error() is None:
            records.append((record.key(), record.value()))
        elif record is None:
            break
    consumer.close()
    return records


class Kafka(NamedTuple):
    bootstrap: str
    create_topic: Callable[..., str]
    produce: Callable[..., None]


@pytest.fixture
def kafka(tailrace_broker, create_topic, produce):
    return Kafka(tailrace_broker.bootstrap, create_topic, produce)


def forget_commit(checkpoint, batch):
    """As if Spark had been killed when the sink was done and before it could remember it: the batch runs again."""
    for name in (str(batch), f".{batch}.crc"):
        (Path(checkpoint) / "commits" / name).unlink(missing_ok=name.startswith("."))


def test_a_file_lands_a_topic_in_parquet(spark, kafka, tmp_path):
    topic, dead = kafka.create_topic(2), kafka.create_topic()
    file = tmp_path / "orders.toml"
    file.write_text(f"""
        name = "orders"
        bootstrap = "{kafka.bootstrap}"
        checkpoint = "{tmp_path}/checkpoint"
        [sources.orders]
        topic = "{topic}"
        format = "json"
        schema = "{SCHEMA}"
        dead_letters = "{dead}"
        watermark = "1 hour"
        deduplicate = ["value.id"]
        batch_records_max = 30
        [transform]
        sql = "SELECT value.*, offset FROM orders"
        [sink]
        table = "{tmp_path}/orders"
        partition_by = ["day(at)"]
    """)
    kafka.produce(topic, [order(n) for n in [*range(40), *range(10)]] + [{"value": b"no json"}])
    progress = []
    summary = run(load(file), spark, once=True, on_progress=progress.append)
    assert (summary.rows, summary.lag, summary.late_rows) == (50, 0, 0)
    assert next(batch.lag for batch in progress if batch.rows) > 0

    kafka.produce(topic, [order(n) for n in range(35, 45)])
    forget_commit(f"{tmp_path}/checkpoint", max(batch.batch for batch in progress))
    run(load(file), spark, once=True)
    table = spark.read.parquet(f"{tmp_path}/orders")
    assert sorted(row.id for row in table.collect()) == list(range(45))
    assert {str(row.at_day) for row in table.select("at_day").distinct().collect()} == {"2026-01-01", "2026-01-02"}
    assert [value for _, value in read_topic(kafka.bootstrap, dead)] == [b"no json"]

    file.write_text(file.read_text().replace("/checkpoint", "/other"))
    with pytest.raises(DeclarationError, match="was filled under another checkpoint"):
        run(load(file), spark, once=True)


@pytest.mark.long
def test_parquet_grows_with_its_rows(spark, kafka, tmp_path):
    topic = kafka.create_topic()
    pipeline = Pipeline(
        name="orders",
        bootstrap=kafka.bootstrap,
        sources={"orders": TopicSource(topic, format="json", schema="id INT, amount FLOAT")},
        transform=Transform(sql="SELECT value.* FROM orders"),
        sink=TableSink(str(tmp_path / "orders"), partition_by=("id",), evolve="add"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    for number, schema in enumerate(["id INT, amount FLOAT", "id INT, at TIMESTAMP, amount FLOAT", "id INT"]):
        kafka.produce(topic, [order(number)])
        sources = {"orders": TopicSource(topic, format="json", schema=schema)}
        run(replace(pipeline, sources=sources), spark, once=True)
    found = spark.read.option("mergeSchema", "true").parquet(pipeline.sink.table)
    assert [(row.id, row.amount, row["at"] is None) for row in found.sort("id").collect()] == [
        (0, 0.0, True),
        (1, 0.5, False),
        (2, None, True),
    ]
    sources = {"orders": TopicSource(topic, format="json", schema="id INT, amount DOUBLE")}
    with pytest.raises(LandingError, match="amount is FLOAT there and DOUBLE here, and tables of this format cannot"):
        run(replace(pipeline, sources=sources), spark, once=True)


@pytest.mark.long
def test_two_topics_are_joined_into_a_third(spark, kafka, tmp_path):
    orders, payments, paid = kafka.create_topic(), kafka.create_topic(), kafka.create_topic()
    (tmp_path / "paying.py").write_text(
        "from pyspark.sql import functions as f\n"
        "@f.udf('string')\n"
        "def name(number): return f'order {number}'\n"
        "def join(orders, payments):\n"
        "    orders = orders.select('value.*', f.col('event_time').alias('ordered'))\n"
        "    payments = payments.select(f.col('value.id').alias('payment'), 'event_time')\n"
        "    soon = 'id = payment AND event_time BETWEEN ordered AND ordered + INTERVAL 1 HOUR'\n"
        "    return orders.join(payments, f.expr(soon)).select(name('id').alias('name'), 'id', 'amount')\n"
    )
    file = tmp_path / "paid.yaml"
    source = f"""
    format: json
    schema: "{SCHEMA}"
    time: value.at
    watermark: 2 hours"""
    file.write_text(f"""
name: paid
bootstrap: {kafka.bootstrap}
checkpoint: {tmp_path}/checkpoint
sources:
  orders:
    topic: {orders}{source}
  payments:
    topic: {payments}{source}
transform:
  python: paying:join
sink:
  topic: {paid}
  format: json
  key: id
""")
    kafka.produce(orders, [order(n, minute=10, days=1) for n in range(6)])
    kafka.produce(payments, [order(2, minute=20, days=1), order(3, minute=5, days=1)])
    run(load(file), spark, once=True)
    kafka.produce(payments, [order(4, minute=30, days=1)])
    run(load(file), spark, once=True)
    assert read_topic(kafka.bootstrap, paid) == [
        (b"2", b'{"name":"order 2","id":2,"amount":1.0}'),
        (b"4", b'{"name":"order 4","id":4,"amount":2.0}'),
    ]


@pytest.mark.long
def test_windows_that_change_are_written_once_each(spark, kafka, tmp_path):
    topic, sums = kafka.create_topic(), kafka.create_topic()
    pipeline = Pipeline(
        name="sums",
        bootstrap=kafka.bootstrap,
        sources={"orders": TopicSource(topic, format="json", schema=SCHEMA, time="value.at", watermark="1 hour")},
        transform=Transform(sql="SELECT count(*) AS n FROM orders GROUP BY window(event_time, '1 minute')"),
        sink=TopicSink(sums, format="json", mode="update"),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    kafka.produce(topic, [order(0), order(2)])
    run(pipeline, spark, once=True)
    forget_commit(pipeline.checkpoint, 0)
    kafka.produce(topic, [order(4)])
    run(pipeline, spark, once=True)
    assert [json.loads(value)["n"] for _, value in read_topic(kafka.bootstrap, sums)] == [2, 3]


def test_a_stop_finishes_the_batch(spark, kafka, tmp_path):
    topic, copy = kafka.create_topic(), kafka.create_topic()
    pipeline = Pipeline(
        name="copy",
        bootstrap=kafka.bootstrap,
        sources={"rows": TopicSource(topic, batch_records_max=10)},
        transform=Transform(function=lambda rows: rows.select("key", "value")),
        sink=TopicSink(copy, exactly_once=False),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    kafka.produce(topic, [{"value": str(n)} for n in range(100)])
    stop = threading.Event()
    summary = run(pipeline, spark, on_progress=lambda progress: progress.batch == 1 and stop.set(), stop=stop)
    assert 20 <= summary.rows < 100
    assert summary.lag == 100 - summary.rows
    finished = summary.rows
    summary = run(pipeline, spark, once=True)
    assert summary.rows == 100 - finished
    assert {value for _, value in read_topic(kafka.bootstrap, copy)} == {b"%d" % n for n in range(100)}


def test_a_topic_that_was_made_again_is_told_and_not_passed_over(spark, kafka, admin, tmp_path):
    topic, copy = kafka.create_topic(), kafka.create_topic()
    pipeline = Pipeline(
        name="copy",
        bootstrap=kafka.bootstrap,
        sources={"rows": TopicSource(topic)},
        transform=Transform(sql="SELECT value FROM rows"),
        sink=TopicSink(copy, exactly_once=False),
        checkpoint=str(tmp_path / "checkpoint"),
    )
    kafka.produce(topic, [{"value": f"old {n}"} for n in range(3)])
    assert run(pipeline, spark, once=True).rows == 3
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    wait_until_gone(admin, topic)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    # Longer than what was read: offsets alone do not show it.
    kafka.produce(topic, [{"value": f"new {n}"} for n in range(5)])
    for _ in range(2):
        with pytest.raises(PySparkException, match=f"topic {topic} was deleted and created anew: its id was"):
            run(pipeline, spark, once=True)
    source = TopicSource(topic, options={"failOnDataLoss": "false"})
    assert run(replace(pipeline, sources={"rows": source}), spark, once=True).rows == 2
    # It was told, and the new topic is the pipeline's own now.
    kafka.produce(topic, [{"value": "last"}])
    assert run(pipeline, spark, once=True).rows == 1
    assert [value for _, value in read_topic(kafka.bootstrap, copy)][3:] == [b"new 3", b"new 4", b"last"]


def wait_until_gone(admin, topic):
    deadline = time.monotonic() + DEADLINE_S
    while topic in admin.list_topics(timeout=DEADLINE_S).topics:
        assert time.monotonic() < deadline, f"{topic} is still there"
        time.sleep(0.05)


def test_pipelines_in_threads_of_one_session_do_not_meet(spark, kafka, tmp_path):
    """Both call their source `rows`, and a thread other than the main one writes to a topic."""
    topics = [kafka.create_topic() for _ in range(2)]
    copies = [kafka.create_topic() for _ in range(2)]
    for number, topic in enumerate(topics):
        kafka.produce(topic, [{"value": f"{number}"}] * 5)

    def copy(number):
        pipeline = Pipeline(
            name=f"copy-{number}",
            bootstrap=kafka.bootstrap,
            sources={"rows": TopicSource(topics[number])},
            transform=Transform(sql="WITH own AS (SELECT value FROM rows) SELECT * FROM own -- all of it"),
            sink=TopicSink(copies[number], exactly_once=False),
            checkpoint=str(tmp_path / f"checkpoint-{number}"),
            spark={"spark.sql.session.timeZone": f"UTC+{number}"},
        )
        return run(pipeline, spark, once=True).rows

    before = spark.conf.get("spark.sql.session.timeZone")
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(copy, range(2))) == [5, 5]
    assert [{value for _, value in read_topic(kafka.bootstrap, each)} for each in copies] == [{b"0"}, {b"1"}]
    assert spark.conf.get("spark.sql.session.timeZone") == before
    assert "rows" not in {table.name for table in spark.catalog.listTables()}


def test_a_query_in_a_thread_finds_the_format(spark, kafka):
    topic = kafka.create_topic()
    kafka.produce(topic, [{"value": "v"}])

    def count():
        options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
        rows = session().read.format("tailrace").options(**options).load()
        rows.select("value").write.format("tailrace").mode("append").options(**options, topic=topic).save()
        return rows.count()

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(count).result(DEADLINE_S) >= 1


def test_check_resolves_columns_and_finds_topics(spark, kafka, tmp_path, capsys):
    topic = kafka.create_topic(3)
    file = tmp_path / "orders.toml"
    text = f"""
        name = "orders"
        bootstrap = "{kafka.bootstrap}"
        checkpoint = "{tmp_path}/checkpoint"
        [sources.orders]
        topic = "{topic}"
        format = "json"
        schema = "{SCHEMA}"
        [transform]
        sql = "SELECT value.*, offset FROM orders"
        [sink]
        table = "{tmp_path}/orders"
        format = "delta"
        partition_by = ["day(at)"]
    """
    file.write_text(text)
    assert main(["pipeline", "check", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"topic {topic}: 3 partitions",
        f"delta table {tmp_path}/orders:",
        "  id INT",
        "  amount DOUBLE",
        "  at TIMESTAMP",
        "  offset BIGINT",
        "  at_day DATE",
    ]
    for wrong, message in [
        (text.replace("SELECT value.*, offset", "SELECT value.idd"), "No such struct field `idd`"),
        (text.replace(" FROM orders", " FRUM orders"), "yntax error"),
        (text.replace("day(at)", "day(amount)"), "day(amount) needs a time, and the column is double"),
        (text.replace(f'topic = "{topic}"', 'topic = "not-there"'), "there is no topic not-there: correct its name"),
    ]:
        file.write_text(wrong)
        assert main(["pipeline", "check", str(file)]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "checkpoint").exists()


def test_a_broker_that_is_away_is_told_as_what_passes(spark, tmp_path):
    pipeline = Pipeline(
        name="away",
        bootstrap="127.0.0.1:1",
        sources={"rows": TopicSource("t")},
        sink=TableSink(str(tmp_path / "table")),
        checkpoint=str(tmp_path / "checkpoint"),
        kafka={"request.timeout.ms": "200", "default.api.timeout.ms": "200"},
    )
    with pytest.raises(PySparkException) as raised:
        run(pipeline, spark, once=True)
    assert is_transient(raised.value)
    assert "cannot reach 127.0.0.1:1: connection refused" in failure_text(raised.value)

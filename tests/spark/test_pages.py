"""The examples of docs/spark as they stand there, with a broker, a registry and folders of the test's own in the places
of those that the pages name.

five-minutes.md has a test of its own, test_examples has state.md, test_debezium the file of debezium.md, test_operating
the commands of operating.md, test_connect what cluster.md says of Spark Connect; what needs a secure cluster
(settings.md) or a bucket (tier.md) is in test_secured_broker and test_tier.
"""

import ast
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import functions as sf

from tailrace.spark.pipelines import load, run
from tailrace.spark.pipelines.backfill import run_backfill
from tailrace.testing import Broker
from tests.parts import ROOT
from tests.spark.test_pipelines import read_topic

BLOCK = re.compile(r"^```(python|toml|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AT_MS = int(datetime(2026, 1, 30, 12, tzinfo=UTC).timestamp() * 1000)
DEADLINE_S = 120.0
TOPICS = ("orders", "payments", "orders-dead", "payments-dead", "orders-again", "orders-by-day", "totals", "events")

pytestmark = pytest.mark.long


class Pages:
    """The examples of pages, and a broker with what they speak of: ten orders, of January 30th."""

    def __init__(self, broker, folder):
        self.broker = broker
        self.folder = folder

    def blocks(self, page, language):
        text = (ROOT / "docs" / "spark" / f"{page}.md").read_text()
        return [self._moved(block) for found, block in BLOCK.findall(text) if found == language]

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def create(self, *topics):
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        # Their records are of long ago.
        wanted = [NewTopic(topic, 1, 1, config={"retention.ms": "-1"}) for topic in topics]
        for created in admin.create_topics(wanted).values():
            created.result(DEADLINE_S)

    def order(self, count, first=0):
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(first, first + count):
            order = {"id": f"o{number}", "product": "tea", "amount": number / 2, "at": "2026-01-30T12:00:00Z"}
            producer.produce("orders", json.dumps(order), f"o{number}", timestamp=AT_MS + number)
        assert producer.flush(DEADLINE_S) == 0

    def _moved(self, text):
        text = text.replace("127.0.0.1:9092", self.broker.bootstrap).replace("/data/", f"{self.folder}/data/")
        return text.replace("http://127.0.0.1:8081", self.broker.registry_url)


@pytest.fixture
def pages(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    with Broker(registry=True, start_timeout_s=DEADLINE_S) as broker:
        found = Pages(broker, tmp_path)
        found.create(*TOPICS)
        found.order(10)
        yield found


def ids(path):
    return sorted(DeltaTable(str(path)).to_pyarrow_table()["id"].to_pylist())


ORDERS = [f"o{number}" for number in range(10)]


def test_pipelines(spark, pages):
    orders, grouped, latest, maintenance = pages.blocks("pipelines", "toml")
    # So that its run has an end.
    orders = orders.replace("[sources.orders]", 'trigger = "available-now"\n\n[sources.orders]', 1)
    file = pages.file("orders.toml", orders)
    by_file, by_threads = pages.blocks("pipelines", "python")
    imports, first, second = ast.parse(by_file).body
    names = {}
    exec(compile(ast.Module([imports, first], []), "pipelines.md", "exec"), names)
    assert ids(pages.folder / "data/orders") == ORDERS
    assert {row["at_day"].isoformat() for row in DeltaTable("data/orders").to_pyarrow_table().to_pylist()} == {
        "2026-01-30"
    }
    elsewhere = ast.unparse(second).replace("/data/", "/data/by-python/")
    exec(elsewhere, names)
    assert spark.read.parquet(str(pages.folder / "data/by-python/orders")).count() == 10

    pages.file("payments.toml", orders.replace("orders", "payments"))
    pages.order(1, first=10)
    exec(by_threads, {})
    assert ids(pages.folder / "data/orders") == sorted([*ORDERS, "o10"])
    assert DeltaTable("data/payments").to_pyarrow_table().num_rows == 0

    head = orders.partition("[transform]")[0]
    file = pages.file("minutes.toml", head.replace('orders"', 'minutes"', 1).replace("checkpoints/orders", "minutes"))
    file.write_text(file.read_text().replace('topic = "minutes"', 'topic = "orders"') + grouped + SINK_OF_MINUTES)
    run(load(file), spark, once=True)

    head = head.replace("id STRING", "n INT, id STRING").replace('name = "orders"', 'name = "latest"')
    head = head.replace("checkpoints/orders", "checkpoints/latest").replace('deduplicate = ["value.id"]', "")
    file = pages.file("latest.toml", f"{head}\n{latest}\n{maintenance}")
    run(load(file), spark, once=True)
    assert sorted(DeltaTable("data/latest").to_pyarrow_table()["key"].to_pylist()) == sorted([*ORDERS, "o10"])


SINK_OF_MINUTES = '\n[sink]\ntopic = "totals"\nformat = "json"\nkey = "product"\nmode = "update"\n'


def test_backfill(spark, pages):
    replay, history = pages.blocks("backfill", "toml")
    run_backfill(load(pages.file("replay.toml", replay)), spark)
    found = [key.decode() for key, _ in read_topic(pages.broker.bootstrap, "orders-again")]
    assert sorted(found) == ORDERS

    (by_python,) = pages.blocks("backfill", "python")
    days = ["2026-01-29", "2026-01-30"]
    write_deltalake(
        "data/orders", spark.createDataFrame([("a", days[0]), ("b", days[1])], "order_id STRING, day STRING").toArrow()
    )
    exec(by_python, {})
    assert [key for key, _ in read_topic(pages.broker.bootstrap, "orders-again")].count(b"b") == 1

    orders = pages.blocks("pipelines", "toml")[0].replace("/data/", "/data/with-history/")
    orders = orders.replace('watermark = "1 hour"\ndeduplicate = ["value.id"]\n', "")
    history = history.replace('options = { tier = "s3://bucket/prefix" }\n', "")
    assert "tier" not in history, "the test has no bucket"
    file = pages.file("orders.toml", f"{orders}\n{history}".replace("2025-01-01", "2026-01-01"))
    words = [sys.executable, "-m", "tailrace", "pipeline", "run", str(file), "--once", "--master=local[2]"]
    runs = os.environ | {"TAILRACE_PIPELINES": str(pages.folder / "runs")}
    done = subprocess.run(words, env=runs, capture_output=True, text=True, timeout=DEADLINE_S * 2, check=False)
    assert done.returncode == 0, done.stderr
    assert ids(pages.folder / "data/with-history/orders") == ORDERS


def test_audit(spark, pages):
    rows = spark.createDataFrame([(order,) for order in ORDERS], "order_id STRING")
    rows.write.parquet(str(pages.folder / "data/orders"))
    by_python, chart = pages.blocks("audit", "python")
    exec(by_python.replace('by=("key",)', 'by=("CAST(key AS STRING)",)'), {})
    assert "<svg" in (pages.folder / "report.html").read_text()
    (declared,) = pages.blocks("audit", "toml")
    audit = load(pages.file("audit.toml", declared))
    assert (audit.expected.topic, audit.actual.table, audit.allow) == (
        "orders",
        str(pages.folder / "data/orders"),
        ("gap",),
    )
    orders = spark.sql("SELECT timestamp'2026-01-30 12:00:00' AS timestamp, 'tea' AS product, 2.5 AS amount")
    exec(chart, {"orders": orders, "window": sf.window, "sum": sf.sum})
    assert "orders by minute" in (pages.folder / "orders.svg").read_text()


def test_source_and_sink(spark, pages):
    connection = {"kafka.bootstrap.servers": pages.broker.bootstrap}
    stream, rows, topic_ids = pages.blocks("source", "python")
    names = {"spark": spark, "connection": connection, "sink": connection | {"topic": "totals"}}
    for block in (stream, rows, topic_ids):
        exec(block, names)
    assert names["orders"].isStreaming
    assert names["rows"].columns[:2] == ["key", "value"]
    assert set(TOPICS) <= names["ids"].keys()

    names["totals"] = spark.createDataFrame([("tea", 1.5)], "product STRING, total DOUBLE")
    (sink,) = pages.blocks("sink", "python")
    exec(sink, names)
    streamed, written, each_batch = pages.blocks("exactly-once", "python")
    names["df"] = spark.createDataFrame([("o99", "last")], "key STRING, value STRING")
    for _ in range(2):
        exec(written, names)
    assert [key for key, _ in read_topic(pages.broker.bootstrap, "orders")].count(b"o99") == 1
    exec(each_batch, names)
    for _ in range(2):
        names["write"](names["df"], 7)
    names["totals"] = names["orders"].select("key", "value")
    exec(streamed, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    found = [key for key, _ in read_topic(pages.broker.bootstrap, "totals")]
    assert (found.count(b"tea"), found.count(b"o99")) == (1, 1)

    (offsets,) = pages.blocks("tables", "sql")
    view, question, *_ = offsets.split(";")
    spark.sql(view)
    assert spark.sql(question).columns == ["group_id", "topic", "lag"]


def test_formats(spark, pages):
    as_json, as_avro, to_avro, dead = pages.blocks("formats", "python")
    names = {"spark": spark, "orders_by_day": spark.createDataFrame([("tea", 3)], "product STRING, count INT")}
    exec(to_avro, names)
    exec(as_avro.replace('"orders"', '"orders-by-day"').replace("readStream", "read"), names)
    assert [tuple(row) for row in names["orders"].collect()] == [("tea", 3)]
    exec(as_json, names)
    assert names["orders"].isStreaming
    assert names["orders"].columns == ["id", "placed", "lines"]
    producer = Producer({"bootstrap.servers": pages.broker.bootstrap})
    for value in ('{"id": 1, "lines": [{"sku": "a", "count": 2}]}', "no json"):
        producer.produce("events", value)
    assert producer.flush(DEADLINE_S) == 0
    exec(as_json.replace("readStream", "read").replace('"subscribe", "orders"', '"subscribe", "events"'), names)
    assert [row.id for row in names["orders"].collect()] == [1]
    exec(dead, names)
    assert [bytes(row.value) for row in names["dead"].collect()] == [b"no json"]

"""The pipelines of examples/ that join and remember, with rows of which it is known what becomes of them."""

import json
import sys
import types
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from tailrace.spark.pipelines import load, run
from tests.parts import ROOT

FOLDER = ROOT / "examples/pipelines"


@pytest.fixture
def feed(create_topic, produce):
    """Makes a topic of such values, or (key, value)."""

    def make(*values):
        topic = create_topic()
        add(topic, *values)
        return topic

    def add(topic, *values):
        pairs = [value if isinstance(value, tuple) else (None, json.dumps(value)) for value in values]
        produce(topic, [{"key": key, "value": value} for key, value in pairs])

    make.add = add
    return make


@pytest.fixture
def example(tailrace_broker, tmp_path):
    """An example with topics and a table of its own."""

    def make(name, **topics):
        pipeline = load(FOLDER / f"{name}.toml")
        sink = pipeline.sink
        return replace(
            pipeline,
            bootstrap=tailrace_broker.bootstrap,
            checkpoint=str(tmp_path / "checkpoint"),
            sources={key: replace(source, topic=topics[key]) for key, source in pipeline.sources.items()},
            sink=replace(sink, topic=topics["sink"])
            if "sink" in topics
            else replace(sink, table=str(tmp_path / "out")),
        )

    return make


def rows_in(spark, pipeline):
    return sorted(tuple(row) for row in spark.read.parquet(pipeline.sink.table).collect())


@pytest.mark.long
def test_orders_with_their_payments(spark, example, feed):
    orders = feed(
        {"id": "a", "amount": 1.5, "at": "2026-01-01T12:00:00Z"},
        {"id": "b", "amount": 2.5, "at": "2026-01-01T12:01:00Z"},
    )
    payments = feed(*[{"order": "a", "at": "2026-01-01T12:05:00Z"}] * 2)
    pipeline = example("paid", orders=orders, payments=payments)
    run(pipeline, spark, once=True)
    assert [row[:2] for row in rows_in(spark, pipeline)] == [("a", 1.5)]
    # When no payment can come any more the other is known to be unpaid.
    feed.add(orders, {"id": "z", "amount": 0.0, "at": "2026-01-02T12:00:00Z"})
    feed.add(payments, {"order": "y", "at": "2026-01-02T12:00:00Z"})
    run(pipeline, spark, once=True)
    assert [(row[0], row[2] is None) for row in rows_in(spark, pipeline)] == [("a", False), ("b", True)]


@pytest.mark.long
def test_visits(spark, example, feed):
    clicks = [("mia", 0), ("mia", 20), ("ben", 25), ("mia", 45), ("mia", 80), ("end", 300)]
    topic = feed(*({"customer": name, "at": f"2026-01-01T{12 + m // 60}:{m % 60:02}:00Z"} for name, m in clicks))
    pipeline = example("visits", clicks=topic)
    run(pipeline, spark, once=True)
    found = [
        (name, ended.timestamp() - began.timestamp(), count) for name, began, ended, count in rows_in(spark, pipeline)
    ]
    assert found == [("ben", 1800, 1), ("mia", 4500, 3), ("mia", 1800, 1)]


@pytest.mark.long
def test_orders_with_what_a_compacted_topic_holds(spark, example, feed, monkeypatch, tailrace_broker):
    products = feed(("p", "Pear"), ("p", "Peach"), ("q", "Quince"), ("q", None))
    orders = feed({"id": "a", "product": "p"}, {"id": "b", "product": "q"})
    pipeline = example("named", orders=orders)
    text = (FOLDER / "state.py").read_text()
    monkeypatch.setitem(sys.modules, "state", module_of(text, tailrace_broker.bootstrap, products))
    run(pipeline, spark, once=True)
    feed.add(products, ("q", "Quince again"))
    feed.add(orders, {"id": "c", "product": "q"})
    run(pipeline, spark, once=True)
    found = [(row[1], row[-1]) for row in rows_in(spark, pipeline)]
    assert sorted(found, key=str) == [("a", "Peach"), ("b", None), ("c", "Quince again")]


def module_of(text, bootstrap, products):
    """The example's module, for another broker and topic."""
    module = types.ModuleType("state")
    module.__file__ = str(FOLDER / "state.py")
    text = text.replace("127.0.0.1:9092", bootstrap).replace('"products"', repr(products))
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    return module


@pytest.mark.long
def test_what_each_customer_has_spent(spark, example, feed, create_topic, tailrace_broker):
    orders = feed(*({"id": str(n), "customer": "mia", "amount": 1.5} for n in range(3)))
    pipeline = example("spending", orders=orders, sink=create_topic())
    run(pipeline, spark, once=True)
    feed.add(orders, {"id": "4", "customer": "mia", "amount": 10.0}, {"id": "5", "customer": "ben", "amount": 2.0})
    run(pipeline, spark, once=True)
    found = values_in(tailrace_broker.bootstrap, pipeline.sink.topic, 3)
    assert [json.loads(each)["total"] for key, each in found if key == b"mia"] == [4.5, 14.5]
    assert dict(found)[b"ben"] == b'{"customer":"ben","total":2.0}'


def values_in(bootstrap, topic, count):
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, 30)
    consumer.close()
    return [(message.key(), message.value()) for message in messages]

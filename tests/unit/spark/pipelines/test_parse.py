"""From files to declarations, and the errors that name file, line and key."""

import pytest

from tailrace.spark.pipelines.declaration import Pipeline, TableSink, TopicSink, TopicSource, Transform
from tailrace.spark.pipelines.document import PipelineFileError
from tailrace.spark.pipelines.parse import load

TABLE = """\
name = "orders"
bootstrap = "127.0.0.1:9092"
checkpoint = "/data/checkpoint"
trigger = "10 seconds"

[kafka]
"security.protocol" = "SSL"
"fetch.max.bytes" = 1000
"check.crcs" = true

[sources.orders]
topic = "shop.orders"
format = "json"
schema = "id STRING"
dead_letters = "shop.dead"
watermark = "10 minutes"
deduplicate = ["value.id"]

[sink]
table = "/data/orders"
partition_by = "day(event_time)"
"""

TOPIC = """\
name: revenue
bootstrap: 127.0.0.1:9092
checkpoint: /data/checkpoint
sources:
  orders: {topic: orders, format: string, on_bad_record: null}
  payments: {topic: payments}
transform:
  sql: SELECT 1
sink:
  topic: revenue
  key: minute
"""


def write(tmp_path, text, name="p.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_table(tmp_path):
    assert load(write(tmp_path, TABLE)) == Pipeline(
        name="orders",
        bootstrap="127.0.0.1:9092",
        checkpoint="/data/checkpoint",
        trigger="10 seconds",
        kafka={"security.protocol": "SSL", "fetch.max.bytes": "1000", "check.crcs": "true"},
        sources={
            "orders": TopicSource(
                topic="shop.orders",
                format="json",
                schema="id STRING",
                dead_letters="shop.dead",
                watermark="10 minutes",
                deduplicate=("value.id",),
            )
        },
        sink=TableSink(table="/data/orders", partition_by=("day(event_time)",)),
        folder=str(tmp_path),
    )


def test_a_topic(tmp_path):
    pipeline = load(write(tmp_path, TOPIC, "p.yaml"))
    assert pipeline.sink == TopicSink("revenue", key="minute")
    assert list(pipeline.sources) == ["orders", "payments"]
    assert pipeline.sources["orders"].on_bad_record == "null"
    assert pipeline.transform == Transform(sql="SELECT 1")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'topic = "shop.orders"',
            'topik = "shop.orders"',
            ":12: sources.orders.topik: no such key: did you mean topic?",
        ),
        ("[sink]", "[sink]\nqwertyui = 1", ":20: sink.qwertyui: no such key: known are table, format"),
        ('topic = "shop.orders"\n', "", ":11: sources.orders: the key topic is missing"),
        ('topic = "shop.orders"', 'topic = "a b"', ":12: sources.orders.topic: 'a b' is no name of a topic"),
        (
            'format = "json"',
            'format = "jsonn"',
            ":13: sources.orders.format: 'jsonn' is none of json, avro, string; did",
        ),
        ('schema = "id STRING"\n', "", ":13: sources.orders.format: format json needs a schema"),
        ('"shop.dead"', '"shop.orders"', ":15: sources.orders.dead_letters: dead letters would be read again"),
        ('"10 minutes"', '"soon"', ":16: sources.orders.watermark: 'soon' is no duration"),
        ('watermark = "10 minutes"\n', "", ":16: sources.orders.deduplicate: without a watermark every key"),
        ('["value.id"]', "7", ":17: sources.orders.deduplicate.0: 7 where a text belongs"),
        (
            'watermark = "10 minutes"',
            'batch_records_max = "1"',
            ":16: sources.orders.batch_records_max: '1' where a whole",
        ),
        ('watermark = "10 minutes"', "batch_records_max = true", ":16: sources.orders.batch_records_max: true where"),
        ("[sources.orders]", "[sources.my-orders]", ":11: sources: the source 'my-orders' cannot be named so in SQL"),
        ('table = "/data/orders"', 'format = "delta"', ":19: sink: exactly one of the keys table, topic says what"),
        ('"day(event_time)"', '"week(event_time)"', ":21: sink.partition_by: 'week(event_time)' is no partitioning"),
        ("partition_by", 'catalog = {uri = "x"}\npartition_by', ":21: sink.catalog: a table of format parquet"),
        (
            "partition_by",
            'merge_on = "id"\npartition_by',
            ":21: sink.merge_on: rows of Parquet tables cannot be replaced",
        ),
        (
            "partition_by",
            "maintenance = {file_mb = 64}\npartition_by",
            ":21: sink.maintenance: files of a Parquet table stay as they are",
        ),
        (
            "partition_by",
            'maintenance = {keep_history = "1 day"}\npartition_by',
            ":21: sink.maintenance.keep_history: 1 day may be less than a batch takes",
        ),
        (
            "partition_by",
            'maintenance = {every = "often"}\npartition_by',
            ":21: sink.maintenance.every: 'often' is no duration",
        ),
        ('dead_letters = "shop.dead"', 'envelope = "x"', ":15: sources.orders.envelope: 'x' is none of debezium"),
        (
            'dead_letters = "shop.dead"',
            'envelope = "debezium"\non_bad_record = "null"',
            ":16: sources.orders.on_bad_record: a record that cannot be read would pass for a tombstone",
        ),
        ("partition_by", 'version = "v"\npartition_by', ":21: sink.version: only rows with a key replace others"),
        ('"10 seconds"', '"now"', ":4: trigger: 'now' is no duration: write available-now, or a number"),
        ('name = "orders"', 'name = "or/ders"', ":1: name: 'or/ders' is no name"),
        ('checkpoint = "/data/checkpoint"', 'checkpoint = ""', ":3: checkpoint: without a checkpoint"),
        ("[kafka]", "[transform]\n[kafka]", ":6: transform: a transform is either sql or python"),
        ("[kafka]", '[transform]\npython = "f"\n[kafka]', ":7: transform.python: 'f' is not module:function"),
        (
            "[kafka]",
            "[audit]\n[kafka]",
            ":1: a file declares one thing, by a section sink, audit or backfill; here is sink",
        ),
        (
            "[sink]",
            "[sinc]",
            ":1: a file declares one thing, by a section sink, audit or backfill; here is none of them",
        ),
        ("[kafka]", "kafka = 1\n[spark]", ":6: kafka: 1 where a table of keys and values belongs"),
        ("10 minutes", "10 fortnights", ":16: sources.orders.watermark: '10 fortnights' is no duration"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(tmp_path, old, new, message):
    assert old in TABLE
    with pytest.raises(PipelineFileError) as failure:
        load(write(tmp_path, TABLE.replace(old, new)))
    assert str(failure.value).removeprefix(str(tmp_path)).startswith("/p.toml" + message)


def test_several_sources_need_a_transform(tmp_path):
    with pytest.raises(PipelineFileError, match=r"p\.yaml:4: sources: several sources need a transform"):
        load(write(tmp_path, TOPIC.replace("transform:\n  sql: SELECT 1\n", ""), "p.yaml"))


def test_no_source_at_all(tmp_path):
    text = TOPIC.replace(
        "  orders: {topic: orders, format: string, on_bad_record: null}\n  payments: {topic: payments}\n", "  {}\n"
    )
    with pytest.raises(PipelineFileError, match=r"p\.yaml:4: sources: a pipeline needs a source"):
        load(write(tmp_path, text, "p.yaml"))


def test_the_last_of_a_key_by_the_offsets_of_several_topics(tmp_path):
    """A later offset of one topic says nothing of an earlier one of another."""
    sink = 'format = "delta"\npartition_by'
    text = TABLE.replace('"shop.orders"', '"shop.orders, shop.returns"').replace("partition_by", sink)
    for keys in ('merge_on = ["id", "topic"]', 'merge_on = "id"\nversion = "v"'):
        load(write(tmp_path, text.replace("partition_by", f"{keys}\npartition_by")))
    with pytest.raises(PipelineFileError, match=r"p\.toml:19: sink: the offsets of shop\.orders, shop\.returns do not"):
        load(write(tmp_path, text.replace("partition_by", 'merge_on = "id"\npartition_by')))

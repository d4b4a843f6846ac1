"""Values as JSON, Avro and strings, and the way of records that are none of these, over a real broker."""

import io
import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from fastavro import schemaless_writer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import from_json
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType
from pyspark.testing import assertDataFrameEqual

from tailrace.spark.values.json_values import JsonFormat
from tailrace.testing import Broker

DEADLINE_S = 30.0
ORDER_DDL = "id BIGINT NOT NULL, placed TIMESTAMP, tags ARRAY<STRING>"
ORDER_TYPE = StructType(
    [
        StructField("id", LongType()),
        StructField("placed", TimestampType()),
        StructField("tags", ArrayType(StringType())),
    ]
)
GOOD = b'{"id": 1, "placed": "2026-01-31T12:00:00Z", "tags": ["a", null], "extra": {}}'
NOT_JSON = b'{"id": 2'
WRONG_TYPE = b'{"id": "three"}'


@pytest.fixture
def read(spark: SparkSession, tailrace_broker: Broker):
    def read_topic(topic: str, **options: str) -> DataFrame:
        everything = {"kafka.bootstrap.servers": tailrace_broker.bootstrap, "subscribe": topic} | options
        return spark.read.format("tailrace").options(**everything).load()

    return read_topic


@pytest.fixture
def orders(create_topic, produce) -> str:
    """Offsets 0 to 4: good, not JSON, a tombstone, a wrong type, good."""
    topic = create_topic()
    produce(topic, [
        {"key": b"k0", "value": GOOD},
        {"key": b"k1", "value": NOT_JSON, "headers": [("trace", b"\x00\xff"), ("none", None)], "timestamp": 1234},
        {"key": b"k2", "value": None},
        {"key": None, "value": WRONG_TYPE},
        {"key": b"k4", "value": b'{"tags": []}'},
    ])  # fmt: skip
    return topic


def test_json_with_null_for_what_cannot_be_read(read, orders: str) -> None:
    frame = read(
        orders,
        **{"value.format": "json", "value.schema": ORDER_DDL, "onDecodeError": "null", "key.format": "string"},
    ).select("key", "value", "offset")
    assert frame.schema["value"].dataType == ORDER_TYPE
    first = Row(id=1, placed=datetime(2026, 1, 31, 12, tzinfo=UTC).astimezone().replace(tzinfo=None), tags=["a", None])
    assertDataFrameEqual(
        frame,
        [
            Row(key="k0", value=first, offset=0),
            Row(key="k1", value=None, offset=1),
            Row(key="k2", value=None, offset=2),
            Row(key=None, value=None, offset=3),
            Row(key="k4", value=Row(id=None, placed=None, tags=[]), offset=4),
        ],
        checkRowOrder=True,
    )


def test_json_that_fails_names_the_record(read, orders: str) -> None:
    options = {"value.format": "json", "value.schema": ORDER_TYPE.json(), "columns": "value"}
    with pytest.raises(PySparkException, match=f"the value of the record at offset 1 of {orders}-0.*not JSON"):
        read(orders, **options).collect()


REASON = (
    "CAST(try_element_at(filter(headers, h -> h.key = 'tailrace.deadletter.reason'), -1).value AS STRING) AS reason"
)


def test_dead_letters_of_a_stream(
    spark: SparkSession, tailrace_broker: Broker, *, read, create_topic, produce, orders: str, checkpoint: str
) -> None:
    dead, rotten = create_topic(), create_topic()
    produce(rotten, [{"value": b"nothing but this"}])
    frame = (
        spark.readStream.format("tailrace")
        .option("kafka.bootstrap.servers", tailrace_broker.bootstrap)
        .option("subscribe", f"{orders},{rotten}")
        .option("startingOffsets", "earliest")
        .option("value.format", "json")
        .option("value.schema", ORDER_DDL)
        .option("onDecodeError", "deadletter")
        .option("deadLetterTopic", dead)
        .option("columns", "value,offset")
        .load()
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("orders_read")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    found = spark.sql("SELECT offset, value.id, value IS NULL FROM orders_read ORDER BY offset").collect()
    assert [tuple(row) for row in found] == [(0, 1, False), (2, None, True), (4, None, False)]

    letters = _read_all(tailrace_broker, dead, 3)
    assert [letter.value() for letter in letters if _origin(letter) == rotten.encode()] == [b"nothing but this"]
    not_json, wrong_type = (letter for letter in letters if _origin(letter) == orders.encode())
    assert (not_json.key(), not_json.value()) == (b"k1", NOT_JSON)
    headers = not_json.headers()
    assert headers[:2] == [("trace", b"\x00\xff"), ("none", None)]
    added = dict(headers[2:])
    assert added.pop("tailrace.deadletter.reason").startswith(b"not JSON: ")
    assert added == {
        "tailrace.deadletter.column": b"value",
        "tailrace.deadletter.topic": orders.encode(),
        "tailrace.deadletter.partition": b"0",
        "tailrace.deadletter.offset": b"1",
        "tailrace.deadletter.timestamp": b"1234",
    }
    assert (wrong_type.key(), wrong_type.value()) == (None, WRONG_TYPE)
    reasons = read(dead, includeHeaders="true").where(f"value = X'{WRONG_TYPE.hex()}'").selectExpr(REASON)
    assert [row.reason for row in reasons.collect()] == ['field id: expected bigint, found "three"']


def _origin(letter: Message) -> bytes:
    return dict(letter.headers())["tailrace.deadletter.topic"]


def _read_all(broker: Broker, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return records


def test_avro_of_confluents_serializers(read, create_topic, produce) -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "placed", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "lines", "type": {"type": "map", "values": "int"}},
        ],
    }
    written = io.BytesIO()
    schemaless_writer(written, schema, {"id": 7, "placed": None, "lines": {"x": 2}})
    topic = create_topic()
    produce(topic, [{"value": b"\0\0\0\0\x05" + written.getvalue()}, {"value": written.getvalue()}])
    options = {"value.format": "avro", "value.schema": json.dumps(schema), "value.avro.prefix": "confluent"}
    frame = read(topic, **options, onDecodeError="null").select("value.*")
    assert frame.schema.simpleString() == "struct<id:bigint,placed:timestamp,lines:map<string,int>>"
    assertDataFrameEqual(
        frame, [Row(id=7, placed=None, lines={"x": 2}), Row(id=None, placed=None, lines=None)], checkRowOrder=True
    )


EVERY_TYPE = (
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, c DECIMAL(6,2), s STRING, x BINARY, day DATE, t TIMESTAMP, "
    "n TIMESTAMP_NTZ, a ARRAY<STRUCT<p: INT>>, m MAP<STRING, DOUBLE>, `odd``name` STRUCT<y: STRING> COMMENT 'it''s'"
)
DOCUMENTS = [
    '{"b": true, "i": -5, "l": 9223372036854775807, "f": 0.1, "d": 1e-3, "c": 1.005, "s": "\\u00e9", "x": "aGk="}',
    '{"c": "12.345", "d": 7, "s": {"a": [1, true, null]}, "day": "2026-01-31", "t": "2026-01-31T12:00:00Z"}',
    '{"t": "2026-01-31T12:00:00.123456+02:00", "n": "2026-01-31T12:00:00.5", "s": 12, "d": "Infinity"}',
    '{"t": "2026-01-31 12:00:00", "n": "2026-01-31 12:00:00", "s": true, "d": 1e400, "f": 3}',
    '{"t": 1769860800, "a": [{"p": 1}, null, {}, {"q": 2}], "m": {"u": 1, "v": null}, "odd`name": {"y": "z"}}',
    '{"a": [], "m": {}, "i": null, "unknown": [1, {"deep": true}], "i": 3}',
]


def test_schemas_and_values_are_read_as_spark_reads_them(spark: SparkSession) -> None:
    ours = JsonFormat.parse(EVERY_TYPE)
    frame = spark.createDataFrame([(text,) for text in DOCUMENTS], "text STRING")
    theirs = frame.select(from_json("text", EVERY_TYPE, {"mode": "FAILFAST"}).alias("value"))
    assert ours.spark_type.simpleString() == theirs.schema["value"].dataType.simpleString()
    column, bad = ours.decoder().decode(pa.array([text.encode() for text in DOCUMENTS]))
    assert not bad
    assert column.to_pylist() == theirs.toArrow().column("value").to_pylist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.schema": "id BIGNT"}, "did you mean BIGINT"),
        ({"onDecodeError": "deadletter", "deadLetterTopic": "nobody-made-it"}, "topic nobody-made-it does not exist"),
        ({"onDecodeError": "deadletter", "deadLetterTopic": "{topic}"}, "among the topics that are read"),
    ],
)
def test_wrong_options_are_explained_before_the_query_runs(read, create_topic, options, message: str) -> None:
    topic = create_topic()
    given = {name: text.format(topic=topic) for name, text in options.items()}
    with pytest.raises(PySparkException, match=message):
        read(topic, **{"value.format": "json", "value.schema": "id BIGINT"} | given).collect()

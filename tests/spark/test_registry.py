"""Values by a schema registry in Spark, against what confluent-kafka's own serializers write and read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import DataFrame, Row, SparkSession

from tailrace.schemas import parse
from tailrace.schemas.codecs import message_classes
from tailrace.spark.options.errors import OptionError
from tailrace.spark.values.parsing import parse_format
from tailrace.testing import Broker

V1 = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
V2 = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        ],
    }
)
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, uint32> counts = 4;
  google.protobuf.Timestamp at = 5;
  State state = 6;
  enum State { NEW = 0; SENT = 1; }
  message Line { string sku = 1; double price = 2; }
}
"""
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "title": "Order",
        "properties": {
            "id": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "who": {"$ref": "#/$defs/person"},
        },
        "$defs": {"person": {"type": "object", "properties": {"name": {"type": ["string", "null"]}}}},
    }
)
DEADLINE_S = 30.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(registry=True) as found:
        yield found


@pytest.fixture
def topic(broker: Broker) -> str:
    return new_topic(broker)


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.registry_url}) as found:
        yield found


def new_topic(broker: Broker) -> str:
    name = f"registry-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(DEADLINE_S)
    return name


def register(client: SchemaRegistryClient, subject: str, text: str, kind: str = "AVRO") -> int:
    return client.register_schema(subject, Schema(text, kind))


@pytest.fixture
def read(spark: SparkSession, broker: Broker):
    def read_topic(topic: str, kind: str, **options: str) -> DataFrame:
        everything = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "value.format": kind,
            "schemaRegistryUrl": broker.registry_url,
        }
        return spark.read.format("tailrace").options(**everything | options).load()

    return read_topic


@pytest.fixture
def write(spark: SparkSession, broker: Broker):
    def write_topic(frame: DataFrame, topic: str, kind: str, **options: str) -> None:
        everything = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": topic,
            "value.format": kind,
            "schemaRegistryUrl": broker.registry_url,
        }
        frame.write.format("tailrace").options(**everything | options).mode("append").save()

    return write_topic


def send(broker: Broker, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def values_of(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return [message.value() for message in found]


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_of_several_versions_is_read_as_the_latest(read, topic, client, broker):
    first, second = AvroSerializer(client, V1), AvroSerializer(client, V2)
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    send(
        broker,
        topic,
        first({"id": 1}, context(topic)),
        second({"id": 2, "note": "n", "at": at}, context(topic)),
        None,
        first({"id": 3}, context(topic)),
    )
    frame = read(topic, "avro").select("value.id", "value.note", "value.at", "offset").orderBy("offset")
    rows = frame.collect()
    assert [(row.id, row.note) for row in rows] == [(1, None), (2, "n"), (None, None), (3, None)]
    assert rows[1].at.astimezone(UTC) == at
    pinned = read(topic, "avro", **{"value.schema.version": "1"}).select("value.*").collect()
    assert [row.asDict() for row in pinned] == [{"id": 1}, {"id": 2}, {"id": None}, {"id": 3}]
    given = read(topic, "avro", **{"value.schema": V1.replace('"long"', '"double"')}).select("value.id")
    assert [row.id for row in given.collect()] == [1.0, 2.0, None, 3.0]


def test_what_cannot_be_read_goes_to_the_dead_letters(read, topic, client, broker):
    dead = new_topic(broker)
    good = AvroSerializer(client, V1)({"id": 1}, context(topic))
    other = register(client, "other", json.dumps({"type": "record", "name": "Other", "fields": []}))
    unread = [b"plain", b"\0\0\0\0\x63x", b"\0" + other.to_bytes(4), good + b"more", good[:5]]
    send(broker, topic, good, *unread)
    frame = read(topic, "avro", onDecodeError="deadletter", deadLetterTopic=dead)
    assert [row.value.id for row in frame.select("value").collect()] == [1]
    assert sorted(values_of(broker, dead, len(unread))) == sorted(unread)


@pytest.mark.long
def test_protobuf_is_read_by_the_numbers_of_its_fields(read, topic, client, broker):
    schema = parse("PROTOBUF", PROTO, {})
    order = message_classes(schema)["shop.Order"]
    serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    message = order(id=7, lines=[{"sku": "a", "price": 1.5}], counts={"x": 4_000_000_000}, state=1)
    message.at.FromDatetime(datetime(2026, 1, 31, 12, tzinfo=UTC))
    send(broker, topic, serialize(message, context(topic)))
    newer = PROTO.replace("optional string note = 2;", "optional string remark = 2; string extra = 9;")
    register(client, f"{topic}-value", newer, "PROTOBUF")
    row = read(topic, "protobuf").select("value.*").collect()[0]
    assert row.at.astimezone(UTC) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert row.asDict(recursive=True) | {"at": None} == {
        "id": 7,
        "remark": None,
        "extra": "",
        "lines": [{"sku": "a", "price": 1.5}],
        "counts": {"x": 4_000_000_000},
        "at": None,
        "state": "SENT",
    }


@pytest.mark.long
def test_json_schema_gives_the_columns(read, topic, client, broker):
    serialize = JSONSerializer(JSON_SCHEMA, client)
    send(broker, topic, serialize({"id": 1, "tags": ["a"], "who": {"name": "n"}}, context(topic)))
    rows = read(topic, "json").select("value").collect()
    assert rows == [Row(value=Row(id=1, tags=["a"], who=Row(name="n")))]


@pytest.mark.parametrize(
    "kind", ["avro", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("json", "protobuf"))]
)
def test_what_the_sink_writes_is_read_by_confluents_deserializers(write, read, topic, client, *, kind, broker, spark):
    frame = spark.sql(
        "SELECT struct(CAST(1 AS BIGINT) AS id, 'ü' AS name, array(1.5D) AS prices, map('a', true) AS flags) AS value"
    )
    write(frame, topic, kind)
    (value,) = values_of(broker, topic, 1)
    expected = {"id": 1, "name": "ü", "prices": [1.5], "flags": {"a": True}}
    latest = client.get_latest_version(f"{topic}-value").schema.schema_str
    if kind == "avro":
        assert AvroDeserializer(client)(value, context(topic)) == expected
    elif kind == "json":
        assert JSONDeserializer(latest)(value, context(topic)) == expected
    else:
        found = next(iter(message_classes(parse("PROTOBUF", latest, {})).values()))
        read_back = ProtobufDeserializer(found, {"use.deprecated.format": False})(value, context(topic))
        assert (read_back.id, read_back.name, list(read_back.prices), dict(read_back.flags)) == (
            1,
            "ü",
            [1.5],
            {"a": True},
        )
    assert read(topic, kind).select("value.*").collect()[0].asDict() == expected


@pytest.mark.long
def test_the_sink_writes_with_a_schema_that_is_given(spark, write, topic, client, broker):
    write(spark.sql("SELECT struct(5L AS id) AS value"), topic, "avro", **{"value.schema": V2})
    (value,) = values_of(broker, topic, 1)
    found = AvroDeserializer(client)(value, context(topic))
    assert (found["id"], found["note"]) == (5, None)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"schemaRegistryUrl": "registry"}, "not the address of a registry"),
        ({"value.schema.version": "0"}, "expected a number from 1"),
        ({"value.schema.subject": "nothing"}, "Subject 'nothing' not found"),
        ({"value.schema": "{}", "value.schema.version": "1"}, "exclude each other"),
        ({"value.schema": '{"type": "strin"}'}, "Undefined name"),
        ({"value.avro.prefix": "confluent"}, "says nothing beside"),
        ({"value.format": "protobuf", "value.schema.subject": "an-avro-subject"}, "has a schema of AVRO"),
    ],
)
def test_wrong_options_are_told_when_the_query_is_planned(broker, client, options, why):
    register(client, "an-avro-subject", V1)
    given = {"value.format": "avro", "schemaregistryurl": broker.registry_url, "subscribe": "t"}
    lower = {name.lower(): text for name, text in options.items()}
    with pytest.raises(OptionError, match=why):
        parse_format(given | lower, "value")

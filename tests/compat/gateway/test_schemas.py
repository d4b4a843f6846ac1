"""Records with a schema of a registry, written here and read by Confluent's own deserializers, and the other way."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tailrace.schemas import parse
from tailrace.schemas.codecs import message_classes
from tailrace.testing import Broker

from .conftest import Gateway, running_gateway
from .test_readers import events, opened

pytest.importorskip("fastavro")

SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]})


ORDER = {"n": 7}
CLIENTS: dict = {
    "AVRO": SCHEMA,
    "JSONSCHEMA": json.dumps({"title": "Order", "type": "object", "properties": {"n": {"type": "integer"}}}),
    "PROTOBUF": 'syntax = "proto3"; package shop; message Order { int32 n = 1; }',
}


@pytest.fixture(scope="module")
def registered() -> Iterator[Broker]:
    with Broker(registry=True, start_timeout_s=60) as broker:
        yield broker


@pytest.fixture(scope="module")
def gateway(registered: Broker) -> Iterator[Gateway]:
    with running_gateway(registered.bootstrap, "--schema-registry", registered.registry_url) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def client(registered: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registered.registry_url}) as client:
        yield client


def values_of(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = consumer.consume(count, 60)
    consumer.close()
    return [each.value() for each in found]


def test_records_with_a_schema(registered, gateway, client):
    topic = gateway.create("orders")
    by_text = {"value": {"type": "AVRO", "schema": SCHEMA, "data": {"n": 1}}}
    (first,) = gateway.receipts(topic, json.dumps(by_text))[1]
    assert first["error_code"] == 200, first
    schema_id = first["value"]["schema_id"]
    assert first["value"]["subject"] == "orders-value"
    bodies = [
        {"value": {"type": "AVRO", "data": {"n": 2}}},
        {"value": {"schema_id": schema_id, "data": {"n": 3}}},
        {"value": {"type": "AVRO", "schema_version": 1, "data": {"n": 4}}},
        {"value": {"type": "AVRO", "data": {"n": "no number"}}},
        {"value": {"type": "AVRO", "subject": "no-such-subject", "data": {"n": 5}}},
        {"value": {"type": "STRING", "data": "without"}},
    ]
    receipts = gateway.receipts(topic, "".join(map(json.dumps, bodies)))[1]
    assert [each["error_code"] for each in receipts] == [200, 200, 200, 42207, 42207, 200]
    assert [each["offset"] for each in receipts if each["error_code"] == 200] == [1, 2, 3, 4]
    context, deserialize = SerializationContext(topic, MessageField.VALUE), AvroDeserializer(client)
    assert [deserialize(each, context) for each in values_of(registered, topic, 5)[:4]] == [
        {"n": n} for n in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("kind", CLIENTS)
def test_each_kind_both_ways_and_in_the_form_of_v2(registered, gateway, client, kind):
    """Confluent's examples have v2's: a schema beside the records, or its id."""
    topic, text = gateway.create(f"orders-{kind.lower()}"), CLIENTS[kind]
    v2 = f"application/vnd.kafka.{kind.lower()}.v2+json"
    body = {"value_schema": text, "records": [{"value": ORDER}]}
    status, told = gateway.ask("POST", f"/topics/{topic}", body, content_type=v2)
    assert (status, told["offsets"][0]["offset"], told["key_schema_id"]) == (200, 0, None), told
    by_id = {"value_schema_id": told["value_schema_id"], "records": [{"value": ORDER}, {"value": None}]}
    assert gateway.ask("POST", f"/topics/{topic}/partitions/0", by_id, content_type=v2)[0] == 200
    assert gateway.ask("POST", f"/topics/{topic}?value.format=schema", [{"value": ORDER}])[0] == 200
    (receipt,) = gateway.receipts(topic, json.dumps({"value": {"type": kind, "data": ORDER}}))[1]
    assert receipt["value"]["type"] == kind
    written = values_of(registered, topic, 5)
    assert written[0] == written[1] == written[3] == written[4]
    context = SerializationContext(topic, MessageField.VALUE)
    if kind == "AVRO":
        assert AvroDeserializer(client)(written[0], context) == ORDER
        mine = AvroSerializer(client, SCHEMA)(ORDER, context)
    elif kind == "JSONSCHEMA":
        assert JSONDeserializer(text)(written[0], context) == ORDER
        mine = JSONSerializer(text, client)(ORDER, context)
    else:
        order = message_classes(parse("PROTOBUF", text, {}))["shop.Order"]
        assert ProtobufDeserializer(order, {"use.deprecated.format": False})(written[0], context).n == 7
        settings = {"use.deprecated.format": False, "auto.register.schemas": False, "use.latest.version": True}
        mine = ProtobufSerializer(order, client, settings)(order(n=7), context)
    assert mine[:5] == written[0][:5]  # It is the same schema to them.
    producer = Producer({"bootstrap.servers": registered.bootstrap})
    producer.produce(topic, mine, key=b"k")
    assert producer.flush(60) == 0
    with events(gateway, f"/topics/{topic}/events?from=earliest&value.format=schema") as reader:
        found = reader.read(6)
    assert [each["value"] for each in found] == [ORDER, ORDER, None, ORDER, ORDER, ORDER]
    assert {each.get("value_schema") for each in found} == {told["value_schema_id"], None}
    with opened(gateway, f"/topics/{topic}/socket?from=earliest&value.format=schema") as socket:
        assert json.loads(socket.recv(60))["value"] == ORDER


def test_what_is_refused(gateway):
    topic = gateway.create("refused")
    v2 = "application/vnd.kafka.avro.v2+json"
    for body, code in (
        ({"records": [{"value": {"n": 1}}]}, 42207),
        ({"value_schema": "{", "records": [{"value": {"n": 1}}]}, 42207),
        ({"value_schema": SCHEMA, "records": [{"value": {"n": 1}}, {"value": {"n": "x"}}]}, 42207),
        ({"value_schema": SCHEMA, "value_schema_id": 1, "records": [{"value": {"n": 1}}]}, 400),
    ):
        status, told = gateway.ask("POST", f"/topics/{topic}", body, content_type=v2)
        assert (status, told["error_code"]) == (code if code < 1000 else code // 100, code), told
    assert gateway.ask("GET", f"topics/{topic}/partitions/0/offset")[1]["latest_offset"] == 0

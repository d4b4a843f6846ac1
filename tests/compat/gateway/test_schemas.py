"""Records with a schema of a registry, read by Confluent's own deserializer."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Consumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tailrace.testing import Broker

from .conftest import running_gateway

SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]})


def test_records_with_a_schema():
    pytest.importorskip("fastavro")
    with (
        Broker(registry=True, start_timeout_s=60) as broker,
        running_gateway(broker.bootstrap, "--schema-registry", broker.registry_url) as gateway,
    ):
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
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "avro", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        found = consumer.consume(5, 60)
        consumer.close()
        context = SerializationContext(topic, MessageField.VALUE)
        with SchemaRegistryClient({"url": broker.registry_url}) as client:
            deserialize = AvroDeserializer(client)
            assert [deserialize(each.value(), context) for each in found[:4]] == [{"n": n} for n in (1, 2, 3, 4)]

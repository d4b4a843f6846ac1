"""Values with schemas of a registry, beside Confluent's own serializers."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tailrace.kit import Consumer, DeserializationError, Message, Producer, Serde, SerializationError, TopicPartition
from tailrace.kit.serdes.registry import Avro, JsonSchema, Protobuf
from tests.registry_stand_in import StandIn, stand_in

DEADLINE_S = 30.0
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "mill"}],
    }
)
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; string item = 2; }'


@dataclass
class Order:
    id: int
    item: str


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


async def write(bootstrap: str, topic: str, serde: Serde, *values: Any) -> None:
    async with Producer(bootstrap_servers=bootstrap, values=serde) as producer:
        await producer.produce_many(topic, values)


async def read(bootstrap: str, topic: str, serde: Serde, count: int) -> list[Message]:
    found: list[Message] = []
    async with asyncio.timeout(DEADLINE_S), Consumer(bootstrap_servers=bootstrap, values=serde) as consumer:
        await consumer.assign({TopicPartition(topic, 0): 0})
        while len(found) < count:
            found += await consumer.poll()
    return found


async def test_avro_as_confluents_serializers_have_it(bootstrap: str, topic: str, registry: StandIn) -> None:
    await write(bootstrap, topic, Avro(registry.url, ORDER), {"id": 1}, Order(2, "sluice"))
    field = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        theirs = AvroSerializer(client, ORDER)({"id": 3, "item": "wheel"}, field)
        await write(bootstrap, topic, Avro(registry.url), {"id": 4, "item": "latest"})
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.produce(topic, theirs)
        found = await read(bootstrap, topic, Avro(registry.url), 4)
        opened = AvroDeserializer(client)
        assert [opened(message.raw_value, field)["id"] for message in found] == [1, 2, 4, 3]
    expected = [(1, "mill"), (2, "sluice"), (4, "latest"), (3, "wheel")]
    assert [message.value for message in found] == [{"id": number, "item": item} for number, item in expected]


async def test_json_and_protobuf(bootstrap: str, topic: str, registry: StandIn) -> None:
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
    await write(bootstrap, topic, JsonSchema(registry.url, schema), {"id": 1})
    await write(bootstrap, topic, Protobuf(registry.url, PROTO, subject="orders"), {"id": 2, "item": "wheel"})
    text, message = await read(bootstrap, topic, Avro(registry.url), 2)
    assert text.value == {"id": 1}
    assert (message.value.DESCRIPTOR.full_name, message.value.id, message.value.item) == ("shop.Order", 2, "wheel")
    field = SerializationContext(topic, MessageField.VALUE)
    assert JSONDeserializer(schema)(text.raw_value, field) == {"id": 1}
    await write(bootstrap, topic, Protobuf(registry.url, PROTO, subject="orders"), {"id": 3})
    with pytest.raises(SerializationError, match="does not fit the schema of orders"):
        await write(bootstrap, topic, Protobuf(registry.url, PROTO, subject="orders"), {"price": 3})


async def test_bad_values_are_told_and_hold_nobody_up(bootstrap: str, topic: str, registry: StandIn) -> None:
    with pytest.raises(SerializationError, match=f"does not fit the schema of {topic}-value"):
        await write(bootstrap, topic, Avro(registry.url, ORDER), {"id": "one"})
    with pytest.raises(SerializationError, match="not found"):
        await write(bootstrap, topic, Avro(registry.url, subject="nobody"), {"id": 1})
    good = Avro(registry.url, ORDER)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.produce(topic, b"\0\0\0\0\x63abc")
        await producer.produce(topic, b"no schema")
        await producer.produce(topic, None)
    await write(bootstrap, topic, good, {"id": 7})
    unknown, bare, tombstone, last = await read(bootstrap, topic, Avro(registry.url), 4)
    with pytest.raises(DeserializationError, match="Schema 99 not found"):
        _ = unknown.value
    with pytest.raises(DeserializationError, match="not with 0x00 and the id of a schema"):
        _ = bare.value
    assert (unknown.raw_value, tombstone.value, last.value["id"]) == (b"\0\0\0\0\x63abc", None, 7)
    # Unknown ids are asked for once, not for each record.
    asked = registry.asked.count("GET /schemas/ids/99")
    with pytest.raises(DeserializationError):
        _ = unknown.value
    assert registry.asked.count("GET /schemas/ids/99") == asked


async def test_a_registry_that_is_away_is_told_in_time(bootstrap: str, topic: str, registry: StandIn) -> None:
    registry.failing = True
    with pytest.raises(SerializationError, match="answers 503"):
        await write(bootstrap, topic, Avro(registry.url, ORDER, patience_s=0.1), {"id": 1})
    registry.failing = False
    await write(bootstrap, topic, Avro(registry.url, ORDER), {"id": 1})
    registry.failing = True
    (found,) = await read(bootstrap, topic, Avro(registry.url, patience_s=0.1), 1)
    with pytest.raises(DeserializationError, match="answers 503"):
        _ = found.value

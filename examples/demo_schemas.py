"""The part of the demo that is about schemas: a producer with Avro, a consumer whose schema evolves, and a change that
the registry refuses with its reason."""

import json
from collections.abc import Callable

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tailrace.testing import Broker

TOPIC = "shipments"
WAIT_S = 30.0
VALUE = SerializationContext(TOPIC, MessageField.VALUE)


def evolve_schemas(broker: Broker, show: Callable[[str], None]) -> None:
    show(f"$ tailrace up --registry-port {broker.registry_url.rpartition(':')[2]}")
    with SchemaRegistryClient({"url": broker.registry_url}) as registry:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        first, second = _order(("id", "int")), _order(("id", "int"), ("carrier", "string", "unknown"))
        producer.produce(TOPIC, AvroSerializer(registry, first)({"id": 1}, VALUE))
        producer.produce(TOPIC, AvroSerializer(registry, second)({"id": 2, "carrier": "barge"}, VALUE))
        producer.flush()
        show(f"two versions of {TOPIC}-value: {registry.get_versions(f'{TOPIC}-value')}")
        read = AvroDeserializer(registry, second)
        for value in _read_two(broker):
            show(f"a reader of the second reads both: {read(value, VALUE)}")
        breaking = _order(("id", "int"), ("price", "double"))
        try:
            registry.register_schema(f"{TOPIC}-value", Schema(breaking, "AVRO"))
        except SchemaRegistryError as error:
            remedy = error.error_message.partition("remedy: '")[2].partition("'")[0]
            show(f"a field without a default is refused ({error.http_status_code}): {remedy}")
        else:
            raise SystemExit("demo: a change that breaks readers was taken")


def _order(*fields: tuple[str, ...]) -> str:
    named = [
        {"name": name, "type": kind, **({"default": default[0]} if default else {})} for name, kind, *default in fields
    ]
    return json.dumps({"type": "record", "name": "Shipment", "fields": named})


def _read_two(broker: Broker) -> list[bytes]:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "carriers",
        "auto.offset.reset": "earliest",
        "log_level": 2,
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    try:
        found = consumer.consume(2, WAIT_S)
        if len(found) != 2:
            raise SystemExit("demo: two shipments were written, and cannot be read")
        return [message.value() or b"" for message in found]
    finally:
        consumer.close()

"""confluent-kafka's own serializers and deserializers: Avro, JSON Schema and Protobuf, sync and async."""

import itertools
import json
from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry._async.avro import AsyncAvroDeserializer, AsyncAvroSerializer
from confluent_kafka.schema_registry._async.json_schema import AsyncJSONDeserializer, AsyncJSONSerializer
from confluent_kafka.schema_registry._async.protobuf import AsyncProtobufDeserializer, AsyncProtobufSerializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tailrace.testing import Broker

_serial = itertools.count()


@pytest.fixture
def client(registered_broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registered_broker.registry_url}) as found:
        yield found


@pytest.fixture
def value() -> SerializationContext:
    """The values of a topic of its own."""
    return SerializationContext(f"confluent-{next(_serial)}", MessageField.VALUE)


def subject_of(value: SerializationContext) -> str:
    return f"{value.topic}-value"


def avro(*names: str) -> str:
    fields = [{"name": name, "type": "string", "default": ""} for name in names]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


LATEST = {"auto.register.schemas": False, "use.latest.version": True}
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["id"],
    }
)


def protobuf_type(serial: int, *, imports: bool = False):
    """A message type as generated code has it."""
    file = descriptor_pb2.FileDescriptorProto(name=f"order{serial}.proto", package=f"shop{serial}", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="note", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    if imports:
        from google.protobuf import timestamp_pb2

        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(timestamp_pb2.DESCRIPTOR.serialized_pb))
        file.dependency.append("google/protobuf/timestamp.proto")
        message.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop{serial}.Order"))


# --- sync


def test_avro_evolves(registered_broker, client, value):
    written = [
        AvroSerializer(client, avro("id"))({"id": "1"}, value),
        AvroSerializer(client, avro("id", "note"))({"id": "2", "note": "x"}, value),
    ]
    read = AvroDeserializer(client, avro("id", "note"))
    assert [read(each, value) for each in written] == [{"id": "1", "note": ""}, {"id": "2", "note": "x"}]
    # A new client knows nothing, and asks for the writer's schema by its id.
    with SchemaRegistryClient({"url": registered_broker.registry_url}) as fresh:
        assert AvroDeserializer(fresh)(written[1], value) == {"id": "2", "note": "x"}
    assert client.get_versions(subject_of(value)) == [1, 2]


def test_avro_with_references(client, value):
    address = json.dumps({"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}]})
    client.register_schema(f"{value.topic}-address", Schema(address, "AVRO"))
    person = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]})
    reference = SchemaReference("Address", f"{value.topic}-address", 1)
    schema = Schema(person, "AVRO", [reference])
    data = AvroSerializer(client, schema)({"home": {"street": "Main"}}, value)
    assert AvroDeserializer(client)(data, value) == {"home": {"street": "Main"}}
    stored = client.get_latest_version(subject_of(value))
    assert [(each.name, each.version) for each in stored.schema.references] == [("Address", 1)]


def test_avro_by_the_latest_version(client, value):
    client.register_schema(subject_of(value), Schema(avro("id"), "AVRO"))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    data = AvroSerializer(client, avro("id"), conf=settings)({"id": "1"}, value)
    assert AvroDeserializer(client)(data, value) == {"id": "1"}


def test_avro_by_the_name_of_the_record(client, value):
    def by_record(context, record_name):
        del context
        return f"{value.topic}.{record_name}"

    AvroSerializer(client, avro("id"), conf={"subject.name.strategy": by_record})({"id": "1"}, value)
    assert f"{value.topic}.Order" in client.get_subjects()


def test_json_schema(client, value):
    data = JSONSerializer(JSON_SCHEMA, client)({"id": 1, "note": "x"}, value)
    assert JSONDeserializer(JSON_SCHEMA, schema_registry_client=client)(data, value) == {"id": 1, "note": "x"}
    assert client.get_latest_version(subject_of(value)).schema.schema_type == "JSON"


@pytest.mark.parametrize("imports", [False, True])
def test_protobuf(client, value, imports):
    order = protobuf_type(next(_serial), imports=imports)
    serialize = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    data = serialize(order(id=7, note="x"), value)
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)(data, value)
    assert (read.id, read.note) == (7, "x")
    stored = client.get_latest_version(subject_of(value)).schema
    assert stored.schema_type == "PROTOBUF"
    assert "message Order" in stored.schema_str  # Text, though a descriptor was sent.


def test_a_descriptor_and_its_text_are_one_schema(client, value):
    order = protobuf_type(next(_serial))
    ProtobufSerializer(order, client, {"use.deprecated.format": False})(order(id=1), value)
    stored = client.get_latest_version(subject_of(value))
    assert client.register_schema(subject_of(value), Schema(stored.schema.schema_str, "PROTOBUF")) == stored.schema_id
    assert client.get_versions(subject_of(value)) == [1]


def test_the_schemas_guid_leads_to_it(registered_broker, client, value):
    client.register_schema(subject_of(value), Schema(avro("id", value.topic.replace("-", "_")), "AVRO"))
    stored = client.get_latest_version(subject_of(value))
    assert stored.guid
    with SchemaRegistryClient({"url": registered_broker.registry_url}) as fresh:
        assert fresh.get_schema_by_guid(stored.guid).schema_str == stored.schema.schema_str


def test_settings_and_deletes(client, value):
    subject = subject_of(value)
    client.register_schema(subject, Schema(avro("id"), "AVRO"))
    client.set_compatibility(subject, "FULL")
    assert client.get_compatibility(subject) == "FULL"
    assert client.test_compatibility(subject, Schema(avro("id", "note"), "AVRO"))
    other = Schema('{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}', "AVRO")
    assert not client.test_compatibility(subject, other)
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema(subject, other)
    assert caught.value.http_status_code == 409
    assert client.delete_subject(subject) == [1]
    assert client.delete_subject(subject, permanent=True) == [1]
    with pytest.raises(SchemaRegistryError) as caught:
        client.get_versions(subject)
    assert caught.value.error_code == 40401


def test_json_schema_with_references_by_the_latest_version(registered_broker, client, value):
    street = {"$id": "street.json", "type": "string"}
    client.register_schema(f"{value.topic}-street", Schema(json.dumps(street), "JSON"))
    order = {"title": "Order", "type": "object", "properties": {"street": {"$ref": "street.json"}}}
    reference = SchemaReference("street.json", f"{value.topic}-street", 1)
    schema = Schema(json.dumps(order), "JSON", [reference])
    client.register_schema(subject_of(value), schema)
    data = JSONSerializer(schema, client, conf=LATEST)({"street": "Main"}, value)
    with SchemaRegistryClient({"url": registered_broker.registry_url}) as fresh:
        assert JSONDeserializer(None, schema_registry_client=fresh)(data, value) == {"street": "Main"}
    with pytest.raises(SerializationError):
        JSONSerializer(schema, client, conf=LATEST)({"street": 5}, value)


def test_protobuf_with_references(client, value):
    """The serializer registers the files that a file imports under subjects of their names, and refers to them."""
    serial = next(_serial)
    inner = descriptor_pb2.FileDescriptorProto(name=f"inner{serial}.proto", package=f"in{serial}", syntax="proto3")
    inner.message_type.add(name="Inner").field.add(name="id", number=1, type=3, label=1)
    outer = descriptor_pb2.FileDescriptorProto(name=f"outer{serial}.proto", package=f"out{serial}", syntax="proto3")
    outer.dependency.append(inner.name)
    message = outer.message_type.add(name="Outer")
    message.field.add(name="inner", number=1, type=11, label=1, type_name=f".in{serial}.Inner")
    pool = descriptor_pool.DescriptorPool()
    for file in (inner, outer):
        pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"out{serial}.Outer"))
    given = found()
    given.inner.id = 7
    data = ProtobufSerializer(found, client, {"use.deprecated.format": False})(given, value)
    assert ProtobufDeserializer(found, {"use.deprecated.format": False}, client)(data, value) == given
    references = client.get_latest_version(subject_of(value)).schema.references
    assert [(each.name, each.subject, each.version) for each in references] == [(inner.name, inner.name, 1)]


# --- async


async def test_async_clients_with_references_the_latest_version_and_another_name(registered_broker, value):
    address = json.dumps({"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}]})
    person = json.dumps({"type": "record", "name": "Person", "fields": [{"name": "home", "type": "Address"}]})
    subject = f"{value.topic}-by-name"
    async with AsyncSchemaRegistryClient({"url": registered_broker.registry_url}) as client:
        await client.register_schema(f"{value.topic}-address", Schema(address, "AVRO"))
        schema = Schema(person, "AVRO", [SchemaReference("Address", f"{value.topic}-address", 1)])
        await client.register_schema(subject, schema)
        settings = {**LATEST, "subject.name.strategy": lambda _context, _name: subject}
        serialize = await AsyncAvroSerializer(client, schema, conf=settings)
        data = await serialize({"home": {"street": "Main"}}, value)
    async with AsyncSchemaRegistryClient({"url": registered_broker.registry_url}) as fresh:
        read = await AsyncAvroDeserializer(fresh)
        assert await read(data, value) == {"home": {"street": "Main"}}
        assert subject_of(value) not in await fresh.get_subjects()


async def test_async_clients(registered_broker, value):
    async with AsyncSchemaRegistryClient({"url": registered_broker.registry_url}) as client:
        await _round_trips(client, value)


async def _round_trips(client, value):
    order = protobuf_type(next(_serial))
    pairs = [
        (
            await AsyncAvroSerializer(client, avro("id")),
            await AsyncAvroDeserializer(client),
            {"id": "1"},
        ),
        (
            await AsyncJSONSerializer(JSON_SCHEMA, client),
            await AsyncJSONDeserializer(JSON_SCHEMA, schema_registry_client=client),
            {"id": 1},
        ),
        (
            await AsyncProtobufSerializer(order, client, {"use.deprecated.format": False}),
            await AsyncProtobufDeserializer(order, {"use.deprecated.format": False}, client),
            order(id=7),
        ),
    ]
    for number, (serialize, deserialize, content) in enumerate(pairs):
        context = SerializationContext(f"{value.topic}-{number}", MessageField.VALUE)
        data = await serialize(content, context)
        assert await deserialize(data, context) == content

"""Brokers that check schema ids, told by confluent-kafka: its serializers pass, plain bytes and others do not."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tailrace.cli import main
from tailrace.testing import Broker

AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
DEADLINE_S = 30.0
TOPIC = "checked"


@pytest.fixture(scope="module")
def checking(registered_broker: Broker) -> Iterator[Broker]:
    """Another cluster, which asks the registry of the first."""
    with Broker({"confluent.schema.registry.url": registered_broker.registry_url}, start_timeout_s=60) as broker:
        topic = NewTopic(TOPIC, 1, 1, config={"confluent.value.schema.validation": "true"})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        yield broker


@pytest.fixture(scope="module")
def registry(registered_broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registered_broker.registry_url}) as client:
        yield client


def send(broker: Broker, value: bytes | None, headers: list | None = None) -> KafkaError | None:
    told = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    producer.produce(TOPIC, value, headers=headers, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(DEADLINE_S) == 0
    return told[0]


def test_what_a_serializer_writes_is_stored(checking, registry):
    value = AvroSerializer(registry, AVRO)({"id": 1}, SerializationContext(TOPIC, MessageField.VALUE))
    assert send(checking, value) is None
    assert send(checking, None) is None


def test_a_schema_named_in_a_header_by_its_guid_is_known(checking, registry):
    serialize = AvroSerializer(registry, AVRO, conf={"schema.id.serializer": header_schema_id_serializer})
    headers: list = []
    value = serialize({"id": 1}, SerializationContext(TOPIC, MessageField.VALUE, headers=headers))
    assert headers
    assert send(checking, value, headers) is None


def test_plain_bytes_unknown_ids_and_other_subjects_are_refused(checking, registry):
    elsewhere = registry.register_schema("elsewhere-value", Schema(AVRO.replace("Order", "Other"), "AVRO"))
    for value in (b"plain", b"\0\0\x0f\xff\xffx", b"\0" + elsewhere.to_bytes(4) + b"\2"):
        error = send(checking, value)
        assert error is not None
        assert error.code() == KafkaError.INVALID_RECORD


def test_the_strategy_is_one_of_three(checking):
    config = {"confluent.value.subject.name.strategy": "mine"}
    admin = AdminClient({"bootstrap.servers": checking.bootstrap})
    with pytest.raises(KafkaException, match="TopicNameStrategy"):
        admin.create_topics([NewTopic("no", 1, 1, config=config)])["no"].result(DEADLINE_S)


def test_the_commands_write_and_show_what_is_checked(checking, registered_broker, tmp_path, capsys):
    lines, schema = tmp_path / "lines", tmp_path / "order.avsc"
    lines.write_text('{"id": 42}\n')
    schema.write_text(AVRO)
    where = ["--bootstrap", checking.bootstrap, "--schema-registry", registered_broker.registry_url]
    assert main(["produce", TOPIC, *where, "--file", str(lines), "--value-schema", str(schema)]) == 0
    assert main(["consume", TOPIC, *where, "--from", "-1", "--until-end"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == '{"id": 42}'

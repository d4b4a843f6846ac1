"""Records by the schemas of a registry, both ways; and a registry that is away."""

import json

import pytest

from tailrace.apps.gateway.consume.shown import Shown, show
from tailrace.apps.gateway.errors import GatewayError
from tailrace.apps.gateway.produce import schemas as produce_schemas
from tailrace.apps.gateway.produce.records import SCHEMA, NewRecord, PlainFormat, read_plain, read_v3
from tailrace.apps.gateway.produce.schemas import Schemas
from tailrace.model.ids import PartitionIndex, TopicPartition
from tailrace.wire.payload import Record
from tests.registry_stand_in import stand_in

WHERE = TopicPartition("orders", PartitionIndex(0))
TEXTS = {
    "AVRO": '{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "long"}]}',
    "JSONSCHEMA": '{"type": "object", "properties": {"n": {"type": "integer"}}}',
    "PROTOBUF": 'syntax = "proto3"; message Order { int32 n = 1; }',
}


@pytest.fixture
def registry():
    with stand_in() as found:
        yield found


@pytest.fixture
def schemas(registry) -> Schemas:
    return Schemas(registry.url, None, None)


def write(schemas: Schemas, **value) -> NewRecord:
    return read_v3({"value": value}, 0, schemas.of_topic("orders"))


async def shown(schemas: Schemas, value: bytes | None, key: bytes | None = None) -> dict:
    how = Shown("schema" if key else "string", "schema", schemas.opener)
    record = Record(0, 0, key, value)
    await how.prepare({WHERE: [record]})
    return json.loads(show(WHERE, record, how))


@pytest.mark.parametrize("kind", TEXTS)
async def test_what_is_written_with_a_schema_is_shown_by_it(schemas, kind):
    new = write(schemas, type=kind, schema=TEXTS[kind], data={"n": 7})
    assert new.value_part is not None
    assert (new.value_part.type, new.value_part.subject, new.value_part.schema_id) == (kind, "orders-value", 1)
    told = await shown(schemas, new.value)
    assert (told["value"], told["value_schema"]) == ({"n": 7}, 1)
    # By its id, by its version, and by the latest, of which the type is known.
    for named in ({"schema_id": 1}, {"schema_version": 1, "type": kind}, {"subject": "orders-value"}):
        again = write(schemas, data={"n": 7}, **named)
        assert (again.value, again.value_part.type) == (new.value, kind)
    plain = read_plain({"value": {"n": 7}}, PlainFormat("STRING", SCHEMA, schemas.of_topic("orders")), 0)
    assert plain.value == new.value


async def test_what_cannot_be_opened_is_told_and_can_be_written_again(schemas):
    for value, problem in ((b"plain", "names no schema"), (b"\0\0\0\0\x63x", "answers 404"), (b"", "names no schema")):
        told = await shown(schemas, value)
        assert problem in told["value_problem"]
        assert read_plain({"value_base64": told["value_base64"]}, PlainFormat(), 0).value == value
    assert (await shown(schemas, None))["value"] is None
    keyed = await shown(schemas, None, write(schemas, type="AVRO", schema=TEXTS["AVRO"], data={"n": 1}).value)
    assert (keyed["key"], keyed["key_schema"]) == ({"n": 1}, 1)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"type": "PROTOBUF", "schema_id": 1, "data": {"n": 1}}, 42207),
        ({"type": "AVRO", "schema_id": 1, "data": {"n": "x"}}, 42207),
        ({"type": "AVRO", "subject": "nothing", "data": {"n": 1}}, 42207),
        ({"schema": TEXTS["AVRO"], "data": {"n": 1}}, 400),
        ({"type": "AVRO", "schema_id": "1", "data": {"n": 1}}, 400),
        ({"type": "AVRO", "schema_id": 1, "schema_version": 1, "data": {"n": 1}}, 400),
        ({"type": "AVRO", "schema_id": 1, "subject_name_strategy": "RECORD_NAME", "data": {"n": 1}}, 400),
    ],
)
def test_what_cannot_be_written(schemas, registry, value, code):
    registry.register("orders-value", TEXTS["AVRO"])
    with pytest.raises(GatewayError) as failure:
        write(schemas, **value)
    assert failure.value.code == code


async def test_a_registry_that_is_away_is_no_fault_of_the_records(schemas, registry, monkeypatch):
    latest = {"type": "AVRO", "data": {"n": 1}}
    registry.register("orders-value", TEXTS["AVRO"])
    known = write(schemas, **latest).value
    registry.failing = True
    monkeypatch.setattr(produce_schemas, "_LATEST_S", -1.0)
    before = len(registry.asked)
    for _ in range(3):
        with pytest.raises(GatewayError) as failure:
            write(schemas, type="AVRO", schema_id=9, data={"n": 1})
        assert failure.value.status == 503
    assert len(registry.asked) == before + 1
    assert write(schemas, **latest).value == known
    with pytest.raises(GatewayError) as failure:
        await shown(schemas, b"\0\0\0\0\x09x")
    assert failure.value.status == 503

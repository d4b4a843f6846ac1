"""Records are opened by the schemas that they name; what cannot be opened stays as it is, and says why."""

from __future__ import annotations

import pytest

from tailrace.apps.console.reading.views import NO_NOTES, View
from tailrace.apps.opening import RecordOpener
from tailrace.real.registry.client import RegistryAddress, RegistryClient
from tailrace.schemas.codecs import encoder
from tailrace.schemas.framing import write_prefix
from tailrace.wire.payload import Record
from tests.registry_stand_in import stand_in

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


@pytest.fixture
def registry():
    with stand_in() as found:
        yield found


def written(client: RegistryClient, schema_id: int, text: str) -> bytes:
    return write_prefix(schema_id) + encoder(client.schema(schema_id))(text)


async def test_a_record_is_opened_and_each_schema_asked_for_once(registry):
    schema_id = registry.register("orders-value", ORDER)
    client = RegistryClient(RegistryAddress(registry.url))
    schemas = RecordOpener(RegistryClient(RegistryAddress(registry.url)))
    records = [Record(each, 0, b"k", written(client, schema_id, f'{{"id": {each}}}')) for each in range(3)]
    view = View(schemas=schemas)
    before = len(registry.asked)
    for _ in range(2):
        await view.prepare(records)
    assert len(registry.asked) == before + 1
    seen, notes = view.see(records[2])
    assert (seen.value, seen.key) == (b'{"id": 2}', b"k")
    assert (notes.value_schema, notes.key_schema, notes.problems) == (schema_id, None, ())


async def test_what_cannot_be_opened_stays_and_says_why(registry):
    schema_id = registry.register("orders-value", ORDER)
    schemas = RecordOpener(RegistryClient(RegistryAddress(registry.url)), 256 * 1024)
    view = View(schemas=schemas)
    for value, reason in (
        (write_prefix(schema_id) + b"\x80", "is not of its Avro schema"),
        (write_prefix(77), "answers 404"),
        (write_prefix(schema_id) + bytes(300_000), "more than"),
    ):
        record = Record(0, 0, None, value)
        await view.prepare([record])
        seen, notes = view.see(record)
        assert seen == record
        assert reason in notes.problems[0]
    plain = Record(0, 0, b"", b"\x01 no schema")
    await view.prepare([plain])
    assert view.see(plain) == (plain, NO_NOTES)


async def test_a_registry_that_is_away_is_asked_once_for_a_while():
    with stand_in() as found:
        url = found.url
    schemas = RecordOpener(RegistryClient(RegistryAddress(url, timeout_s=1.0)))
    asked = []
    learn = schemas._learn
    schemas._learn = lambda name: (asked.append(name), learn(name))[1]
    records = [Record(0, 0, None, write_prefix(each)) for each in range(1, 9)]
    for _ in range(2):
        assert "does not answer" in await schemas.prepare(records)
    assert asked == [1]
    assert "does not answer" in schemas.open("value", records[5]).problem


async def test_ids_at_random_are_no_flood_of_questions(registry):
    schemas = RecordOpener(RegistryClient(RegistryAddress(registry.url)))
    records = [Record(0, 0, None, write_prefix(1000 + each)) for each in range(200)]
    for _ in range(2):
        assert await schemas.prepare(records) == ""
    assert len(registry.asked) == 100


async def test_a_registry_that_cannot_answer_now_is_away(registry):
    registry.failing = True
    schemas = RecordOpener(RegistryClient(RegistryAddress(registry.url)))
    assert "answers 503" in await schemas.prepare([Record(0, 0, None, write_prefix(1))])

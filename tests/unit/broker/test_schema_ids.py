"""Topics that check the schema ids of their records: what is refused, what is asked of the registry, and how often."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tailrace.broker.schema_ids.registry import names_of
from tailrace.model.errors import ErrorCode
from tailrace.sim.web import SimWeb
from tailrace.wire.records import Compression, build_batch
from tests.unit.broker.world import Peer, World, create_topic, produce, produced

TIMESTAMP_MS = 1_767_225_600_000
GUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[]}'
STRATEGY = "io.confluent.kafka.serializers.subject."


def framed(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + b"data"


def pages(**subjects: int) -> dict[str, bytes]:
    """What a registry answers, in which each subject has one schema of this id."""
    found = {}
    for schema_id in subjects.values():
        under = [
            {"subject": name.replace("_", "-"), "version": 1} for name, each in subjects.items() if each == schema_id
        ]
        found[f"/schemas/ids/{schema_id}/versions"] = json.dumps(under).encode()
        found[f"/schemas/ids/{schema_id}"] = json.dumps({"schema": AVRO}).encode()
        found[f"/schemas/guids/{GUID}/ids"] = json.dumps([{"context": ".", "id": schema_id}]).encode()
    return found


def batch_of(*values: bytes | None, key: bytes | None = None, headers=(), **options) -> bytes:
    return build_batch([(index, TIMESTAMP_MS, key, value, headers) for index, value in enumerate(values)], **options)


@asynccontextmanager
async def checking(
    web: SimWeb | None, settings: dict[str, str] | None = None, **topic: str
) -> AsyncIterator[tuple[World, Peer]]:
    world = World()
    world.ports = replace(world.ports, web=web)
    where = {"confluent.schema.registry.url": "http://registry:8081/"} if web is not None else {}
    await world.start(where | (settings or {}))
    try:
        peer = await world.connect()
        await create_topic(peer, "t", **({"confluent_value_schema_validation": "true"} | topic))
        yield world, peer
    finally:
        for each in world.peers:
            await each.close()
        await world.broker.stop()


async def send(peer: Peer, batch: bytes):
    return produced(await peer.request(produce("t", batch), 9))


async def test_known_ids_are_stored_and_asked_for_once():
    async with checking(SimWeb(pages(t_value=7))) as (world, peer):
        for offset in range(3):
            assert (await send(peer, batch_of(framed(7), None))).base_offset == 2 * offset
        assert world.ports.web.asked == ["/schemas/ids/7/versions", "/schemas/ids/7"]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
async def test_the_index_of_each_refused_record_is_told(compression):
    async with checking(SimWeb(pages(t_value=7, other_value=8))) as (_, peer):
        values = (framed(7), b"plain text", framed(9), framed(8), b"\0\0", None)
        answer = await send(peer, batch_of(*values, compression=compression))
        assert answer.error_code == ErrorCode.INVALID_RECORD
        told = {each.batch_index: each.batch_index_error_message for each in answer.record_errors}
        assert told.keys() == {1, 2, 3, 4}
        assert "names no schema: it begins with the byte 0x70" in told[1]
        assert "which the schema registry does not know" in told[2]
        assert "registered under other-value, and not under t-value" in told[3]
        assert "it has 2 bytes" in told[4]
        assert (await send(peer, batch_of(framed(7)))).base_offset == 0


async def test_a_schema_named_in_a_header_by_its_guid():
    header = (("__value_schema_id", b"\1" + bytes(range(16))),)
    async with checking(SimWeb(pages(t_value=7))) as (_, peer):
        assert (await send(peer, batch_of(b"data", headers=header))).error_code == 0
        wrong = (("__value_schema_id", b"\1" + bytes(16)),)
        assert (await send(peer, batch_of(b"data", headers=wrong))).error_code == ErrorCode.INVALID_RECORD


async def test_keys_are_checked_on_their_own():
    topic = {"confluent_key_schema_validation": "true", "confluent_value_schema_validation": "false"}
    async with checking(SimWeb(pages(t_key=3)), **topic) as (_, peer):
        assert (await send(peer, batch_of(b"anything", key=framed(3)))).error_code == 0
        assert (await send(peer, batch_of(b"anything", key=b"plain"))).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("strategy", "subject", "code"),
    [
        ("RecordName", "shop.Order", ErrorCode.NONE),
        ("TopicRecordName", "t-shop.Order", ErrorCode.NONE),
        ("RecordName", "t-value", ErrorCode.INVALID_RECORD),
        ("TopicName", "shop.Order", ErrorCode.INVALID_RECORD),
    ],
)
async def test_strategies_of_naming(strategy, subject, code):
    topic = {"confluent_value_subject_name_strategy": f"{STRATEGY}{strategy}Strategy"}
    async with checking(SimWeb(pages(**{subject: 7})), **topic) as (_, peer):
        assert (await send(peer, batch_of(framed(7)))).error_code == code


async def test_while_the_registry_is_away_known_ids_go_on_and_others_are_to_be_tried_again():
    web = SimWeb(pages(t_value=7))
    async with checking(web) as (_, peer):
        assert (await send(peer, batch_of(framed(7)))).error_code == 0
        web.is_away = True
        assert (await send(peer, batch_of(framed(7)))).error_code == 0
        answer = await send(peer, batch_of(framed(8)))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "nobody listens there" in answer.error_message
        web.is_away = False
        assert (await send(peer, batch_of(framed(8)))).error_code == ErrorCode.INVALID_RECORD


async def test_while_the_registry_is_away_records_may_be_taken_unchecked_if_so_set():
    web = SimWeb()
    web.is_away = True
    async with checking(web, {"schema.validation.without.registry": "accept"}) as (_, peer):
        assert (await send(peer, batch_of(framed(8)))).error_code == 0
        assert (await send(peer, batch_of(b"plain"))).error_code == ErrorCode.INVALID_RECORD


async def test_unknown_ids_are_remembered_and_asked_again_later():
    web = SimWeb(pages(t_value=7))
    async with checking(web, {"schema.validation.unknown.ms": "300"}) as (_, peer):
        for _ in range(5):
            assert (await send(peer, batch_of(framed(9)))).error_code == ErrorCode.INVALID_RECORD
        assert web.asked == ["/schemas/ids/9/versions"]
        web.pages |= pages(t_value=9)
        async with asyncio.timeout(60):
            while (await send(peer, batch_of(framed(9)))).error_code != 0:
                await asyncio.sleep(0.05)


async def test_random_ids_do_not_become_a_flood():
    web = SimWeb()
    settings = {"schema.validation.lookups.per.second": "5", "schema.validation.timeout.ms": "300"}
    async with checking(web, settings) as (world, peer):
        began_ms = world.clock.monotonic_ms()
        codes = {(await send(peer, batch_of(*map(framed, range(n, n + 10))))).error_code for n in range(100, 140, 10)}
        seconds = (world.clock.monotonic_ms() - began_ms) / 1000
        assert codes == {ErrorCode.NOT_ENOUGH_REPLICAS}
        assert len(web.asked) <= 5 * (seconds + 2)


async def test_a_produce_of_many_ids_waits_no_longer_than_one_of_few():
    web = SimWeb()
    web.on_question = lambda _path: time.sleep(0.05)
    async with checking(web, {"schema.validation.timeout.ms": "300", "schema.validation.unknown.ms": "60000"}) as (
        _,
        peer,
    ):
        many = batch_of(*map(framed, range(100, 120)))
        answer = await send(peer, many)
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "within 300 ms" in answer.error_message
        # What was learned meanwhile is known when it is sent again.
        async with asyncio.timeout(60):
            while (await send(peer, many)).error_code != ErrorCode.INVALID_RECORD:
                pass
        assert len(web.asked) == 20


async def test_of_several_registries_the_next_is_asked_while_one_is_away():
    web = SimWeb(pages(t_value=7))
    web.away_hosts = {"one"}
    several = {"confluent.schema.registry.url": "http://one:8081, http://two:8081/base/"}
    web.pages |= {f"/base{path}": page for path, page in web.pages.items()}
    async with checking(web, several) as (_, peer):
        assert (await send(peer, batch_of(framed(7)))).error_code == 0
        # Whoever has answered is asked first from then on.
        web.asked.clear()
        assert (await send(peer, batch_of(framed(8)))).error_code == ErrorCode.INVALID_RECORD
        assert web.asked == ["/base/schemas/ids/8/versions"]
        web.away_hosts = {"two"}
        assert (await send(peer, batch_of(framed(9)))).error_code == ErrorCode.INVALID_RECORD
        web.away_hosts = {"one", "two"}
        assert (await send(peer, batch_of(framed(10)))).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_without_an_address_it_is_told_which_setting_is_missing():
    async with checking(None) as (_, peer):
        answer = await send(peer, batch_of(framed(7)))
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert "confluent.schema.registry.url" in answer.error_message


def test_names_of_schemas():
    assert names_of("AVRO", AVRO) == {"shop.Order"}
    assert names_of("AVRO", '"string"') == frozenset()
    assert names_of("JSON", '{"title":"Order"}') == {"Order"}
    proto = 'syntax = "proto3"; package shop; message Order { message Line { } }'
    assert names_of("PROTOBUF", proto) == {"shop.Order", "shop.Order.Line"}

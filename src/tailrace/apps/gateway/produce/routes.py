"""The ways in for records: Confluent's streams and batches of v3, its v2 form, and a plain list."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.responses import Response

from tailrace.apps.gateway.errors import GatewayError, bad_field, too_large
from tailrace.apps.gateway.produce.receipts import ReceiptStream, ReceiptWriter
from tailrace.apps.gateway.produce.records import SCHEMA, NewRecord, PlainFormat, read_plain
from tailrace.apps.gateway.produce.sending import Sending, Sent, outcome_of
from tailrace.apps.gateway.rest.topics import TOPIC
from tailrace.apps.gateway.web import JSON, Call, Operation, answer, check_content_type
from tailrace.client.producer import Delivered

_BATCH_ID_MAX = 80
_V2_KINDS = {
    f"application/vnd.kafka.{kind.lower()}.v2+json": kind
    for kind in ("JSON", "BINARY", "AVRO", "JSONSCHEMA", "PROTOBUF")
}
_V2_FIELDS = frozenset({"key", "value", "partition", "timestamp"})
_V2_SCHEMA = ("schema", "schema_id")
_FORMATS = ("json", "string", "binary", "schema")


def _sending(call: Call, topic: str) -> Sending:
    settings = call.settings
    return Sending(call.caller, topic, timeout_ms=settings.delivery_timeout_ms, creates_topics=settings.creates_topics)


# --- v3


async def _stream(call: Call) -> Response:
    cluster_id, topic = await call.cluster_id(), call.text("topic_name")
    sending = _sending(call, topic)
    await sending.begin()
    read = call.gateway.reader_of_records(call.caller, topic)
    return ReceiptStream(sending, read, cluster_id, call.settings.record_max_bytes)


async def _batch(call: Call) -> Response:
    cluster_id, topic = await call.cluster_id(), call.text("topic_name")
    entries = (await call.fields(("entries",)))["entries"]
    ids = _batch_ids(entries, call.settings.records_max)
    sending = _sending(call, topic)
    await sending.begin()
    read = call.gateway.reader_of_records(call.caller, topic)
    sent: list[tuple[Sent, NewRecord | None]] = []
    for entry in entries:
        fields = {name: value for name, value in entry.items() if name != "id"}
        try:
            new = await read(fields)
        except GatewayError as error:
            sent.append((error, None))
        else:
            sent.append((await sending.send(new), new))
    writer = ReceiptWriter(cluster_id, topic)
    successes, failures = [], []
    for entry_id, (each, record) in zip(ids, sent, strict=True):
        outcome = await outcome_of(each)
        if isinstance(outcome, Delivered):
            assert record is not None, "it was sent"
            successes.append({"id": entry_id, **json.loads(f"{{{writer.fields(outcome, record)}}}")})
        else:
            failures.append({"id": entry_id, **outcome})
    return answer({"successes": successes, "failures": failures}, 207)


def _batch_ids(entries: Any, most: int) -> list[str]:
    def refuse(reason: str) -> GatewayError:
        return GatewayError(422, 42208, reason)

    if not isinstance(entries, list) or not entries:
        raise refuse("Empty batch.")
    if len(entries) > most:
        raise refuse(f"Too many entries in batch: at most {most}, see request.max.records.")
    ids = []
    for entry in entries:
        found = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(found, str) or not 0 < len(found) <= _BATCH_ID_MAX:
            raise refuse(f"Batch entry identifier is not a valid string of 1 to {_BATCH_ID_MAX} characters.")
        ids.append(found)
    if len(set(ids)) < len(ids):
        raise refuse("Batch entry IDs are not distinct.")
    return ids


# --- plain, and v2 on the same path


async def _plain(call: Call) -> Response:
    kind = check_content_type(call.request, call.operation.takes)
    return await (_v2(call, _V2_KINDS[kind]) if kind in _V2_KINDS else _plain_list(call))


async def _plain_list(call: Call) -> Response:
    form = PlainFormat(
        call.choice("key.format", _FORMATS, "string").upper(), call.choice("value.format", _FORMATS, "json").upper()
    )
    document = await call.json()
    listed = _listed(call, [document] if isinstance(document, dict) else document)
    if SCHEMA in form:
        form = form._replace(with_schema=call.gateway.schemas(call.caller).of_topic(call.text("topic_name")))
        records = await asyncio.to_thread(_read_plain, call, listed, form)  # It may ask the registry.
    else:
        records = _read_plain(call, listed, form)
    outcomes = await _send_all(call, records)
    results = [
        {"partition": each.partition.partition, "offset": each.offset, "timestamp": each.timestamp}
        if isinstance(each, Delivered)
        else each
        for each in outcomes
    ]
    is_whole = all(isinstance(each, Delivered) for each in outcomes)
    return answer({"topic": call.text("topic_name"), "results": results}, 200 if is_whole else 207)


def _read_plain(call: Call, listed: list[Any], form: PlainFormat) -> list[NewRecord]:
    return [read_plain(each, form, call.settings.headers_max) for each in listed]


async def _v2_partition(call: Call) -> Response:
    return await _v2(call, _V2_KINDS.get(check_content_type(call.request, call.operation.takes), "JSON"))


async def _v2(call: Call, kind: str) -> Response:
    document = await call.fields(("records",), ("key_schema", "key_schema_id", "value_schema", "value_schema_id"))
    of_path = call.number("partition_id") if "partition_id" in call.request.path_params else None
    read = call.gateway.reader_of_records(call.caller, call.text("topic_name"))
    # As v3 says it: each record names its schema.
    schemas = {
        part: {"type": kind} | {name: found for name in _V2_SCHEMA if (found := document.get(f"{part}_{name}"))}
        for part in ("key", "value")
    }
    records = []
    for each in _listed(call, document["records"]):
        if not isinstance(each, dict) or not each.keys() <= _V2_FIELDS:
            raise bad_field(f"A record is an object of {', '.join(sorted(_V2_FIELDS))}.")
        partition = each.get("partition") if of_path is None else of_path
        parts = {part: {**schema, "data": each.get(part)} for part, schema in schemas.items()}
        records.append(await read({**parts, "partition_id": partition, "timestamp": each.get("timestamp")}))
    offsets = [
        {"partition": each.partition.partition, "offset": each.offset, "error_code": None, "error": None}
        if isinstance(each, Delivered)
        else {
            "partition": None,
            "offset": None,
            # 1: it will not pass by itself; 2: it may.
            "error_code": 2 if each["error_code"] in (50003, 50302, 42901) else 1,
            "error": each["message"],
            "outcome": each["outcome"],
        }
        for each in await _send_all(call, records)
    ]
    ids = {
        "key_schema_id": next((each.key_part.schema_id for each in records if each.key_part), None),
        "value_schema_id": next((each.value_part.schema_id for each in records if each.value_part), None),
    }
    return answer({"offsets": offsets, **ids})


def _listed(call: Call, raw: Any) -> list[Any]:
    if not isinstance(raw, list) or not raw:
        raise bad_field("The records are a list, which is not empty.")
    if len(raw) > call.settings.records_max:
        raise too_large(f"more than {call.settings.records_max} records: see request.max.records")
    return raw


async def _send_all(call: Call, records: list[NewRecord]) -> list[Delivered | dict[str, Any]]:
    """All are read before the first is sent: a list that is no list of records writes nothing."""
    sending = _sending(call, call.text("topic_name"))
    await sending.begin()
    sent = [await sending.send(record) for record in records]
    return [await outcome_of(each) for each in sent]


_FORMAT_QUERY = {
    "key.format": "string (the default), json, binary (base64) or schema (the latest of TOPIC-key)",
    "value.format": "json (the default), string, binary (base64) or schema (the latest of TOPIC-value)",
}
OPERATIONS = (
    Operation(
        "POST",
        f"{TOPIC}/records",
        _stream,
        "Write records, one JSON object after the other; receipts come in the same order while the request is open",
        body="ProduceRequest",
        answer="ProduceResponse",
    ),
    Operation(
        "POST",
        f"{TOPIC}/records:batch",
        _batch,
        "Write records, and be answered once",
        body="ProduceBatchRequest",
        answer="ProduceBatchResponse",
        status=207,
    ),
    Operation(
        "POST",
        "/topics/{topic_name}",
        _plain,
        "Write a list of records; 207 if one of them was not written",
        body="PlainRecords",
        answer="PlainResults",
        query=_FORMAT_QUERY,
        takes=(JSON, *_V2_KINDS),
    ),
    Operation(
        "POST",
        "/topics/{topic_name}/partitions/{partition_id}",
        _v2_partition,
        "Write records to a partition, in the form of v2",
        body="V2Records",
        answer="V2Offsets",
        takes=(JSON, *_V2_KINDS),
    ),
)

"""How the data of one schema are read by another: a program for many rows together, and what fastavro needs for one."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tailrace.schemas.avro.schema import AvroSchema
from tailrace.schemas.avro.text import canonical
from tailrace.spark.values.avro.fastavro_schemas import parsed, read_schema, readable
from tailrace.spark.values.avro.leaves import Step
from tailrace.spark.values.avro.plan import NoProgramError, aligned, program

if TYPE_CHECKING:
    from tailrace.schemas import ParsedSchema


class Reading(NamedTuple):
    written_by: Any
    # None: one row after the other.
    program: Step | None


def plan_reading(writer: ParsedSchema, reader: ParsedSchema, found: pa.DataType) -> Reading:
    """The reader can read it."""
    assert isinstance(writer, AvroSchema)
    assert isinstance(reader, AvroSchema)
    try:
        written = aligned(writer.type, reader.type)
        step = program(written, reader.type, found, _default)
    except (NoProgramError, RecursionError):
        return Reading(parsed(readable(json.loads(writer.formatted("resolved")))), None)
    return Reading(parsed(readable(json.loads(canonical(written, ())))), step)


def _default(record: str, name: str) -> Any:
    from fastavro import schemaless_reader

    reader = read_schema(record)
    writer = parsed({"type": "record", "name": reader["name"], "fields": []})
    found: Any = schemaless_reader(BytesIO(b""), writer, reader)
    return found[name]

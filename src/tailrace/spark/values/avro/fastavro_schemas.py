"""Avro schemas as fastavro takes them, so that it reads what Spark has types for.

fastavro has two habits that are put right here: it reads every logical type that it knows, and gives defaults as they
stand in the JSON, where bytes are text and times are numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from tailrace.schemas import InvalidSchema, parse
from tailrace.schemas.codecs import CodecError, encoder
from tailrace.spark.values.ddl import SchemaError

DECIMAL = "decimal"
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}


def read_schema(text: str) -> Any:
    """To read with. Raises SchemaError."""
    found = parsed(readable(json.loads(text)))
    if isinstance(found, dict):
        for record in found.get("__named_schemas", {}).values():
            for field in record.get("fields", ()):
                if field.get("default") is not None:
                    field["default"] = _default(field, found["__named_schemas"])
    return found


def _default(field: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    """As it is read: it is written, and read again."""
    from fastavro import schemaless_reader

    kind = _spelled_out(field["type"], named, set())
    try:
        written = encoder(parse("AVRO", json.dumps(kind), {}))(json.dumps(field["default"]))
    except (InvalidSchema, CodecError):
        return field["default"]  # Not what its type says; fastavro is less strict than Avro.
    return schemaless_reader(BytesIO(written), parsed(kind), None)


def _spelled_out(schema: Any, named: Mapping[str, Any], seen: set[str]) -> Any:
    """With each named type where it is first mentioned."""
    if isinstance(schema, list):
        return [_spelled_out(each, named, seen) for each in schema]
    if isinstance(schema, str):
        return _spelled_out(named[schema], named, seen) if schema in named and schema not in seen else schema
    if "name" in schema:
        seen.add(schema["name"])
    kept = {name: each for name, each in schema.items() if not name.startswith("__")}
    for key in ("items", "values"):
        if key in kept:
            kept[key] = _spelled_out(kept[key], named, seen)
    if "fields" in kept:
        kept["fields"] = [
            {
                **{name: each for name, each in field.items() if name != "default"},
                "type": _spelled_out(field["type"], named, seen),
            }
            for field in kept["fields"]
        ]
    return kept


def parsed(schema: Any, *, expand: bool = False) -> Any:
    """With names resolved; `expand` puts every named type in the place of its name, unless it contains itself."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException

    try:
        return parse_schema(schema, expand=expand)
    except (SchemaParseException, LookupError, TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"it is JSON, but not an Avro schema: {error!r}") from None


def readable(schema: Any) -> Any:
    """The same schema with the logical types that become a type of Spark, and no others."""
    if isinstance(schema, list):
        return [readable(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: readable(each) if name in ("type", "items", "values") else each for name, each in schema.items()}
    if "fields" in schema:
        kept["fields"] = [readable(field) for field in schema["fields"]]
    if schema.get("logicalType") != DECIMAL and logical_type(schema) is None:
        kept.pop("logicalType", None)
    return kept


def logical_type(schema: Mapping[str, Any]) -> DataType | None:
    kind, logical = schema.get("type"), schema.get("logicalType")
    return _LOGICAL.get((kind, logical)) if isinstance(kind, str) and isinstance(logical, str) else None

"""A schema for a column that is to be written, where none is given: Avro, JSON Schema or Protobuf, from the type in
Spark.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tailrace.spark.values.ddl import SchemaError

# What Spark's to_avro calls it too.
TOP = "topLevelRecord"

_AVRO: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}
_JSON: dict[type[DataType], dict[str, str]] = {
    BooleanType: {"type": "boolean"},
    ByteType: {"type": "integer"},
    ShortType: {"type": "integer"},
    IntegerType: {"type": "integer"},
    LongType: {"type": "integer"},
    FloatType: {"type": "number"},
    DoubleType: {"type": "number"},
    DecimalType: {"type": "number"},
    StringType: {"type": "string"},
    BinaryType: {"type": "string", "contentEncoding": "base64"},
    DateType: {"type": "string", "format": "date"},
    TimestampType: {"type": "string", "format": "date-time"},
    TimestampNTZType: {"type": "string"},
}
_PROTOBUF: dict[type[DataType], str] = {
    BooleanType: "bool",
    ByteType: "int32",
    ShortType: "int32",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    TimestampType: "google.protobuf.Timestamp",
}


def derive_schema(kind: str, found: DataType) -> str:
    """Raises SchemaError for a type that the kind has no counterpart for."""
    if not isinstance(found, StructType):
        raise SchemaError(f"it is {found.simpleString()}, and a schema is made of a struct: select struct(...) as it")
    if kind == "avro":
        return json.dumps(_avro(found, TOP))
    if kind == "json":
        return json.dumps({"title": TOP, **_json(found)})
    return _protobuf_file(found)


def _avro(found: DataType, name: str) -> Any:
    if isinstance(found, StructType):
        fields = []
        for field in found.fields:
            kind = _avro(field.dataType, f"{name}.{field.name}")
            nullable = {"type": ["null", kind], "default": None} if field.nullable else {"type": kind}
            fields.append({"name": field.name, **nullable})
        return {"type": "record", "name": name, "fields": fields}
    if isinstance(found, ArrayType):
        items = _avro(found.elementType, name)
        return {"type": "array", "items": ["null", items] if found.containsNull else items}
    if isinstance(found, MapType):
        if not isinstance(found.keyType, StringType):
            raise SchemaError(f"keys of Avro's maps are strings, not {found.keyType.simpleString()}")
        values = _avro(found.valueType, name)
        return {"type": "map", "values": ["null", values] if found.valueContainsNull else values}
    if isinstance(found, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": found.precision, "scale": found.scale}
    return _plain(_AVRO, found, "Avro")


def _json(found: DataType, *, nullable: bool = False) -> dict[str, Any]:
    if isinstance(found, StructType):
        properties = {field.name: _json(field.dataType, nullable=field.nullable) for field in found.fields}
        required = [field.name for field in found.fields if not field.nullable]
        # Closed, because only a closed model may get more properties later, by the rules of compatibility.
        schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
        schema |= {"required": required} if required else {}
    elif isinstance(found, ArrayType):
        schema = {"type": "array", "items": _json(found.elementType, nullable=found.containsNull)}
    elif isinstance(found, MapType):
        rest = _json(found.valueType, nullable=found.valueContainsNull)
        schema = {"type": "object", "additionalProperties": rest}
    else:
        schema = dict(_plain(_JSON, found, "JSON Schema"))
    return schema | {"type": [schema["type"], "null"]} if nullable else schema


def _protobuf_file(found: StructType) -> str:
    body = "\n".join(_protobuf_message(found, TOP))
    imports = 'import "google/protobuf/timestamp.proto";\n' if "google.protobuf.Timestamp" in body else ""
    return f'syntax = "proto3";\n{imports}{body}\n'


def _protobuf_message(found: StructType, name: str) -> list[str]:
    inner: list[str] = []
    lines = []
    for number, field in enumerate(found.fields, 1):
        kind = field.dataType
        if isinstance(kind, MapType):
            key = _protobuf_type(kind.keyType, field.name, inner)
            written = f"map<{key}, {_protobuf_type(kind.valueType, field.name, inner)}>"
        elif isinstance(kind, ArrayType):
            written = f"repeated {_protobuf_type(kind.elementType, field.name, inner)}"
        else:
            written = _protobuf_type(kind, field.name, inner)
            if field.nullable and not isinstance(kind, StructType):
                written = f"optional {written}"
        lines.append(f"  {written} {field.name} = {number};")
    return [f"message {name} {{", *lines, *inner, "}"]


def _protobuf_type(found: DataType, field: str, inner: list[str]) -> str:
    if isinstance(found, StructType):
        name = "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Record"
        inner += [f"  {line}" for line in _protobuf_message(found, name)]
        return name
    return str(_plain(_PROTOBUF, found, "Protobuf"))


def _plain(table: dict[type[DataType], Any], found: DataType, kind: str) -> Any:
    if type(found) not in table:
        raise SchemaError(f"{kind} has no type for {found.simpleString()} there: cast it, or give the schema yourself")
    return table[type(found)]

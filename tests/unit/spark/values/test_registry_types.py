"""Types of columns from JSON Schema, and schemas from types of columns."""

import json

import pytest
from pyspark.sql.types import DateType, StringType, StructType

from tailrace.schemas import parse
from tailrace.spark.values.ddl import SchemaError, parse_schema
from tailrace.spark.values.registry.derived import derive_schema
from tailrace.spark.values.registry.json_types import spark_type_of_json_schema

DDL = (
    "id BIGINT, name STRING, at TIMESTAMP, tags ARRAY<STRING>, counts MAP<STRING, INT>, "
    "who STRUCT<age: INT, raw: BINARY>"
)


def test_what_a_json_schema_leaves_open_is_text():
    schema = {
        "type": "object",
        "properties": {
            "day": {"type": "string", "format": "date"},
            "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
            "maybe": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
            "anything": {},
            "rest": {"type": "object", "additionalProperties": {"type": "number"}},
            "tree": {"$ref": "#/definitions/tree"},
        },
        "definitions": {"tree": {"type": "object", "properties": {"child": {"$ref": "#/definitions/tree"}}}},
    }
    found = spark_type_of_json_schema(parse("JSON", json.dumps(schema), {}))
    assert found.simpleString() == (
        "struct<day:date,either:string,maybe:boolean,anything:string,rest:map<string,double>,tree:struct<child:string>>"
    )


@pytest.mark.parametrize("schema", [True, {"type": "array"}, {"type": "object"}])
def test_values_without_known_fields_make_no_columns(schema):
    with pytest.raises(SchemaError, match="known properties"):
        spark_type_of_json_schema(parse("JSON", json.dumps(schema), {}))


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_a_schema_made_of_columns_is_a_schema(kind):
    assert parse(kind.upper(), derive_schema(kind, parse_schema(DDL)), {}).text


def test_columns_survive_the_way_through_a_json_schema():
    found = spark_type_of_json_schema(parse("JSON", derive_schema("json", parse_schema(DDL)), {}))
    assert found.simpleString() == parse_schema(DDL).simpleString().replace("int>", "bigint>").replace(
        "age:int,raw:binary", "age:bigint,raw:string"
    )


@pytest.mark.parametrize(
    ("kind", "found", "why"),
    [
        ("avro", StringType(), "a schema is made of a struct"),
        ("protobuf", StructType().add("d", DateType()), "Protobuf has no type for date"),
        ("avro", parse_schema("m MAP<INT, STRING>"), "keys of Avro's maps are strings"),
    ],
)
def test_types_without_a_counterpart_are_told(kind, found, why):
    with pytest.raises(SchemaError, match=why):
        derive_schema(kind, found)

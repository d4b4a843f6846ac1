"""The type of a column whose values obey a JSON Schema: what the schema says plainly, and text for the rest.

object with `properties`: a struct; object without: a map, if `additionalProperties` has a schema, else text. array: of
its `items`. integer: bigint; number: double; string with `format` date-time or date: timestamp or date. A type beside
null is that type. Whatever else there is (`oneOf`, several types, no type) stays JSON text.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.schemas import ParsedSchema
from tailrace.schemas.json_schema.documents import Documents
from tailrace.schemas.json_schema.schema import JsonSchema
from tailrace.spark.values.ddl import SchemaError

_FORMATS: dict[str, DataType] = {"date-time": TimestampType(), "date": DateType()}
_PLAIN: dict[str, DataType] = {"boolean": BooleanType(), "integer": LongType(), "number": DoubleType()}
# A schema that contains itself has no type in Spark: below this it is text.
_DEPTH_MAX = 32


def spark_type_of_json_schema(schema: ParsedSchema) -> StructType:
    """Raises SchemaError if its values are no objects with known fields."""
    assert isinstance(schema, JsonSchema)
    found = _Types(Documents(schema.json, schema.documents)).of(schema.json, "", ())
    if not isinstance(found, StructType) or not found.fields:
        raise SchemaError(
            "its values are not objects with known properties; give the columns yourself, in DDL, by the option schema"
        )
    return found


class _Types:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def of(self, schema: Any, base: str, seen: tuple[str, ...]) -> DataType:
        if not isinstance(schema, dict) or len(seen) > _DEPTH_MAX:
            return StringType()
        if isinstance(reference := schema.get("$ref"), str):
            if reference in seen:
                return StringType()
            target, base = self._documents.find(reference, base or self._documents.base)
            return self.of(target, base, (*seen, reference))
        if (
            len(options := [each for key in ("oneOf", "anyOf") for each in schema.get(key) or () if not _is_null(each)])
            == 1
        ):
            return self.of(options[0], base, seen)
        names = schema.get("type")
        kinds = [each for each in (names if isinstance(names, list) else [names]) if each != "null"]
        if len(kinds) != 1:
            return StringType()
        match kinds[0]:
            case "object":
                return self._object(schema, base, seen)
            case "array" if isinstance(schema.get("items"), dict):
                return ArrayType(self.of(schema["items"], base, seen))
            case "string":
                return _FORMATS.get(str(schema.get("format")), StringType())
        return _PLAIN.get(str(kinds[0]), StringType())

    def _object(self, schema: dict[str, Any], base: str, seen: tuple[str, ...]) -> DataType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            return StructType([StructField(name, self.of(each, base, seen)) for name, each in properties.items()])
        rest = schema.get("additionalProperties")
        return MapType(StringType(), self.of(rest, base, seen)) if isinstance(rest, dict) else StringType()


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "null"

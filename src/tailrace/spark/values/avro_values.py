"""`avro`: one datum a record, without a file's header, read into the types that Spark's from_avro gives.

| Avro | Spark |
|---|---|
| boolean, int, long, float, double, string, bytes | boolean, int, long, float, double, string, binary |
| enum; fixed | string; binary |
| record, array, map | struct, array, map of strings |
| union with null; of int and long; of float and double | the other type; long; double |
| date; timestamp-millis, timestamp-micros; local-timestamp-* of both | date; timestamp; timestamp_ntz |
| decimal(p, s) on bytes or fixed | decimal(p, s) |
| uuid on string | string |

Other logical types are read as the type below them, as Avro says of those that a reader does not know. Other unions
and records that contain themselves are refused, since Spark has no type for them. The bytes of a record must be those
of one datum, all of them: Avro has no marks, so that what is left over is the only sign of a wrong schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tailrace.schemas import InvalidSchema, parse
from tailrace.spark.pyspark_api import arrow_type_of
from tailrace.spark.values.avro.columns import Values, decode_together
from tailrace.spark.values.avro.fastavro_schemas import DECIMAL, logical_type, parsed
from tailrace.spark.values.avro.leaves import Step
from tailrace.spark.values.avro.reading import plan_reading
from tailrace.spark.values.avro.single import SingleAvroDecoder
from tailrace.spark.values.ddl import SchemaError
from tailrace.spark.values.decoded import Decoded

_PRIMITIVES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
# Unions of two numbers that one type of Spark can hold.
_WIDER: dict[frozenset[str], DataType] = {
    frozenset({"int", "long"}): LongType(),
    frozenset({"float", "double"}): DoubleType(),
}
_DECIMAL_PRECISION_MAX = 38


@dataclass(frozen=True)
class AvroFormat:
    schema: str
    has_confluent_prefix: bool
    spark_type: DataType

    @staticmethod
    def parse(schema: str, *, has_confluent_prefix: bool) -> AvroFormat:
        """Raises SchemaError."""
        try:
            declared = json.loads(schema)
        except ValueError as error:
            raise SchemaError(f"an Avro schema is JSON, and this is none: {error}") from None
        return AvroFormat(schema, has_confluent_prefix, _spark_type(parsed(declared, expand=True), "its top"))

    def decoder(self) -> AvroDecoder:
        return AvroDecoder(self)


class AvroDecoder:
    def __init__(self, wanted: AvroFormat) -> None:
        found = arrow_type_of(wanted.spark_type)
        self._single = SingleAvroDecoder(wanted.schema, found, has_prefix=wanted.has_confluent_prefix)
        self._has_prefix = wanted.has_confluent_prefix
        self._program: Step | None = None
        with suppress(InvalidSchema):  # fastavro is less strict.
            schema = parse("AVRO", wanted.schema, {})
            self._program = plan_reading(schema, schema, found).program

    def decode(self, column: pa.Array) -> Decoded:
        if self._program is None:
            return self._single.decode(column)
        values = Values.of(column)
        if self._has_prefix:
            values = values.framed()[0].behind_prefix()
        return decode_together(column, [(self._program, values)], self._single.decode)


def _spark_type(schema: Any, where: str) -> DataType:
    if isinstance(schema, str):
        return _primitive(schema, where)
    if isinstance(schema, list):
        return _union(schema, where)
    kind = schema["type"]
    if schema.get("logicalType") == DECIMAL and kind in ("bytes", "fixed"):
        return _decimal(schema, where)
    logical = logical_type(schema)
    if logical is not None:
        return logical
    match kind:
        case "record" | "error":
            return _struct(schema, where)
        case "array":
            return ArrayType(_spark_type(schema["items"], f"the items of {where}"))
        case "map":
            return MapType(StringType(), _spark_type(schema["values"], f"the values of {where}"))
        case "enum":
            return StringType()
        case "fixed" if schema["size"] > 0:
            return BinaryType()
    return _spark_type(kind, where)


def _primitive(name: str, where: str) -> DataType:
    found = _PRIMITIVES.get(name)
    if found is not None:
        return found
    if name in ("null", "fixed"):
        raise SchemaError(f"{where} is {name} without any bytes, which makes no column: leave it out")
    raise SchemaError(f"{where} is {name} within itself, and Spark has no recursive types: read the column as binary")


def _struct(schema: Mapping[str, Any], where: str) -> StructType:
    if not schema["fields"]:
        raise SchemaError(f"{where} is a record without fields, which makes no column: leave it out")
    return StructType(
        [
            StructField(field["name"], _spark_type(field["type"], f"field {field['name']} of {schema['name']}"))
            for field in schema["fields"]
        ]
    )


def _union(branches: list[Any], where: str) -> DataType:
    present = [branch for branch in branches if branch != "null"]
    if len(present) == 1:
        return _spark_type(present[0], where)
    names = frozenset(branch for branch in present if isinstance(branch, str))
    if len(names) == len(present) and names in _WIDER:
        return _WIDER[names]
    raise SchemaError(
        f"{where} is a union of {len(present)} types, and Spark has no type for it: besides null, only int with long "
        "and float with double can be read"
    )


def _decimal(schema: Mapping[str, Any], where: str) -> DecimalType:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if precision > _DECIMAL_PRECISION_MAX:
        raise SchemaError(f"{where} is a decimal of {precision} digits, and Spark's have {_DECIMAL_PRECISION_MAX}")
    return DecimalType(precision, scale)

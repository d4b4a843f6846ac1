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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tailrace.spark.values.ddl import SchemaError
from tailrace.spark.values.decoded import Decoded

# What Confluent's serializers write first: a zero, and the id of the schema in four bytes.
_CONFLUENT_PREFIX_BYTES = 5
_CONFLUENT_MAGIC = 0

_PRIMITIVES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
# Unions of two numbers that one type of Spark can hold.
_WIDER: dict[frozenset[str], DataType] = {
    frozenset({"int", "long"}): LongType(),
    frozenset({"float", "double"}): DoubleType(),
}
_DECIMAL = "decimal"
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
        return AvroFormat(schema, has_confluent_prefix, _spark_type(_parsed(declared, expand=True), "its top"))

    def decoder(self) -> AvroDecoder:
        return AvroDecoder(self)


class AvroDecoder:
    def __init__(self, wanted: AvroFormat) -> None:
        from fastavro import schemaless_reader

        self._arrow_type = to_arrow_type(wanted.spark_type, timezone="UTC")
        self.schema = _parsed(_readable(json.loads(wanted.schema)))
        self._has_prefix = wanted.has_confluent_prefix
        self._read_datum: Callable[[BytesIO, Any], Any] = schemaless_reader

    def decode(self, column: pa.Array) -> Decoded:
        data: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(column.to_pylist()):
            datum = None
            if value is not None:
                try:
                    datum = self._read(value)
                except EOFError:
                    bad[row] = "not of this Avro schema: it ends too early"
                # fastavro raises these for wrong bytes: branches and symbols that do not exist, times and numbers out
                # of range, strings that are not UTF-8.
                except (LookupError, ArithmeticError, ValueError, TypeError) as error:
                    bad[row] = f"not of this Avro schema: {error}"
            data.append(datum)
        return Decoded(self.to_array(data, bad), bad)

    def _read(self, value: bytes) -> Any:
        start = 0
        if self._has_prefix:
            if len(value) < _CONFLUENT_PREFIX_BYTES or value[0] != _CONFLUENT_MAGIC:
                raise ValueError("it does not begin with Confluent's prefix, a zero and the id of a schema")
            start = _CONFLUENT_PREFIX_BYTES
        stream = BytesIO(value)
        stream.seek(start)
        datum = self._read_datum(stream, self.schema)
        left_over = len(value) - stream.tell()
        if left_over:
            raise ValueError(f"{left_over} bytes are left over")
        return datum

    def to_array(self, data: list[Any], bad: dict[int, str]) -> pa.Array:
        try:
            return pa.array(data, self._arrow_type)
        except (pa.ArrowInvalid, OverflowError):
            # One of them does not fit: which one is seen below. fastavro rounds decimals with too many digits, and they
            # stay as large as they were, so they are found here.
            pass
        for row, datum in enumerate(data):
            try:
                pa.array([datum], self._arrow_type)
            except (pa.ArrowInvalid, OverflowError) as error:
                bad[row] = f"not of this Avro schema: {error}"
                data[row] = None
        return pa.array(data, self._arrow_type)


def _parsed(schema: Any, *, expand: bool = False) -> Any:
    """With names resolved; `expand` puts every named type in the place of its name, unless it contains itself."""
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException

    try:
        return parse_schema(schema, expand=expand)
    except (SchemaParseException, LookupError, TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"it is JSON, but not an Avro schema: {error!r}") from None


def _readable(schema: Any) -> Any:
    """The same schema with the logical types that become a type of Spark, and no others."""
    if isinstance(schema, list):
        return [_readable(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: _readable(each) if name in ("type", "items", "values") else each for name, each in schema.items()}
    if "fields" in schema:
        kept["fields"] = [_readable(field) for field in schema["fields"]]
    if schema.get("logicalType") != _DECIMAL and _logical_type(schema) is None:
        kept.pop("logicalType", None)
    return kept


def _spark_type(schema: Any, where: str) -> DataType:
    if isinstance(schema, str):
        return _primitive(schema, where)
    if isinstance(schema, list):
        return _union(schema, where)
    kind = schema["type"]
    if schema.get("logicalType") == _DECIMAL and kind in ("bytes", "fixed"):
        return _decimal(schema, where)
    logical = _logical_type(schema)
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


def _logical_type(schema: Mapping[str, Any]) -> DataType | None:
    kind, logical = schema.get("type"), schema.get("logicalType")
    return _LOGICAL.get((kind, logical)) if isinstance(kind, str) and isinstance(logical, str) else None


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

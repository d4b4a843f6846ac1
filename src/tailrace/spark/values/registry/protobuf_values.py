"""Protobuf messages as columns, and columns as messages.

| Protobuf | Spark |
|---|---|
| int32, sint32, sfixed32; int64, sint64, sfixed64 | int; bigint |
| uint32, fixed32; uint64, fixed64 | bigint; decimal(20, 0), so that no number becomes negative |
| bool, float, double, string, bytes, enum | boolean, float, double, string, binary, string |
| message; repeated; map | struct; array; map |
| google.protobuf.Timestamp | timestamp |

A message that contains itself is refused: Spark has no type for it. Fields with presence that are not set are null;
others are their default, as Protobuf says.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
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
    TimestampType,
)

from tailrace.real.registry.client import RegistryAddress, RegistryClient
from tailrace.schemas import parse
from tailrace.schemas.codecs import CodecError, message_classes, message_name
from tailrace.schemas.framing import read_indexes
from tailrace.spark.pyspark_api import arrow_type_of
from tailrace.spark.values.ddl import SchemaError
from tailrace.spark.values.decoded import ColumnDecoder
from tailrace.spark.values.registry.reading import ReadOne, RegistryDecoder

if TYPE_CHECKING:
    from tailrace.schemas import ParsedSchema
    from tailrace.spark.values.registry.settings import Wanted

_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_F = FieldDescriptor
_SCALARS: dict[int, DataType] = {
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), IntegerType()),
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64, _F.TYPE_UINT32, _F.TYPE_FIXED32), LongType()),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), DecimalType(20, 0)),
    _F.TYPE_BOOL: BooleanType(),
    _F.TYPE_FLOAT: FloatType(),
    _F.TYPE_DOUBLE: DoubleType(),
    _F.TYPE_STRING: StringType(),
    _F.TYPE_BYTES: BinaryType(),
    _F.TYPE_ENUM: StringType(),
}


@dataclass(frozen=True)
class ProtobufFormat:
    address: RegistryAddress
    # The reader's: descriptors in base64, those that it needs first, each by its name.
    files: tuple[tuple[str, str], ...]
    message: str
    spark_type: DataType

    @staticmethod
    def plan(wanted: Wanted, schema: ParsedSchema) -> ProtobufFormat:
        """Raises SchemaError."""
        files = files_of(schema)
        classes = message_classes(schema)
        try:
            name = wanted.message or message_name(schema, (0,))
        except CodecError as error:
            raise SchemaError(str(error)) from None
        if name not in classes:
            raise SchemaError(f"it has no message {name}: it has {', '.join(classes)}")
        found = _struct(classes[name].DESCRIPTOR, ())
        return ProtobufFormat(wanted.address, files, name, found)

    def decoder(self) -> ColumnDecoder:
        return RegistryDecoder(_ProtobufReaders(self), self.address.patience_s)


class _ProtobufReaders:
    """Fields are the same if their numbers are, so the reader's class reads the bytes of any version. The writer's
    schema says which message it is."""

    def __init__(self, wanted: ProtobufFormat) -> None:
        self._client = RegistryClient(wanted.address)
        self._message = wanted.message
        self._class = message_classes(schema_of(wanted.files))[wanted.message]
        self._extract = _struct_of(self._class.DESCRIPTOR)
        self._arrow_type = arrow_type_of(wanted.spark_type)

    def reader_of(self, named: int | str) -> ReadOne:
        writer = self._client.schema(named)
        if writer.schema_type != "PROTOBUF":
            raise CodecError(f"schema {named} is {writer.schema_type}, and not Protobuf")
        wanted, found, extract = self._message, self._class, self._extract
        names: dict[tuple[int, ...], str] = {}

        def read(value: bytes, start: int) -> Any:
            indexes, start = read_indexes(value, start)
            if indexes not in names:
                names[indexes] = message_name(writer, indexes)
            if names[indexes] != wanted:
                raise CodecError(f"it is a {names[indexes]}, and not a {wanted}")
            message = found()
            try:
                message.ParseFromString(value[start:])
            except DecodeError as error:
                raise CodecError(str(error)) from None
            return extract(message)

        return read

    def to_array(self, data: list[Any], bad: dict[int, str]) -> pa.Array:
        try:
            return pa.array(data, self._arrow_type)
        except (pa.ArrowInvalid, OverflowError):
            pass  # One of them does not fit: a time that no calendar reaches.
        for row, datum in enumerate(data):
            try:
                pa.array([datum], self._arrow_type)
            except (pa.ArrowInvalid, OverflowError) as error:
                bad[row] = f"not of its schema: {error}"
                data[row] = None
        return pa.array(data, self._arrow_type)


def files_of(schema: ParsedSchema) -> tuple[tuple[str, str], ...]:
    """What `schema_of` makes the schema of again, in another process."""
    from tailrace.schemas.protobuf.schema import ProtobufSchema

    assert isinstance(schema, ProtobufSchema)
    everything = (*schema.needed.items(), ("", schema.file))
    return tuple((name, base64.b64encode(file.SerializeToString()).decode()) for name, file in everything)


def schema_of(files: tuple[tuple[str, str], ...]) -> ParsedSchema:
    known: dict[str, ParsedSchema] = {}
    for name, text in files:
        known[name] = parse("PROTOBUF", text, {each: schema for each, schema in known.items() if each})
    return known[""]


def _struct(message: Any, within: tuple[str, ...]) -> StructType:
    if message.full_name in within:
        raise SchemaError(f"{message.full_name} contains itself, and Spark has no recursive types")
    if not message.fields:
        raise SchemaError(f"{message.full_name} has no fields, which makes no column")
    inside = (*within, message.full_name)
    return StructType([StructField(field.name, _column(field, inside)) for field in message.fields])


def _column(field: Any, within: tuple[str, ...]) -> DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return MapType(_one(key, within), _one(value, within))
    found = _one(field, within)
    return ArrayType(found) if field.is_repeated else found


def _one(field: Any, within: tuple[str, ...]) -> DataType:
    if field.message_type is None:
        return _SCALARS[field.type]
    return TimestampType() if field.message_type.full_name == _TIMESTAMP else _struct(field.message_type, within)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _struct_of(message: Any) -> Callable[[Any], dict[str, Any]]:
    """What makes a dict of a message, made once for its type."""
    fields = [(field.name, _presence(field), _value_of(field)) for field in message.fields]

    def extract(found: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not found.HasField(name) else take(getattr(found, name))
            for name, has_presence, take in fields
        }

    return extract


def _presence(field: Any) -> bool:
    return bool(field.has_presence) and not field.is_repeated


def _value_of(field: Any) -> Callable[[Any], Any]:
    if _is_map(field):
        take = _single(field.message_type.fields_by_name["value"])
        return lambda found: [(key, take(found[key])) for key in found]
    take_one = _single(field)
    if not field.is_repeated:
        return take_one
    return list if take_one is _as_it_is else lambda found: [take_one(each) for each in found]


def _single(field: Any) -> Callable[[Any], Any]:
    if field.message_type is not None:
        return _time if field.message_type.full_name == _TIMESTAMP else _struct_of(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _time(value: Any) -> datetime:
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)

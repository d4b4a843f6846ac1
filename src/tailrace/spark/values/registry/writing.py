"""Columns made into what Confluent's deserializers read: the schema is registered when the query is planned, its id
goes before every value, and tasks never ask the registry.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tailrace.real.registry.client import RegistryClient, RegistryError
from tailrace.schemas import InvalidSchema, parse
from tailrace.schemas.codecs import CodecError, fastavro_schema, message_classes, message_indexes, message_name
from tailrace.schemas.framing import write_indexes, write_prefix
from tailrace.spark.options.errors import OptionError
from tailrace.spark.values.ddl import SchemaError
from tailrace.spark.values.errors import DecodeError
from tailrace.spark.values.registry.derived import derive_schema
from tailrace.spark.values.registry.settings import KINDS, Wanted

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.schemas import ParsedSchema


@dataclass(frozen=True)
class ColumnEncoder:
    """Crosses to the executors by pickle."""

    column: str
    kind: str
    schema_id: int
    # What `parse` takes, with every reference written out; of Protobuf what `schema_of` takes.
    schema: Any
    message: str | None
    spark_type: DataType

    def encoder(self) -> Callable[[Any], bytes]:
        """What makes the bytes of one value. Raises CodecError when it is called with a value that does not fit."""
        prefix = write_prefix(self.schema_id)
        if self.kind == "avro":
            return _avro_encoder(prefix, parse("AVRO", self.schema, {}), self.spark_type)
        if self.kind == "json":
            return lambda value: prefix + json.dumps(_plain(value, self.spark_type), ensure_ascii=False).encode()
        from tailrace.spark.values.registry.protobuf_values import schema_of

        assert self.message is not None
        return _protobuf_encoder(prefix, schema_of(self.schema), self.message, self.spark_type)


def plan_encoder(wanted: Wanted, found: DataType) -> ColumnEncoder:
    """Registers the schema, given or made of the column's type. Raises OptionError."""
    try:
        text = wanted.schema if wanted.schema is not None else derive_schema(wanted.kind, found)
        client = RegistryClient(wanted.address)
        if wanted.schema is None and wanted.version != "latest":
            version = client.version(wanted.subject, wanted.version)
            schema_id, schema = version.schema_id, version.schema
        else:
            parse(KINDS[wanted.kind], text, {})
            schema_id = client.register(wanted.subject, KINDS[wanted.kind], text)
            schema = client.schema(schema_id)
        message = (wanted.message or message_name(schema, (0,))) if wanted.kind == "protobuf" else None
        if message is not None:
            message_indexes(schema, message)
    except SchemaError as error:
        raise OptionError(f"no schema can be made for column {wanted.column}: {error}") from None
    except (InvalidSchema, CodecError) as error:
        raise OptionError(f"option {wanted.column}.schema cannot be used: {error}") from None
    except RegistryError as error:
        raise OptionError(f"the schema of column {wanted.column} is not registered: {error}") from None
    return ColumnEncoder(wanted.column, wanted.kind, schema_id, _portable(schema), message, found)


def _portable(schema: ParsedSchema) -> Any:
    if schema.schema_type == "PROTOBUF":
        from tailrace.spark.values.registry.protobuf_values import files_of

        return files_of(schema)
    return schema.formatted("resolved")


def encode_columns(rows: Iterable[pa.RecordBatch], encoders: Iterable[ColumnEncoder]) -> Iterator[pa.RecordBatch]:
    """The same rows with these columns as bytes. Raises DecodeError for a value that does not fit its schema."""
    import pyarrow as pa

    made = [(each.column, each.encoder()) for each in encoders]
    for batch in rows:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, encode in made:
            columns[name] = pa.array([_one(name, value, encode) for value in columns[name].to_pylist()], pa.binary())
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _one(name: str, value: Any, encode: Callable[[Any], bytes]) -> bytes | None:
    if value is None:
        return None
    try:
        return encode(value)
    except (CodecError, LookupError, ArithmeticError, ValueError, TypeError, AttributeError) as error:
        raise DecodeError(f"a {name} does not fit the schema that it is written with: {error}") from None


def _avro_encoder(prefix: bytes, schema: ParsedSchema, found: DataType) -> Callable[[Any], bytes]:
    from fastavro import schemaless_writer

    to_write = fastavro_schema(schema)
    has_maps = _has_maps(found)

    def encode(value: Any) -> bytes:
        stream = BytesIO(prefix)
        stream.seek(len(prefix))
        plain = _with_maps(value, found) if has_maps else value
        schemaless_writer(stream, to_write, plain, strict_allow_default=True)
        return stream.getvalue()

    return encode


def _protobuf_encoder(prefix: bytes, schema: ParsedSchema, message: str, found: DataType) -> Callable[[Any], bytes]:
    from google.protobuf import json_format

    start = prefix + write_indexes(message_indexes(schema, message))
    made = message_classes(schema)[message]

    def encode(value: Any) -> bytes:
        try:
            return start + bytes(json_format.ParseDict(_plain(value, found), made()).SerializeToString())
        except json_format.Error as error:
            raise CodecError(str(error)) from None

    return encode


def _has_maps(found: DataType) -> bool:
    if isinstance(found, StructType):
        return any(_has_maps(field.dataType) for field in found.fields)
    return _has_maps(found.elementType) if isinstance(found, ArrayType) else isinstance(found, MapType)


def _with_maps(value: Any, found: DataType) -> Any:
    """Arrow gives maps as pairs."""
    if value is None:
        return None
    if isinstance(found, StructType):
        return {field.name: _with_maps(value[field.name], field.dataType) for field in found.fields}
    if isinstance(found, ArrayType):
        return [_with_maps(each, found.elementType) for each in value]
    if isinstance(found, MapType):
        return {key: _with_maps(each, found.valueType) for key, each in value}
    return value


def _plain(value: Any, found: DataType) -> Any:
    """As JSON has it, and Protobuf's JSON too."""
    if value is None:
        return None
    if isinstance(found, StructType):
        return {field.name: _plain(value[field.name], field.dataType) for field in found.fields}
    if isinstance(found, ArrayType):
        return [_plain(each, found.elementType) for each in value]
    if isinstance(found, MapType):
        return {str(key): _plain(each, found.valueType) for key, each in value}
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value

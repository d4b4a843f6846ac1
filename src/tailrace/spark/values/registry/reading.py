"""Columns that Confluent's serializers wrote, decoded: each record by the schema that it names, into one reader's
schema.

The reader's schema is fixed when the query is planned: the one given, a version, or the latest of the subject. A task
looks up the schema of each id that it meets once. What names no schema, one that the registry does not know, or one
that the reader's cannot read, is a bad record like any other. A registry that is away is no fault of the records: the
task waits for it, and fails in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailrace.real.registry.client import RegistryAddress, RegistryClient, RegistryError
from tailrace.schemas import InvalidSchema, check, parse
from tailrace.schemas.codecs import CodecError
from tailrace.schemas.framing import FramingError, read_frame, read_indexes
from tailrace.spark.options.errors import OptionError
from tailrace.spark.pyspark_api import arrow_type_of
from tailrace.spark.values.avro.columns import Values, decode_together
from tailrace.spark.values.avro.leaves import Step
from tailrace.spark.values.avro.reading import plan_reading
from tailrace.spark.values.avro.single import SingleAvroDecoder
from tailrace.spark.values.avro_values import AvroFormat
from tailrace.spark.values.ddl import SchemaError
from tailrace.spark.values.decoded import ColumnDecoder, Decoded, Format
from tailrace.spark.values.json_values import JsonFormat
from tailrace.spark.values.registry.json_types import spark_type_of_json_schema
from tailrace.spark.values.registry.settings import KINDS, Wanted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from tailrace.schemas import ParsedSchema

# How one record of one schema becomes a value; raises what the caller tells as the reason.
ReadOne = Callable[[bytes, int], Any]
# `RegistryError` is among them only where the registry has answered: see `_patiently`.
_WRONG = (CodecError, FramingError, RegistryError, LookupError, ArithmeticError, ValueError, TypeError, EOFError)


_UNAUTHORIZED = 401
_PAUSE_S = 1.0


class RegistryAwayError(Exception):
    """The registry cannot be asked about a schema: nothing is known of the records that name it."""


def plan_format(wanted: Wanted) -> Format:
    """Asks the registry for the reader's schema, unless it is given. Raises OptionError."""
    if wanted.kind == "json" and wanted.schema is not None and not wanted.schema.lstrip().startswith("{"):
        return _Framed(wanted, JsonFormat.parse(wanted.schema))
    schema = _reader_schema(wanted)
    try:
        if wanted.kind == "avro":
            resolved = schema.formatted("resolved")
            return RegistryAvroFormat(wanted.address, AvroFormat.parse(resolved, has_confluent_prefix=False))
        if wanted.kind == "json":
            return _Framed(wanted, JsonFormat(spark_type_of_json_schema(schema)))
        from tailrace.spark.values.registry.protobuf_values import ProtobufFormat

        return ProtobufFormat.plan(wanted, schema)
    except SchemaError as error:
        raise OptionError(f"the schema of {wanted.subject} makes no column: {error}") from None


def _reader_schema(wanted: Wanted) -> ParsedSchema:
    try:
        if wanted.schema is not None:
            return parse(KINDS[wanted.kind], wanted.schema, {})
        schema = RegistryClient(wanted.address).version(wanted.subject, wanted.version).schema
    except InvalidSchema as error:
        raise OptionError(f"option {wanted.column}.schema cannot be read: {error}") from None
    except RegistryError as error:
        raise OptionError(f"no schema for {wanted.column}: {error}") from None
    if schema.schema_type != KINDS[wanted.kind]:
        raise OptionError(
            f"option {wanted.column}.format is {wanted.kind}, and {wanted.subject} has a schema of {schema.schema_type}"
        )
    return schema


@dataclass(frozen=True)
class RegistryAvroFormat:
    address: RegistryAddress
    reader: AvroFormat

    @property
    def spark_type(self) -> DataType:
        return self.reader.spark_type

    def decoder(self) -> ColumnDecoder:
        return _AvroDecoder(_AvroReaders(self.address, self.reader), self.address.patience_s)


class _AvroReaders:
    """For each schema that records name, what reads them into the reader's."""

    def __init__(self, address: RegistryAddress, wanted: AvroFormat) -> None:
        # Those that read many rows together, of the schemas that were asked for.
        self.programs: dict[int | str, Step] = {}
        self._client = RegistryClient(address)
        self._reader = parse("AVRO", wanted.schema, {})
        found = arrow_type_of(wanted.spark_type)
        self._single = SingleAvroDecoder(wanted.schema, found, has_prefix=False)

    def reader_of(self, named: int | str) -> ReadOne:
        from fastavro import schemaless_reader

        writer = self._client.schema(named)
        if writer.schema_type != "AVRO":
            raise CodecError(f"schema {named} is {writer.schema_type}, and not Avro")
        if why := check("BACKWARD", self._reader, [(0, writer)]):
            raise CodecError(f"schema {named} cannot be read with the reader's: {why[0].rule} at {why[0].path}")
        written_by, program = plan_reading(writer, self._reader, self._single.arrow_type)
        if program is not None:
            self.programs[named] = program
        # The same schema needs no resolution, and is read in half the time.
        read_as = None if writer.formatted("resolved") == self._reader.text else self._single.schema

        def read(value: bytes, start: int) -> Any:
            stream = BytesIO(value)
            stream.seek(start)
            datum = schemaless_reader(stream, self._single.schema if read_as is None else written_by, read_as)
            if left := len(value) - stream.tell():
                raise CodecError(f"{left} bytes are left over")
            return datum

        return read

    def to_array(self, data: list[Any], bad: dict[int, str]) -> pa.Array:
        return self._single.to_array(data, bad)


class _AvroDecoder:
    """Rows of one schema together, by its program; all others singly."""

    def __init__(self, readers: _AvroReaders, patience_s: float) -> None:
        self._readers = readers
        self._single = RegistryDecoder(readers, patience_s)

    def decode(self, column: pa.Array) -> Decoded:
        framed, ids = Values.of(column).framed()
        failed: dict[int | str, str] = {}
        programs = []
        for named in np.unique(ids).tolist():
            with suppress(*_WRONG):
                self._single.reader_of(named, failed)
            if (program := self._readers.programs.get(named)) is not None:
                programs.append((program, framed.take(np.flatnonzero(ids == named)).behind_prefix()))
        return decode_together(column, programs, lambda rest: self._single.decode_rows(rest, failed))


class RegistryDecoder:
    """Rows by the schema that each names. A schema that cannot be had is asked for again with the next batch."""

    def __init__(self, readers: Any, patience_s: float) -> None:
        self._readers = readers
        self._patience_s = patience_s
        self._known: dict[int | str, ReadOne] = {}

    def decode(self, column: pa.Array) -> Decoded:
        return self.decode_rows(column, {})

    def decode_rows(self, column: pa.Array, failed: dict[int | str, str]) -> Decoded:
        """`failed` has the schemas of this batch that cannot be had, and why."""
        data: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(column.to_pylist()):
            datum = None
            if value is not None:
                try:
                    named, start = read_frame(value)
                    if named in failed:
                        bad[row] = f"not of its schema: {failed[named]}"
                    else:
                        datum = self.reader_of(named, failed)(value, start)
                except _WRONG as error:
                    bad[row] = f"not of its schema: {error}"
            data.append(datum)
        return Decoded(self._readers.to_array(data, bad), bad)

    def reader_of(self, named: int | str, failed: dict[int | str, str]) -> ReadOne:
        found = self._known.get(named)
        if found is None:
            try:
                found = self._known[named] = self._patiently(named)
            except _WRONG as error:
                failed[named] = str(error)
                raise
        return found

    def _patiently(self, named: int | str) -> ReadOne:
        end = time.monotonic() + self._patience_s
        while True:
            try:
                found: ReadOne = self._readers.reader_of(named)
                return found
            except RegistryError as error:
                if not error.is_away and error.status != _UNAUTHORIZED:
                    raise
                if not error.is_away or time.monotonic() >= end:
                    raise RegistryAwayError(
                        f"schema {named} cannot be asked for: {error}. The records that name it are read when the "
                        "query is run again; see schemaRegistryPatienceMs"
                    ) from None
            time.sleep(_PAUSE_S)


@dataclass(frozen=True)
class _Framed:
    """JSON behind a prefix: it says its own fields, so the schema that it was written with is not needed."""

    wanted: Wanted
    inner: JsonFormat

    @property
    def spark_type(self) -> DataType:
        return self.inner.spark_type

    def decoder(self) -> ColumnDecoder:
        return _FramedDecoder(self.inner.decoder())


class _FramedDecoder:
    def __init__(self, inner: ColumnDecoder) -> None:
        self._inner = inner

    def decode(self, column: pa.Array) -> Decoded:
        data: list[bytes | None] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(column.to_pylist()):
            try:
                data.append(None if value is None else value[read_frame(value).start :])
            except FramingError as error:
                data.append(None)
                bad[row] = f"not of a schema: {error}"
        decoded, more = self._inner.decode(pa.array(data, pa.binary()))
        return Decoded(decoded, bad | more)


__all__ = ["RegistryDecoder", "plan_format", "read_indexes"]

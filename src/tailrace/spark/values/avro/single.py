"""Avro data of one row after the other, by fastavro, which says what is wrong with a row."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pyarrow as pa

from tailrace.schemas.framing import MAGIC, PREFIX_BYTES
from tailrace.spark.values.avro.fastavro_schemas import read_schema
from tailrace.spark.values.decoded import Decoded


class SingleAvroDecoder:
    """One row after the other. What fastavro raises, and what Arrow does not take, is told of its row."""

    def __init__(self, schema: str, arrow_type: pa.DataType, *, has_prefix: bool) -> None:
        from fastavro import schemaless_reader

        self.arrow_type = arrow_type
        self.schema = read_schema(schema)
        self._has_prefix = has_prefix
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
            if len(value) < PREFIX_BYTES or value[0] != MAGIC:
                raise ValueError("it does not begin with Confluent's prefix, a zero and the id of a schema")
            start = PREFIX_BYTES
        stream = BytesIO(value)
        stream.seek(start)
        datum = self._read_datum(stream, self.schema)
        left_over = len(value) - stream.tell()
        if left_over:
            raise ValueError(f"{left_over} bytes are left over")
        return datum

    def to_array(self, data: list[Any], bad: dict[int, str]) -> pa.Array:
        try:
            return pa.array(data, self.arrow_type)
        except (pa.ArrowInvalid, OverflowError):
            # One of them does not fit: which one is seen below. fastavro rounds decimals with too many digits, and they
            # stay as large as they were, so they are found here.
            pass
        for row, datum in enumerate(data):
            try:
                pa.array([datum], self.arrow_type)
            except (pa.ArrowInvalid, OverflowError) as error:
                bad[row] = f"not of this Avro schema: {error}"
                data[row] = None
        return pa.array(data, self.arrow_type)

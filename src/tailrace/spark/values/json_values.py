"""`json`: one object a record, read into a struct of the schema.

As Spark's from_json has it in the mode FAILFAST: fields that are missing are null, fields that the schema does not name
are ignored, names are matched exactly, of a name that comes twice the last counts, and one field of the wrong type
makes the record bad as a whole. Unlike there, text after the object, single quotes and an empty value are bad, and the
JSON `null` is not.

Batches in which nothing is odd are read by `json_typed`. In the others values are parsed one by one and turned into
Arrow column by column: the types that occur in a column are looked at as a set, and only a column with something odd in
it is gone through value by value. pyarrow.json was measured and left out: at 1 KB it reads 200k records a second, it
cannot tell which of many records is bad, and version 26 of it crashes the process if the first record is `null`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from tailrace.spark.pyspark_api import arrow_type_of
from tailrace.spark.values.ddl import SchemaError, parse_schema
from tailrace.spark.values.decoded import Decoded
from tailrace.spark.values.json_leaves import Leaf, leaf_of, shown
from tailrace.spark.values.json_typed import OddJsonError, TypedDecoder, list_offsets, null_mask
from tailrace.spark.values.strings import decode_utf8

_NULL = type(None)


@dataclass(frozen=True)
class JsonFormat:
    schema: StructType

    @staticmethod
    def parse(schema: str) -> JsonFormat:
        """Raises SchemaError."""
        found = parse_schema(schema)
        _check_keys(found)
        return JsonFormat(found)

    @property
    def spark_type(self) -> DataType:
        return self.schema

    def decoder(self) -> JsonDecoder:
        return JsonDecoder(self.schema)


class JsonDecoder:
    def __init__(self, schema: StructType) -> None:
        self._schema = schema
        self._typed: TypedDecoder | None = None
        with suppress(OddJsonError):
            self._typed = TypedDecoder(schema)
        # Decimals cost more to parse than floats, and only a decimal column needs all their digits.
        has_decimal = "decimal" in schema.simpleString()
        self._parse = (json.JSONDecoder(parse_float=Decimal) if has_decimal else json.JSONDecoder()).decode

    def decode(self, column: pa.Array) -> Decoded:
        column, bad = decode_utf8(column)
        texts = column.to_pylist()
        if self._typed is not None:
            with suppress(OddJsonError):
                return Decoded(self._typed.decode(texts), bad)
        documents: list[Any] = []
        for row, text in enumerate(texts):
            try:
                documents.append(None if text is None else self._parse(text))
            except (ValueError, RecursionError) as error:
                documents.append(None)
                bad[row] = f"not JSON: {error}"
        found = _build(self._schema, _Column(documents, range(len(documents)), "", bad))
        return Decoded(_without(found, bad) if bad else found, bad)


def _without(structs: pa.Array, bad: Iterable[int]) -> pa.Array:
    """Nothing of a bad record is given, though all of its fields but one may have been right."""
    is_good = np.ones(len(structs), dtype=bool)
    is_good[list(bad)] = False
    return pc.if_else(pa.array(is_good), structs, pa.scalar(None, structs.type))


class _Column:
    """Values of one field at one level, each with the row of the batch that it is a part of. A value that turns out to
    be wrong is noted for its row, and read as null."""

    def __init__(self, values: list[Any], rows: Sequence[int], path: str, bad: dict[int, str]) -> None:
        self.values = values
        self.rows = rows
        self._path = path
        self._bad = bad

    def child(self, values: list[Any], rows: Sequence[int], name: str) -> _Column:
        return _Column(values, rows, f"{self._path}.{name}" if self._path else name, self._bad)

    def note(self, position: int, reason: str) -> None:
        where = f"field {self._path}: " if self._path else ""
        self._bad.setdefault(self.rows[position], f"{where}{reason}")

    def keep_only(self, kind: type, noun: str) -> None:
        """Containers of this kind and nulls; anything else is wrong here."""
        if set(map(type, self.values)) <= {kind, _NULL}:
            return
        for position, value in enumerate(self.values):
            if value is not None and type(value) is not kind:
                self.note(position, f"expected {noun}, found {shown(value)}")
        self.values = [value if type(value) is kind else None for value in self.values]


def _build(wanted: DataType, column: _Column) -> pa.Array:
    if isinstance(wanted, StructType):
        return _build_struct(wanted, column)
    if isinstance(wanted, ArrayType):
        return _build_list(wanted, column)
    if isinstance(wanted, MapType):
        return _build_map(wanted, column)
    return _build_leaf(leaf_of(wanted), column)


def _build_struct(wanted: StructType, column: _Column) -> pa.Array:
    column.keep_only(dict, "an object")
    objects = column.values
    arrow_type = arrow_type_of(wanted)
    children = []
    for field in wanted.fields:
        name = field.name
        values = [None if each is None else each.get(name) for each in objects]
        children.append(_build(field.dataType, column.child(values, column.rows, name)))
    return pa.StructArray.from_arrays(children, fields=list(arrow_type), mask=null_mask(objects))


def _build_list(wanted: ArrayType, column: _Column) -> pa.Array:
    column.keep_only(list, "an array")
    lists = column.values
    rows = _repeated(column.rows, lists)
    elements = _build(wanted.elementType, column.child(list(chain.from_iterable(filter(None, lists))), rows, "element"))
    arrow_type = arrow_type_of(wanted)
    return pa.ListArray.from_arrays(list_offsets(lists), elements, type=arrow_type, mask=null_mask(lists))


def _build_map(wanted: MapType, column: _Column) -> pa.Array:
    column.keep_only(dict, "an object")
    objects = column.values
    rows = _repeated(column.rows, objects)
    present = list(filter(None, objects))
    # Keys are strings in JSON; one that UTF-8 cannot hold is found like any other string of its kind.
    keys = _build(StringType(), column.child(list(chain.from_iterable(present)), rows, "key"))
    values = list(chain.from_iterable(each.values() for each in present))
    items = _build(wanted.valueType, column.child(values, rows, "value"))
    if keys.null_count:
        keys = keys.fill_null("")  # Its row is bad, and will be null as a whole.
    arrow_type = arrow_type_of(wanted)
    return pa.MapArray.from_arrays(list_offsets(objects), keys, items, type=arrow_type, mask=null_mask(objects))


def _build_leaf(leaf: Leaf, column: _Column) -> pa.Array:
    if set(map(type, column.values)) - {_NULL} <= leaf.kinds:
        try:
            return pa.array(column.values, leaf.arrow_type)
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass  # One of them does not fit: which one is seen below.
    converted: list[Any] = []
    for position, value in enumerate(column.values):
        try:
            converted.append(None if value is None else leaf.convert(value))
        except (ValueError, ArithmeticError):
            converted.append(None)
            column.note(position, f"expected {leaf.noun}, found {shown(value)}")
    return pa.array(converted, leaf.arrow_type)


def _repeated(rows: Sequence[int], containers: Sequence[Any]) -> Sequence[int]:
    """The row of each element of each container."""
    return [row for row, each in zip(rows, containers, strict=True) if each for _ in each]


def _check_keys(found: DataType) -> None:
    if isinstance(found, StructType):
        for field in found.fields:
            _check_keys(field.dataType)
    elif isinstance(found, ArrayType):
        _check_keys(found.elementType)
    elif isinstance(found, MapType):
        if not isinstance(found.keyType, StringType):
            raise SchemaError(f"keys of JSON are strings: MAP<STRING, ...>, not {found.simpleString().upper()}")
        _check_keys(found.valueType)

"""JSON read straight into the types of a schema by msgspec: what has nothing odd in it, which is nearly all there is.

No object is made of what the schema does not name, and none of a record's names: 1.1 us a record of six columns in
1 KB, where a parser that knows no schema and columns made of its dicts take 4.4. It says that something does not fit,
and not in which row or why: `json_values` then reads the same batch anew, and decides. What is taken here is taken
there, and becomes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from tailrace.spark.pyspark_api import arrow_type_of
from tailrace.spark.values.json_leaves import leaf_of

# What a leaf may raise if a value does not fit, Arrow's errors and those of depth included.
_ODD = (ValueError, ArithmeticError, UnicodeError, RecursionError, pa.ArrowInvalid)


class OddJsonError(Exception):
    """Something is not as the schema has it, or not JSON."""


class TypedDecoder:
    """Raises OddJsonError if there is no type for the schema."""

    def __init__(self, schema: StructType) -> None:
        self._kind = _kind_of(schema)
        self._decode = msgspec.json.Decoder(self._kind.type).decode

    def decode(self, texts: Sequence[str | None]) -> pa.Array:
        """Raises OddJsonError."""
        decode = self._decode
        try:
            return self._kind.column([None if text is None else decode(text) for text in texts])
        except _ODD as error:
            raise OddJsonError from error


class _Kind(NamedTuple):
    """What msgspec makes of one value, and Arrow of many of those."""

    type: Any
    column: Callable[[list[Any]], pa.Array]


def _kind_of(wanted: DataType) -> _Kind:
    if isinstance(wanted, StructType):
        return _struct(wanted)
    if isinstance(wanted, ArrayType):
        return _list(wanted)
    if isinstance(wanted, MapType):
        return _map(wanted)
    return _leaf(wanted)


def _struct(wanted: StructType) -> _Kind:
    if len(set(wanted.names)) < len(wanted.names):
        raise OddJsonError("two fields of one name")
    kinds = [_kind_of(field.dataType) for field in wanted.fields]
    # Names in JSON are any texts, and attributes are not.
    attributes = [f"f{index}" for index in range(len(kinds))]
    made = msgspec.defstruct(
        "Fields",
        [(attribute, kind.type, None) for attribute, kind in zip(attributes, kinds, strict=True)],
        rename=dict(zip(attributes, wanted.names, strict=True)),
        gc=False,
    )
    parts = [(attrgetter(attribute), kind.column) for attribute, kind in zip(attributes, kinds, strict=True)]
    fields = list(arrow_type_of(wanted))
    nothing = made()

    def column(objects: list[Any]) -> pa.Array:
        mask = null_mask(objects)
        if mask.true_count:
            objects = [nothing if each is None else each for each in objects]
        children = [make(list(map(get, objects))) for get, make in parts]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

    return _Kind(made | None, column)


def _list(wanted: ArrayType) -> _Kind:
    element = _kind_of(wanted.elementType)
    arrow_type = arrow_type_of(wanted)

    def column(lists: list[Any]) -> pa.Array:
        elements = element.column(list(chain.from_iterable(filter(None, lists))))
        return pa.ListArray.from_arrays(list_offsets(lists), elements, type=arrow_type, mask=null_mask(lists))

    return _Kind(list[element.type] | None, column)  # type: ignore[name-defined]


def _map(wanted: MapType) -> _Kind:
    value = _kind_of(wanted.valueType)
    arrow_type = arrow_type_of(wanted)

    def column(objects: list[Any]) -> pa.Array:
        present = list(filter(None, objects))
        keys = pa.array(list(chain.from_iterable(present)), pa.string())
        items = value.column(list(chain.from_iterable(each.values() for each in present)))
        return pa.MapArray.from_arrays(list_offsets(objects), keys, items, type=arrow_type, mask=null_mask(objects))

    return _Kind(dict[str, value.type] | None, column)  # type: ignore[name-defined]


def _leaf(wanted: DataType) -> _Kind:
    leaf = leaf_of(wanted)
    if len(leaf.kinds) == 1:
        (kind,) = leaf.kinds
        return _Kind(kind | None, lambda values: pa.array(values, leaf.arrow_type))
    convert = leaf.convert

    def column(values: list[Any]) -> pa.Array:
        return pa.array([None if value is None else convert(value) for value in values], leaf.arrow_type)

    return _Kind(leaf.parsed | None, column)


def list_offsets(containers: Sequence[Any]) -> pa.Array:
    return pa.array(accumulate((len(each) if each else 0 for each in containers), initial=0), pa.int32())


def null_mask(containers: Sequence[Any]) -> pa.Array:
    return pa.array([each is None for each in containers], pa.bool_())

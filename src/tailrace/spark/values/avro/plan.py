"""A program of steps that reads what one schema wrote into the columns of another, made once for the two.

It follows Avro's resolution: fields by name or alias, defaults, promotions, branches of unions, symbols. `aligned` says
first which logical type counts, for the reader of single rows too: that of the reader, but decimals and the units of
times are as they were written. Some schemas have no program, and are read one row after the other: those with a field
that contains itself, which the reader passes over, and decimals whose digits move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tailrace.schemas.avro.text import canonical
from tailrace.schemas.avro.types import NO_DEFAULT, Field, Type
from tailrace.spark.values.avro import leaves, nests
from tailrace.spark.values.avro.leaves import Step

_TIMES = ("timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros")
_MILLIS = "millis"
_DECIMAL = "decimal"
_RECORDS = ("record", "error")

# The value of a field that a writer's record lacks, given the reader's record of that field alone, as JSON.
Default = Callable[[str, str], Any]


class NoProgramError(Exception):
    """Rows of this schema are read one after the other."""


# --- which logical type counts


def aligned(writer: Type, reader: Type) -> Type:
    """The writer's type with the logical types that hold when the reader's reads it."""
    if writer.kind == "union":
        return replace(writer, branches=tuple(aligned(each, reader) for each in writer.branches))
    target = chosen(reader, writer)
    if target is None:
        return writer
    if writer.kind in ("array", "map") and target.kind == writer.kind:
        return replace(writer, items=aligned(writer.held(), target.held()))
    if writer.kind in _RECORDS and target.kind in _RECORDS:
        return replace(writer, fields=tuple(_aligned_field(each, target) for each in writer.fields))
    return _aligned_leaf(writer, target)


def _aligned_field(field: Field, reader: Type) -> Field:
    wanted = next((each for each in reader.fields if field.name in (each.name, *each.aliases)), None)
    return field if wanted is None else replace(field, type=aligned(field.type, wanted.type))


def _aligned_leaf(writer: Type, reader: Type) -> Type:
    properties = {
        name: value for name, value in reader.properties.items() if name in ("logicalType", "precision", "scale")
    }
    mine, theirs = writer.properties.get("logicalType"), properties.get("logicalType")
    if mine == theirs == _DECIMAL:
        return writer
    if mine in _TIMES and theirs in _TIMES:
        properties["logicalType"] = f"{theirs.rpartition('-')[0]}-{mine.rpartition('-')[2]}"
    # int and long are written alike, and times are long.
    kind = "long" if (writer.kind, reader.kind) == ("int", "long") else writer.kind
    return replace(writer, kind=kind, properties=properties)


def chosen(reader: Type, writer: Type) -> Type | None:
    """The reader's type, or the branch of it, that reads this type of the writer's; None for null alone. A union of the
    reader's has one branch beside null, or two kinds of numbers: else Spark would have no type for it."""
    if reader.kind != "union":
        return None if writer.kind == "null" else reader
    if writer.kind == "null":
        return None
    branches = [each for each in reader.branches if each.kind != "null"]
    return next((each for each in branches if each.kind == writer.kind), branches[0])


# --- steps


def program(writer: Type, reader: Type, found: pa.DataType, default: Default) -> Step:
    """`writer` is aligned with the reader, and the reader can read it. Raises NoProgramError."""
    return _Program(default).into(writer, reader, found)


class _Program:
    def __init__(self, default: Default) -> None:
        self._default = default

    def into(self, writer: Type, reader: Type, found: pa.DataType) -> Step:
        if writer.kind == "union":
            branches = [None if each.kind == "null" else self.into(each, reader, found) for each in writer.branches]
            return nests.union(found, branches)
        target = chosen(reader, writer)
        if target is None:
            return leaves.nothing(found)
        match writer.kind:
            case "array":
                return nests.array(found, self.into(writer.held(), target.held(), found.value_type))
            case "map":
                return nests.mapping(found, self.into(writer.held(), target.held(), found.item_type))
            case "enum":
                return leaves.symbols([_symbol(each, target) for each in writer.symbols])
            case "record" | "error":
                return self._record(writer, target, found)
        return _leaf(writer, found)

    def _record(self, writer: Type, reader: Type, found: pa.DataType) -> Step:
        place_of, children, absent = {}, [], []
        for place, wanted in enumerate(reader.fields):
            names = (wanted.name, *wanted.aliases)
            field = next((each for name in names for each in writer.fields if each.name == name), None)
            if field is not None:
                place_of[field.name] = place
            else:
                value = pa.array([self._default_of(reader, wanted)], found.field(place).type)
                absent.append(nests.Child(leaves.constant(value), place))
        for field in writer.fields:
            at = place_of.get(field.name)
            if at is None:
                step = self.past(field.type, ())
            else:
                step = self.into(field.type, reader.fields[at].type, found.field(at).type)
            children.append(nests.Child(step, at))
        return nests.record(found, children, absent)

    def _default_of(self, reader: Type, field: Field) -> Any:
        if field.default is NO_DEFAULT:
            raise NoProgramError
        return self._default(canonical(replace(reader, fields=(field,)), ()), field.name)

    def past(self, writer: Type, within: tuple[str, ...]) -> Step:
        """What the reader does not want: nothing is built of it."""
        if writer.name and writer.name in within:
            raise NoProgramError
        inside = (*within, writer.name) if writer.name else within
        match writer.kind:
            case "union":
                branches = [None if each.kind == "null" else self.past(each, inside) for each in writer.branches]
                return nests.union(pa.null(), branches)
            case "array":
                return nests.array(pa.list_(pa.null()), self.past(writer.held(), inside))
            case "map":
                return nests.mapping(pa.map_(pa.string(), pa.null()), self.past(writer.held(), inside))
            case "enum":
                return leaves.symbols(writer.symbols)
            case "record" | "error":
                children = [nests.Child(self.past(each.type, inside), None) for each in writer.fields]
                return nests.record(pa.struct([]), children, ())
            case "null":
                return leaves.nothing(pa.null())
        return _leaf(replace(writer, properties={}), _PASSED_OVER.get(writer.kind, pa.binary()))


_PASSED_OVER = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}


def _leaf(writer: Type, found: pa.DataType) -> Step:
    match writer.kind:
        case "boolean":
            return leaves.booleans
        case "int" | "long":
            unit = str(writer.properties.get("logicalType")).rpartition("-")[2]
            return leaves.ints(found, times=1000 if unit == _MILLIS else 1)
        case "float":
            return leaves.floats("<f4", found)
        case "double":
            return leaves.floats("<f8", found)
    if pa.types.is_decimal(found) and writer.properties.get("scale", 0) != found.scale:
        raise NoProgramError
    return leaves.blobs(found, writer.size if writer.kind == "fixed" else None)


def _symbol(name: str, reader: Type) -> str | None:
    return name if name in reader.symbols else reader.default

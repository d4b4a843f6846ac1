"""Rows whose columns are not those of their table: which schema takes both, and rows made to fit it.

A table only ever gains: columns (of structs, too), and, where its format can, wider types. What a pipeline no longer
gives becomes null, and what it gives in a narrower type is cast. Everything else is refused, with both schemas side by
side. Types are Spark's, the one form that every format's schema has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from tailrace.spark.pipelines.landing.batches import DELETED, LandingError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Each holds every value of those before it.
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_FLOATING = (FloatType, DoubleType)


def evolved(table: str, there: StructType, given: StructType, *, can_widen: bool = False) -> StructType:
    """The table's columns in their order, and behind them those that are new. Raises LandingError."""
    obstacles: list[str] = []
    merged = _merged_struct("", there, given, can_widen, obstacles)
    if not obstacles:
        return merged
    raise LandingError(
        f"the table {table} cannot be made to take the rows: {'; '.join(obstacles)}. "
        f"The table has the columns {_listed(there)}; the pipeline gives {_listed(given)}: let its transform cast or "
        "rename what is in the way"
    )


def conformed(rows: DataFrame, schema: StructType) -> DataFrame:
    """The same rows with exactly these columns, and `DELETED` if they have it."""
    from pyspark.sql import functions as sf

    columns = {field.name: field.dataType for field in rows.schema.fields}
    return rows.select(
        *(
            (
                _conformed(sf.col(f"`{field.name}`"), columns[field.name], field.dataType)
                if field.name in columns
                else sf.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in schema.fields
        ),
        *(name for name in columns if name == DELETED),
    )


def _merged_struct(
    place: str, there: StructType, given: StructType, can_widen: bool, obstacles: list[str]
) -> StructType:
    known = {field.name: field for field in there.fields}
    new = {field.name: field for field in given.fields}
    fields = []
    for name, field in known.items():
        kind = field.dataType
        if name in new:
            kind = _merged(place + name, kind, new[name].dataType, can_widen, obstacles)
        elif not field.nullable:
            obstacles.append(f"{place}{name} must not be null, and the pipeline does not give it")
        fields.append(StructField(name, kind, field.nullable))
    lower = {name.lower(): name for name in known}
    for name, field in new.items():
        if name in known:
            continue
        if name.lower() in lower:
            obstacles.append(f"{place}{name} differs from {lower[name.lower()]} in its capitals alone")
        fields.append(StructField(name, field.dataType, nullable=True))
    return StructType(fields)


def _merged(place: str, there: Any, given: Any, can_widen: bool, obstacles: list[str]) -> DataType:
    if isinstance(there, StructType) and isinstance(given, StructType):
        return _merged_struct(f"{place}.", there, given, can_widen, obstacles)
    if isinstance(there, ArrayType) and isinstance(given, ArrayType):
        element = _merged(f"{place}.element", there.elementType, given.elementType, can_widen, obstacles)
        return ArrayType(element, there.containsNull)
    if isinstance(there, MapType) and isinstance(given, MapType):
        key = _merged(f"{place}.key", there.keyType, given.keyType, False, obstacles)
        value = _merged(f"{place}.value", there.valueType, given.valueType, can_widen, obstacles)
        return MapType(key, value, there.valueContainsNull)
    if there == given or _is_wider(there, given):
        return there  # type: ignore[no-any-return]
    if can_widen and _is_wider(given, there):
        return given  # type: ignore[no-any-return]
    is_format = _is_wider(given, there)
    obstacles.append(
        f"{place} is {_name(there)} there and {_name(given)} here"
        + (", and tables of this format cannot widen a type" if is_format else "")
    )
    return there  # type: ignore[no-any-return]


def _is_wider(wide: DataType, narrow: DataType) -> bool:
    if isinstance(wide, DecimalType) and isinstance(narrow, DecimalType):
        return wide.scale == narrow.scale and wide.precision > narrow.precision
    for kinds in (_WHOLE, _FLOATING):
        if type(wide) in kinds and type(narrow) in kinds:
            return kinds.index(type(wide)) > kinds.index(type(narrow))
    return False


def _conformed(column: Column, given: DataType, wanted: DataType) -> Column:
    from pyspark.sql import functions as sf

    if isinstance(given, StructType) and isinstance(wanted, StructType):
        kinds = {field.name: field.dataType for field in given.fields}
        fields = [
            (
                _conformed(column.getField(field.name), kinds[field.name], field.dataType)
                if field.name in kinds
                else sf.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in wanted.fields
        ]
        return sf.when(column.isNotNull(), sf.struct(*fields))
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        inner = (given.elementType, wanted.elementType)
        return sf.transform(column, lambda item: _conformed(item, *inner))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        values = (given.valueType, wanted.valueType)
        column = sf.transform_values(column, lambda _, value: _conformed(value, *values))
        return column if given.keyType == wanted.keyType else column.cast(wanted)
    return column if given == wanted else column.cast(wanted)


def _listed(schema: StructType) -> str:
    return ", ".join(f"{field.name} {_name(field.dataType)}" for field in schema.fields)


def _name(kind: DataType) -> str:
    return kind.simpleString().upper()

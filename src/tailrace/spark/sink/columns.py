"""What a DataFrame must have to be written: columns `value`, `key`, `headers`, `topic` and `partition`, by these names.

As in Spark's own Kafka sink `value` is the only one that is required, `topic` too unless there is an option of that
name, which wins; other columns are left out. Types are checked when the query is planned, before anything is written.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

if TYPE_CHECKING:
    from tailrace.spark.options.write import WriteOptions

SINK_COLUMNS = ("key", "value", "headers", "topic", "partition")


class SinkSchemaError(ValueError):
    """The DataFrame cannot be written as records: the message says which column is wrong, and how to correct it."""


def plan_columns(schema: StructType, options: WriteOptions) -> WriteOptions:
    """The options, with how columns are made into bytes if a schema registry has a say. Raises SinkSchemaError, and
    OptionError if a schema cannot be registered."""
    formatted = {each.column: each for each in options.wanted}
    check_columns(schema, topic=options.topic, formatted=formatted)
    if not formatted:
        return options
    from tailrace.spark.values.registry.writing import plan_encoder

    types = {field.name: field.dataType for field in schema.fields}
    encoders = tuple(plan_encoder(each, types[name]) for name, each in formatted.items() if name in types)
    return replace(options, encoders=encoders)


def check_columns(schema: StructType, *, topic: str | None, formatted: Container[str] = ()) -> tuple[str, ...]:
    """The columns that are used; those `formatted` may have any type. Raises SinkSchemaError."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise SinkSchemaError(
            f"required column value not found: the DataFrame has {_listed(schema)}. Select what is to be written as "
            'value, for example to_json(struct("*")).alias("value")'
        )
    if topic is None and "topic" not in types:
        raise SinkSchemaError(
            "no topic to write to: the option topic is not set, and there is no column topic: the DataFrame has "
            f'{_listed(schema)}. Set the option: .option("topic", "...")'
        )
    ignored = {"topic"} if topic is not None else set()
    used = tuple(name for name in SINK_COLUMNS if name in types and name not in ignored)
    for name in used:
        if name not in formatted:
            _check_type(name, types[name])
    return used


def _check_type(name: str, found: DataType) -> None:
    is_right, wanted, remedy = {
        "key": (_is_text_or_bytes(found), "a string or binary", "cast it: col('key').cast('string')"),
        "value": (_is_text_or_bytes(found), "a string or binary", "cast it, or write a struct by to_json(...)"),
        "headers": (_is_headers(found), "array<struct<key:string,value:binary>>", "build it so, or drop it"),
        "topic": (isinstance(found, StringType), "a string", "cast it: col('topic').cast('string')"),
        "partition": (isinstance(found, IntegerType), "an integer (int)", "cast it: col('partition').cast('int')"),
    }[name]
    if not is_right:
        raise SinkSchemaError(f"column {name} must be {wanted}, and is {found.simpleString()}: {remedy}")


def _is_text_or_bytes(found: DataType) -> bool:
    return isinstance(found, (StringType, BinaryType))


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _listed(schema: StructType) -> str:
    return f"the columns {', '.join(schema.fieldNames())}" if schema.fields else "no columns"

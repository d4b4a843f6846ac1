"""What can be written is decided by the schema, before anything is."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tailrace.spark.sink.columns import SinkSchemaError, check_columns

TEXT, BYTES, INT, LONG = StringType(), BinaryType(), IntegerType(), LongType()


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, of_type) for name, of_type in columns.items()])


HEADERS = ArrayType(struct(key=TEXT, value=BYTES))


@pytest.mark.parametrize(
    ("schema", "topic", "used"),
    [
        (struct(value=TEXT), "orders", ("value",)),
        (struct(value=BYTES, topic=TEXT), None, ("value", "topic")),
        # The option wins over the column, whatever type that has.
        (struct(value=TEXT, topic=INT), "orders", ("value",)),
        (
            struct(offset=LONG, partition=INT, headers=HEADERS, topic=TEXT, value=BYTES, key=TEXT),
            None,
            ("key", "value", "headers", "topic", "partition"),
        ),
    ],
)
def test_the_columns_that_are_used(schema: StructType, topic: str | None, used: tuple[str, ...]) -> None:
    assert check_columns(schema, topic=topic) == used


@pytest.mark.parametrize(
    ("schema", "topic", "problem"),
    [
        (struct(key=TEXT), "orders", "required column value not found: the DataFrame has the columns key"),
        (struct(value=TEXT), None, "no topic to write to: the option topic is not set"),
        (struct(value=INT), "orders", "column value must be a string or binary, and is int"),
        (
            struct(value=TEXT, key=struct(a=INT)),
            "orders",
            "column key must be a string or binary, and is struct<a:int>",
        ),
        (struct(value=TEXT, topic=BYTES), None, "column topic must be a string, and is binary"),
        (struct(value=TEXT, partition=LONG), "orders", "column partition must be an integer .int., and is bigint"),
        (struct(value=TEXT, headers=MapType(TEXT, BYTES)), "orders", "column headers must be array<struct<key:string"),
        (struct(value=TEXT, headers=ArrayType(struct(k=TEXT, value=BYTES))), "orders", "column headers must be"),
        (struct(value=TEXT, headers=ArrayType(struct(key=TEXT, value=TEXT))), "orders", "column headers must be"),
    ],
)
def test_what_cannot_be_written(schema: StructType, topic: str | None, problem: str) -> None:
    with pytest.raises(SinkSchemaError, match=problem):
        check_columns(schema, topic=topic)

"""Which schema takes a table's rows and those that come: pure, by Spark's types."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from tailrace.spark.pipelines.landing.batches import LandingError
from tailrace.spark.pipelines.landing.evolution import evolved


def schema(nullable=True, **columns):
    return StructType([StructField(name, kind, nullable) for name, kind in columns.items()])


INT, LONG, TEXT = IntegerType(), LongType(), StringType()


@pytest.mark.parametrize(
    ("there", "given", "wanted"),
    [
        (schema(a=INT, b=TEXT), schema(c=LONG, a=INT), schema(a=INT, b=TEXT, c=LONG)),
        (schema(a=LONG), schema(a=INT), schema(a=LONG)),
        (schema(s=schema(a=INT)), schema(s=schema(b=INT)), schema(s=schema(a=INT, b=INT))),
        (
            schema(s=ArrayType(MapType(TEXT, schema(a=LONG)))),
            schema(s=ArrayType(MapType(TEXT, schema(a=INT, b=TEXT)))),
            schema(s=ArrayType(MapType(TEXT, schema(a=LONG, b=TEXT)))),
        ),
    ],
)
def test_a_schema_only_gains(there, given, wanted):
    assert evolved("t", there, given) == wanted
    assert evolved("t", wanted, given) == wanted


def test_types_are_widened_if_the_format_can():
    there, given = schema(a=INT, d=DecimalType(5, 2)), schema(a=LONG, d=DecimalType(9, 2))
    assert evolved("t", there, given, can_widen=True) == given
    assert evolved("t", given, there, can_widen=True) == given
    with pytest.raises(LandingError, match="a is INT there and BIGINT here, and tables of this format cannot widen"):
        evolved("t", there, given)


@pytest.mark.parametrize(
    ("there", "given", "message"),
    [
        (schema(a=INT), schema(a=TEXT), "a is INT there and STRING here"),
        (schema(a=INT), schema(A=INT), "A differs from a in its capitals alone"),
        (schema(a=DecimalType(5, 2)), schema(a=DecimalType(9, 3)), r"a is DECIMAL\(5,2\) there and DECIMAL\(9,3\)"),
        (schema(s=ArrayType(schema(x=INT))), schema(s=ArrayType(schema(x=DoubleType()))), r"s.element.x is INT there"),
        (schema(m=MapType(INT, INT)), schema(m=MapType(LONG, INT)), "m.key is INT there and BIGINT here"),
        (schema(a=INT, nullable=False), schema(b=INT), "a must not be null, and the pipeline does not give it"),
    ],
)
def test_what_cannot_be_is_told_with_both_schemas(there, given, message):
    with pytest.raises(LandingError, match=f"{message}.*The table has the columns .*; the pipeline gives"):
        evolved("t", there, given, can_widen=True)

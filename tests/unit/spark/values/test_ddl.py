"""Schemas as text."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from tailrace.spark.values.ddl import SchemaError, parse_schema


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id BIGINT", "struct<id:bigint>"),
        ("a TINYINT, b byte, c SmallInt, d short", "struct<a:tinyint,b:tinyint,c:smallint,d:smallint>"),
        ("a int, b integer, c long, d float, e real", "struct<a:int,b:int,c:bigint,d:float,e:float>"),
        ("a double, b string, c binary, d boolean", "struct<a:double,b:string,c:binary,d:boolean>"),
        ("a date, b timestamp, c timestamp_ntz", "struct<a:date,b:timestamp,c:timestamp_ntz>"),
        ("a decimal, b DEC(5), c numeric( 38 , 18 )", "struct<a:decimal(10,0),b:decimal(5,0),c:decimal(38,18)>"),
        ("STRUCT<a: INT, b STRING>", "struct<a:int,b:string>"),
        ("struct STRING, map INT", "struct<struct:string,map:int>"),
        ("`a b` INT, `c``d`: INT", "struct<a b:int,c`d:int>"),
        ("größe INT", "struct<größe:int>"),
        ("a INT NOT NULL COMMENT 'it\\'s, fine', b INT COMMENT \"x\"", "struct<a:int,b:int>"),
        (
            "a ARRAY<STRUCT<b: MAP<STRING, ARRAY<INT>>>>,\n c INT",
            "struct<a:array<struct<b:map<string,array<int>>>>,c:int>",
        ),
    ],
)
def test_ddl(text: str, expected: str) -> None:
    found = parse_schema(text)
    assert found.simpleString() == expected
    assert all(field.nullable for field in found.fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the name of a field is expected, not its end"),
        ("id", "a type is expected, not its end"),
        ("id BIGNT", "not 'BIGNT' at column 4; did you mean BIGINT?"),
        ("id INT,", "the name of a field is expected, not its end"),
        ("id INT name STRING", "a comma or the end is expected, not 'name' at column 8"),
        ("id ARRAY<INT", "'>' is expected, not its end"),
        ("id ARRAY INT", "'<' is expected, not 'INT' at column 10"),
        ("id MAP<INT>", "',' is expected, not '>' at column 11"),
        ("id INT>", "not '>' at column 7"),
        ("id INT; drop", "';' at column 7 has no meaning"),
        ("a-b INT", "'-' at column 2 has no meaning"),
        ("a INT, a STRING", "field 'a' is there twice"),
        ("a DECIMAL(39)", "a precision of 1 to 38"),
        ("a DECIMAL(2, 3)", "a scale not above it"),
        ("a DECIMAL(x)", "needs numbers"),
        ("a INT COMMENT b", "COMMENT of field 'a'"),
        ("a VARIANT", "types are BOOLEAN"),
        ("a " + "ARRAY<" * 65 + "INT" + ">" * 65, "nested more than 64 deep"),
        ('{"type": "struct"}', "not that of a Spark schema"),
        ('{"type": "struct", "fields": [', "starts like Spark's JSON, and is none"),
        (StructType([StructField("a", VariantType())]).json(), "type variant cannot be read"),
    ],
)
def test_errors_say_where(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert message in str(caught.value)


def test_the_json_of_spark_is_read_and_everything_may_be_null() -> None:
    inner = StructType([StructField("x", DecimalType(5, 2), nullable=False)])
    declared = StructType(
        [
            StructField("a", ArrayType(inner, containsNull=False), nullable=False),
            StructField("m", MapType(StringType(), IntegerType(), valueContainsNull=False)),
            StructField("l", LongType(), metadata={"note": "is dropped"}),
        ]
    )
    assert parse_schema(declared.json()) == StructType(
        [
            StructField("a", ArrayType(StructType([StructField("x", DecimalType(5, 2))]))),
            StructField("m", MapType(StringType(), IntegerType())),
            StructField("l", LongType()),
        ]
    )

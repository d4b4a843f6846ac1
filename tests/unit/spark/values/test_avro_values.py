"""Avro data to columns: every type, schemas that Spark has no type for, and bytes of something else."""

import io
import json
import pickle
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from tailrace.spark.values.avro_values import AvroFormat
from tailrace.spark.values.ddl import SchemaError

MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=UTC)


def write(schema: object, datum: object) -> bytes:
    written = io.BytesIO()
    schemaless_writer(written, parse_schema(schema), datum)
    return written.getvalue()


def decode(schema: object, *values: bytes | None, prefix: bool = False) -> tuple[list, dict[int, str]]:
    wanted = AvroFormat.parse(json.dumps(schema), has_confluent_prefix=prefix)
    column, bad = pickle.loads(pickle.dumps(wanted)).decoder().decode(pa.array(values, pa.binary()))
    column.validate(full=True)
    return column.to_pylist(), bad


def logical(kind: str, name: str, /, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


@pytest.mark.parametrize(
    ("schema", "kind", "datum", "expected"),
    [
        ("boolean", "boolean", True, True),
        ("int", "int", -5, -5),
        ("long", "bigint", 2**62, 2**62),
        ("float", "float", 0.5, 0.5),
        ("double", "double", 0.1, 0.1),
        ("string", "string", "é", "é"),
        ("bytes", "binary", b"\0\xff", b"\0\xff"),
        ({"type": "fixed", "name": "f", "size": 2}, "binary", b"ab", b"ab"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "string", "B", "B"),
        ({"type": "array", "items": "int"}, "array<int>", [1, 2], [1, 2]),
        ({"type": "map", "values": ["null", "int"]}, "map<string,int>", {"a": None}, [("a", None)]),
        (["null", "string"], "string", None, None),
        (["int", "null", "long"], "bigint", 2**40, 2**40),
        (["float", "double"], "double", 0.5, 0.5),
        (logical("int", "date"), "date", date(2026, 1, 31), date(2026, 1, 31)),
        (logical("long", "timestamp-millis"), "timestamp", MOMENT, MOMENT),
        (logical("long", "timestamp-micros"), "timestamp", MOMENT, MOMENT),
        (logical("long", "local-timestamp-micros"), "timestamp_ntz", *2 * [MOMENT.replace(tzinfo=None)]),
        (logical("bytes", "decimal", precision=5, scale=2), "decimal(5,2)", *2 * [Decimal("-1.25")]),
        (logical("fixed", "decimal", precision=5, name="f", size=3), "decimal(5,0)", *2 * [Decimal(12345)]),
        (logical("string", "uuid"), "string", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (logical("int", "made-up"), "int", 7, 7),
    ],
)  # fmt: skip
def test_types(schema: object, kind: str, datum: object, expected: object) -> None:
    record = {"type": "record", "name": "r", "namespace": "n", "fields": [{"name": "f", "type": schema}]}
    wanted = AvroFormat.parse(json.dumps(record), has_confluent_prefix=False)
    assert wanted.spark_type.simpleString() == f"struct<f:{kind}>"
    assert decode(record, write(record, {"f": datum}), None) == ([{"f": expected}, None], {})
    assert decode(schema, write(schema, datum))[0] == [expected]


def test_times_of_a_day_are_numbers() -> None:
    assert decode(logical("int", "time-millis"), write("int", 7)) == ([7], {})


def test_a_type_is_defined_once_and_named_again() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    schema = {
        "type": "record",
        "name": "Outer",
        "namespace": "org.example",
        "fields": [{"name": "a", "type": inner}, {"name": "b", "type": ["null", "Inner"]}],
    }
    datum = {"a": {"x": 1}, "b": {"x": 2}}
    assert decode(schema, write(schema, datum)) == ([datum], {})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "an Avro schema is JSON, and this is none"),
        ('"strin"', "not an Avro schema"),
        ("5", "not an Avro schema"),
        ('{"type": "fixed", "name": "f"}', "not an Avro schema"),
        ('["int", "string"]', "a union of 2 types"),
        ('["null"]', "a union of 0 types"),
        ('"null"', "without any bytes"),
        ('{"type": "array", "items": "null"}', "the items of its top is null"),
        ('{"type": "record", "name": "r", "fields": []}', "a record without fields"),
        ('{"type": "fixed", "name": "f", "size": 0}', "without any bytes"),
        ('{"type": "record", "name": "r", "fields": [{"name": "f", "type": ["null", "r"]}]}', "r within itself"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 40}', "a decimal of 40 digits"),
    ],
)  # fmt: skip
def test_schemas_that_cannot_be(schema: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        AvroFormat.parse(schema, has_confluent_prefix=False)
    assert message in str(caught.value)


RECORD = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "price", "type": logical("bytes", "decimal", precision=5, scale=2)},
        {"name": "at", "type": logical("long", "timestamp-micros")},
        {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
DATUM = {"id": 1, "name": "é", "price": Decimal("1.25"), "at": MOMENT, "kind": "B", "tags": ["x"]}


def test_bytes_of_something_else() -> None:
    good = write(RECORD, DATUM)
    wide = {**RECORD, "fields": [field | {} for field in RECORD["fields"]]}
    wide["fields"][0] = {"name": "id", "type": "long"}
    wide["fields"][2] = {"name": "price", "type": logical("bytes", "decimal", precision=30, scale=2)}
    big_number = write(wide, DATUM | {"id": 2**40})
    big_price = write(wide, DATUM | {"price": Decimal("12345678.25")})
    rows, bad = decode(RECORD, good, b"", good[:-1], good + b"!", big_number, big_price, good)
    assert rows == [DATUM, None, None, None, None, None, DATUM]
    assert bad.keys() == {1, 2, 3, 4, 5}
    assert bad[2] == "not of this Avro schema: it ends too early"
    assert bad[3] == "not of this Avro schema: 1 bytes are left over"


def test_confluents_prefix() -> None:
    good = write("string", "x")
    rows, bad = decode("string", b"\0\0\0\0\x07" + good, good, b"\x01\0\0\0\x07" + good, b"\0\0", prefix=True)
    assert rows == ["x", None, None, None]
    assert all("does not begin with Confluent's prefix" in reason for reason in bad.values())
    assert bad.keys() == {1, 2, 3}


def test_no_bytes_whatever_make_it_raise() -> None:
    random.seed(6)
    good = write(RECORD, DATUM)
    values = []
    for _ in range(5000):
        value = bytearray(good)
        for _ in range(random.randrange(1, 4)):
            value[random.randrange(len(value))] = random.randrange(256)
        values.append(bytes(value[: random.randrange(len(value) - 3, len(value) + 1)]))
    rows, bad = decode(RECORD, *values, *(random.randbytes(random.randrange(20)) for _ in range(2000)))
    assert len(rows) == 7000
    assert len(bad) > 4000
    assert all(rows[row] is None for row in bad)

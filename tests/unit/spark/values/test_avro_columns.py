"""Avro columns by programs: several schemas in one column, and what a program leaves to the reader of single rows."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer
from pyspark.sql.pandas.types import to_arrow_type

from tailrace.real.registry.client import RegistryAddress
from tailrace.schemas import parse
from tailrace.schemas.framing import write_prefix
from tailrace.spark.values.avro.columns import Values, decode_together
from tailrace.spark.values.avro.reading import plan_reading
from tailrace.spark.values.avro_values import AvroFormat
from tailrace.spark.values.registry.reading import RegistryAvroFormat
from tests.registry_stand_in import stand_in


def record(*fields: tuple, name: str = "R") -> dict:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), each, strict=False)) for each in fields],
    }


def logical(kind: str, name: str, **more: object) -> dict:
    return {"type": kind, "logicalType": name, **more}


def write(schema: object, datum: object) -> bytes:
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), datum)
    return stream.getvalue()


def read_by_registry(registry, reader: dict, values: list) -> tuple[list, dict[int, str]]:
    text = parse("AVRO", json.dumps(reader), {}).formatted("resolved")
    wanted = RegistryAvroFormat(RegistryAddress(registry.url), AvroFormat.parse(text, has_confluent_prefix=False))
    column, bad = wanted.decoder().decode(pa.array(values, pa.binary()))
    column.validate(full=True)
    return column.to_pylist(), bad


def test_each_row_is_read_by_its_own_schema() -> None:
    first, second = record(("id", "int"), ("gone", "string")), record(("note", ["null", "string"]), ("id", "long"))
    reader = record(("id", "long"), ("note", ["null", "string"], None))
    with stand_in() as registry:
        one, two, text = (
            write_prefix(registry.register("s", json.dumps(each))) for each in (first, second, record(("id", "string")))
        )
        values = [
            one + write(first, {"id": 1, "gone": "x"}),
            two + write(second, {"id": 2**40, "note": "n"}),
            None,
            write_prefix(99) + b"?",
            b"\x01nothing",
            one + write(first, {"id": 3, "gone": ""}),
            write_prefix(99) + b"again",
            two + b"\x07",
            text + b"\x00",
            two + write(second, {"id": 4, "note": None}),
        ]
        rows, bad = read_by_registry(registry, reader, values)
        asked = [each for each in registry.asked if each.endswith("/99")]
    assert rows == [
        {"id": 1, "note": None},
        {"id": 2**40, "note": "n"},
        *[None] * 3,
        {"id": 3, "note": None},
        *[None] * 3,
        {"id": 4, "note": None},
    ]
    assert bad.keys() == {3, 4, 6, 7, 8}
    assert "Schema 99 not found" in bad[3]
    assert bad[3] == bad[6]
    assert "TYPE_MISMATCH" in bad[8]
    assert len(asked) == 1


READ = [
    # written, read, given, expected
    (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), 5, datetime(1970, 1, 1, 0, 0, 0, 5000)),
    ("long", logical("long", "timestamp-millis"), 5, datetime(1970, 1, 1, 0, 0, 0, 5000)),
    ("int", logical("long", "timestamp-millis"), 5, datetime(1970, 1, 1, 0, 0, 0, 5000)),
    (logical("long", "timestamp-millis"), "long", 5, 5),
    ("int", logical("int", "date"), 5, date(1970, 1, 6)),
    (logical("int", "time-millis"), "int", 5, 5),
    (logical("int", "date"), "double", 5, 5.0),
    ("long", "float", 2**24 + 1, 2.0**24),
    ("string", "bytes", "é", "é".encode()),
    ("bytes", logical("bytes", "decimal", precision=4, scale=2), b"\xff", Decimal("-0.01")),
    (logical("bytes", "decimal", precision=4, scale=1), logical("bytes", "decimal", precision=9, scale=3), b"\x0f",
     Decimal("1.500")),
]  # fmt: skip


@pytest.mark.parametrize(("written", "read", "given", "expected"), READ)
@pytest.mark.parametrize("is_odd", [False, True])
def test_which_logical_type_counts(written, read, given, expected, *, is_odd: bool) -> None:
    """Also for rows that are read one after the other: those with a key twice."""
    pairs = {"type": "map", "values": "int"}
    writer, reader = record(("m", pairs), ("v", written)), record(("v", read), ("m", pairs))
    plain = record(("m", pairs), ("v", written["type"] if isinstance(written, dict) else written))
    value = write(plain, {"m": {"k": 1}, "v": given})
    if is_odd:
        value = b"\x04\x02k\x02\x02k\x04\x00" + value[value.index(b"\x00") + 1 :]
    with stand_in() as registry:
        value = write_prefix(registry.register("s", json.dumps(writer))) + value
        rows, bad = read_by_registry(registry, reader, [value])
    assert not bad
    if isinstance(expected, datetime):
        expected = expected.replace(tzinfo=UTC)
    assert rows == [{"v": expected, "m": [("k", 2 if is_odd else 1)]}]


def test_defaults_are_what_their_types_say() -> None:
    reader = record(
        ("at", logical("long", "timestamp-millis"), 5),
        ("raw", "bytes", "\u00ff"),
        ("price", logical("bytes", "decimal", precision=4, scale=2), "\u0001"),
        ("day", logical("int", "date"), 1),
        ("inner", record(("x", "bytes"), name="I"), {"x": "\u00fe"}),
        ("a", "int"),
    )
    expected = {
        "at": datetime(1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC),
        "raw": b"\xff",
        "price": Decimal("0.01"),
        "day": date(1970, 1, 2),
        "inner": {"x": b"\xfe"},
    }
    with stand_in() as registry:
        prefix = write_prefix(registry.register("s", json.dumps(record(("a", "long"), ("b", "boolean")))))
        # The second has a boolean that is neither 0 nor 1: a program does not read it.
        reader["fields"][-1]["type"] = "long"
        rows, bad = read_by_registry(registry, reader, [prefix + b"\x02\x01", prefix + b"\x04\x02"])
    assert rows == [{**expected, "a": 1}, {**expected, "a": 2}]
    assert not bad


def left_over(schema: dict, values: list) -> tuple[list, int]:
    """The rows, and how many were read singly."""
    wanted = AvroFormat.parse(json.dumps(schema), has_confluent_prefix=False)
    found = to_arrow_type(wanted.spark_type, timezone="UTC")
    parsed = parse("AVRO", json.dumps(schema), {})
    program = plan_reading(parsed, parsed, found).program
    assert program is not None
    single, rows = wanted.decoder(), 0

    def count(column: pa.Array):
        nonlocal rows
        rows += len(column)
        return single.decode(column)

    column = pa.array(values, pa.binary())
    decoded = decode_together(column, [(program, Values.of(column))], count)
    assert not decoded.bad
    return decoded.column.to_pylist(), rows


def test_arrays_come_in_blocks_of_two_kinds() -> None:
    schema = record(("a", {"type": "array", "items": "string"}))
    with_sizes = b"\x03\x08\x02x\x02y" + b"\x02\x02z" + b"\x00"
    assert left_over(schema, [with_sizes, b"\x00", with_sizes]) == (
        [{"a": ["x", "y", "z"]}, {"a": []}, {"a": ["x", "y", "z"]}],
        0,
    )


def test_a_few_rows_with_very_long_arrays_are_read_singly() -> None:
    schema = record(("a", {"type": "array", "items": "int"}))
    rows = [{"a": list(range(number % 5))} for number in range(100)]
    rows[7] = {"a": list(range(1000))}
    assert left_over(schema, [write(schema, each) for each in rows]) == (rows, 1)
    many = [{"a": list(range(50))}] * 80
    assert left_over(schema, [write(schema, each) for each in many]) == (many, 0)


def test_a_field_that_contains_itself_may_be_passed_over() -> None:
    tree = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}
    writer, reader = record(("t", tree), ("v", "int")), record(("v", "long"))
    with stand_in() as registry:
        prefix = write_prefix(registry.register("s", json.dumps(writer)))
        value = prefix + write(writer, {"t": {"next": {"next": None}}, "v": 5})
        assert read_by_registry(registry, reader, [value]) == ([{"v": 5}], {})

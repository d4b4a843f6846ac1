"""JSON objects to structs, and every way in which they are none."""

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, isnan, nan

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.values.ddl import SchemaError
from tailrace.spark.values.json_values import JsonFormat


def decode(schema: str, *values: bytes | None) -> tuple[list, dict[int, str]]:
    decoder = pickle.loads(pickle.dumps(JsonFormat.parse(schema))).decoder()
    column, bad = decoder.decode(pa.array(values, pa.binary()))
    column.validate(full=True)
    assert len(column) == len(values)
    return column.to_pylist(), bad


def decode_one(schema: str, text: str) -> object:
    """The value of the only field of the schema, or why it is bad."""
    (row,), bad = decode(schema, text.encode())
    assert (row is None) == bool(bad)
    return bad.get(0) or next(iter(row.values()))


EXACT = Decimal("12345678901234567890.123456789012345678")
MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("BOOLEAN", "true", True),
        ("TINYINT", "-128", -128),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("INT", "-0", 0),
        ("DOUBLE", "1", 1.0),
        ("DOUBLE", "-1.5e3", -1500.0),
        ("DOUBLE", "1e400", inf),
        ("DOUBLE", '"-Infinity"', -inf),
        ("DOUBLE", "123456789012345678901234567890", 1.2345678901234568e29),
        ("FLOAT", "0.1", 0.10000000149011612),
        ("DECIMAL(5,2)", "1.005", Decimal("1.01")),
        ("DECIMAL(5,2)", '"-12.345"', Decimal("-12.35")),
        ("DECIMAL(38,18)", f"{EXACT}", EXACT),
        ("STRING", '"\\u00e9\\ud83d\\ude00\\u0000"', "é😀\0"),
        ("STRING", "1.50", "1.5"),
        ("STRING", "true", "true"),
        ("STRING", '{"a": [1, "é"]}', '{"a":[1,"é"]}'),
        ("BINARY", '"aGk="', b"hi"),
        ("DATE", '"2026-01-31"', date(2026, 1, 31)),
        ("TIMESTAMP", '"2026-01-31T12:00:00Z"', MOMENT),
        ("TIMESTAMP", '"2026-01-31 13:00:00+01:00"', MOMENT),
        ("TIMESTAMP", '"2026-01-31T12:00:00"', MOMENT),
        ("TIMESTAMP", '"2026-01-31T12:00:00.123456789Z"', MOMENT.replace(microsecond=123456)),
        ("TIMESTAMP", "1769860800", MOMENT),
        ("TIMESTAMP_NTZ", '"2026-01-31T12:00:00.5"', MOMENT.replace(tzinfo=None, microsecond=500_000)),
        ("TIMESTAMP_NTZ", '"20260131T120000"', MOMENT.replace(tzinfo=None)),
        ("ARRAY<INT>", "[1, null, 2]", [1, None, 2]),
        ("ARRAY<ARRAY<STRUCT<a: INT>>>", '[[], null, [{"a": 1}, null, {}]]', [[], None, [{"a": 1}, None, {"a": None}]]),
        ("MAP<STRING, BIGINT>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("MAP<STRING, ARRAY<INT>>", "{}", []),
        ("STRUCT<a: INT, b: STRING>", '{"b": "x", "c": 5}', {"a": None, "b": "x"}),
    ],
)  # fmt: skip
def test_each_type_takes_its_values(kind: str, text: str, expected: object) -> None:
    assert decode_one(f"f {kind}", f'{{"f": {text}}}') == expected
    assert decode(f"f {kind}", b"{}", b'{"f": null}') == ([{"f": None}, {"f": None}], {})


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("BOOLEAN", "1", "expected true or false, found 1"),
        ("TINYINT", "128", "expected tinyint, found 128"),
        ("INT", "3000000000", "expected int, found 3000000000"),
        ("BIGINT", "9223372036854775808", "expected bigint"),
        ("BIGINT", "1.0", "expected bigint, found 1.0"),
        ("BIGINT", '"1"', 'expected bigint, found "1"'),
        ("BIGINT", "true", "expected bigint, found true"),
        ("DOUBLE", '"1"', 'expected double, found "1"'),
        ("DOUBLE", "false", "expected double, found false"),
        ("DOUBLE", "1" * 400, "expected double, found 111"),
        ("DECIMAL(5,2)", "1000", "expected decimal(5,2), found 1000"),
        ("DECIMAL(5,2)", '"ten"', 'expected decimal(5,2), found "ten"'),
        ("DECIMAL(5,2)", "NaN", "expected decimal(5,2), found NaN"),
        ("DECIMAL(5,2)", "1e999999999", "expected decimal(5,2)"),
        ("DECIMAL(5,2)", '"Infinity"', "expected decimal(5,2)"),
        ("STRING", '"\\ud800"', 'expected a string, found "\\ud800"'),
        ("BINARY", '"%"', 'expected base64, found "%"'),
        ("BINARY", '"é"', 'expected base64, found "é"'),
        ("DATE", '"2026-02-30"', 'expected a date such as 2026-01-31, found "2026-02-30"'),
        ("DATE", "20260131", "expected a date"),
        ("TIMESTAMP", '"yesterday"', "expected a time such as"),
        ("TIMESTAMP", "1.5", "expected a time such as"),
        ("TIMESTAMP", "99999999999999999", "expected a time such as"),
        ("TIMESTAMP_NTZ", '"2026-01-31T12:00:00Z"', "expected a time without a zone"),
        ("ARRAY<INT>", "{}", "expected an array, found {}"),
        ("STRUCT<a: INT>", "[]", "expected an object, found []"),
        ("MAP<STRING, INT>", "5", "expected an object, found 5"),
        ("STRING", '"' + "x" * 100 + "\\ud800" + '"', "x..."),
    ],
)  # fmt: skip
def test_each_type_refuses_the_rest(kind: str, text: str, reason: str) -> None:
    found = decode_one(f"f {kind}", f'{{"f": {text}}}')
    assert isinstance(found, str)
    assert found.startswith("field f: ")
    assert reason in found


def test_the_path_to_what_is_wrong() -> None:
    schema = "a ARRAY<STRUCT<m: MAP<STRING, INT>>>"
    _, bad = decode(
        schema, b'{"a": [null, {"m": {"x": 1}}, {"m": {"y": 2, "z": "3"}}]}', b'{"a": [{"m": {"\\udc00": 1}}]}'
    )
    assert bad == {
        0: 'field a.element.m.value: expected int, found "3"',
        1: 'field a.element.m.key: expected a string, found "\\udc00"',
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not JSON: Expecting value"),
        (b" ", "not JSON: Expecting value"),
        (b'{"id": 1', "not JSON: "),
        (b"{}{}", "not JSON: Extra data"),
        (b"{}null{}", "not JSON: Extra data"),
        (b"{'id': 1}", "not JSON: "),
        (b"\xef\xbb\xbf{}", "not JSON: "),
        (b'{"id": 1}\0', "not JSON: Extra data"),
        (b"\xff", "not UTF-8: invalid start byte at byte 0"),
        (b'{"x": "\xed\xa0\x80"}', "not UTF-8: "),
        (b"[1]", "expected an object, found [1]"),
        (b"5", "expected an object, found 5"),
        (b'"text"', 'expected an object, found "text"'),
        (b"[" * 100_000, "not JSON: maximum recursion depth exceeded"),
        (b'{"id": ' + b"1" * 5000 + b"}", "not JSON: Exceeds the limit"),
    ],
)  # fmt: skip
def test_records_that_are_no_objects(value: bytes, reason: str) -> None:
    rows, bad = decode("id BIGINT", b'{"id": 1}', value, b'{"id": 2}')
    assert rows == [{"id": 1}, None, {"id": 2}]
    assert bad[1].startswith(reason)
    assert bad.keys() == {1}


@pytest.mark.parametrize("depth", [10, 300, 900, 990, 1000, 5000])
def test_deep_nesting_where_nobody_expects_it(depth: int) -> None:
    (row,), bad = decode("id BIGINT", b'{"id": ' + b"[" * depth + b"]" * depth + b"}")
    assert row is None
    assert len(bad[0]) < 200


def test_nulls_are_null_and_not_bad() -> None:
    assert decode("id BIGINT", None, b"null", b" null ", b" {} ") == ([None, None, None, {"id": None}], {})
    assert decode("id BIGINT") == ([], {})


def test_nan_as_a_word_and_as_a_string() -> None:
    rows, bad = decode("f DOUBLE", b'{"f": NaN}', b'{"f": "NaN"}', b'{"f": 1.5}')
    assert not bad
    assert [isnan(row["f"]) for row in rows] == [True, True, False]


def test_the_last_of_two_names_counts_and_case_matters() -> None:
    assert decode("id BIGINT", b'{"id": "x", "id": 2, "ID": 3}') == ([{"id": 2}], {})


def test_one_wrong_field_makes_the_record_null_as_a_whole() -> None:
    rows, bad = decode("id BIGINT, tags ARRAY<INT>", b'{"id": 1, "tags": [1, "x"]}', b'{"id": 2, "tags": [1]}')
    assert rows == [None, {"id": 2, "tags": [1]}]
    assert bad == {0: 'field tags.element: expected int, found "x"'}


def test_keys_of_maps_are_strings() -> None:
    with pytest.raises(SchemaError, match="keys of JSON are strings"):
        JsonFormat.parse("a ARRAY<MAP<INT, STRING>>")


LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5) | st.sampled_from(
    ["2026-01-31", "2026-01-31T12:00:00", "2026-01-31T12:00:00+02:00", "0000-01-01T00:00:00Z", "12.5", "aGk=", nan]
)  # fmt: skip
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner))
FIELDS = ("BOOLEAN", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(6,3)", "STRING", "BINARY", "DATE", "TIMESTAMP",
          "TIMESTAMP_NTZ", "ARRAY<INT>", "MAP<STRING,DOUBLE>", "STRUCT<x: TIMESTAMP, y: ARRAY<STRING>>")  # fmt: skip
NAMES = [f"f{number}" for number in range(len(FIELDS))]
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in zip(NAMES, FIELDS, strict=True))
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), TREES, max_size=3).map(json.dumps).map(str.encode)


@given(st.lists(DOCUMENTS | st.binary(max_size=8) | st.none(), max_size=6))
def test_what_becomes_of_a_record_does_not_depend_on_its_neighbours(values: list[bytes | None]) -> None:
    decoder = JsonFormat.parse(SCHEMA).decoder()
    together = decoder.decode(pa.array(values, pa.binary()))
    for row, value in enumerate(values):
        alone = decoder.decode(pa.array([value], pa.binary()))
        assert together.bad.get(row) == alone.bad.get(0)
        # As text, since NaN is not equal to itself.
        assert str(together.column[row]) == str(alone.column[0])


# One character of a document changed, so that it may be no JSON any more, or another one.
MUTATED = st.builds(
    lambda text, place, new: text[: place % (len(text) + 1)] + new + text[place % (len(text) + 1) + 1 :],
    DOCUMENTS,
    st.integers(0, 200),
    st.sampled_from(
        [b"", b"0", b"-", b".", b"e", b'"', b"\\", b",", b"{", b"]", b":", b" ", b"\x01", b"\xff", b"\\ud800"]
    ),
)


@given(st.lists(DOCUMENTS | MUTATED | st.none(), max_size=4))
def test_what_the_quick_parser_takes_the_slow_one_takes_alike(values: list[bytes | None]) -> None:
    quick, slow = JsonFormat.parse(SCHEMA).decoder(), JsonFormat.parse(SCHEMA).decoder()
    assert slow._typed is not None
    slow._typed = None
    column = pa.array(values, pa.binary())
    found, expected = quick.decode(column), slow.decode(column)
    assert found.bad == expected.bad
    assert str(found.column.to_pylist()) == str(expected.column.to_pylist())
    found.column.validate(full=True)

"""The console's own small language: what it takes, what it refuses and how it says so."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.apps.console.reading.filters import TESTS_MAX, FilterError, parse_filter
from tailrace.wire.payload import Record

ORDER = {"id": 42, "customer": {"name": "ann"}, "items": [{"price": 9.5}, {"price": 3}], "paid": True, "note": None}
RECORD = Record(7, 1000, b"ann", json.dumps(ORDER).encode(), (("trace", b"abc"), ("empty", None)))


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("", True),
        ('key = "ann"', True),
        ('key != "ann"', False),
        ('value contains "customer"', True),
        ('key starts "an"', True),
        ('key starts "nn"', False),
        ("value.id = 42", True),
        ('value.id = "42"', False),
        ("value.id >= 42 and value.id < 43", True),
        ('value.customer.name = "ann"', True),
        ("value.items[0].price = 9.5", True),
        ("value.items[1].price > 3", False),
        ("value.items[9].price exists", False),
        ("value.paid = true", True),
        ("value.paid = 1", False),
        ("value.note = null", True),
        ("value.absent = null", False),
        ("value.absent exists", False),
        ("value.note exists", True),
        ('header.trace = "abc"', True),
        ("header.empty exists and not header.other exists", True),
        ("partition = 3 and offset = 7 and timestamp <= 1000", True),
        ("size > 3", True),
        ('key = "bob" or (partition = 3 and not offset = 8)', True),
        ('not not key = "ann"', True),
        # `and` binds more tightly than `or`.
        ('key = "ann" or key = "bob" and key = "eve"', True),
        ('value.customer contains "ann"', True),
        ('key < "b"', True),
        ("key > 3", False),
    ],
)
def test_what_is_taken(text, is_taken):
    assert parse_filter(text)(3, RECORD) is is_taken


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("key", "expected one of ="),
        ("key =", "expected a text in double quotes, a number"),
        ("key = ann", "needs double quotes"),
        ("keys = 1", "is no field"),
        ("value..a = 1", "is no path"),
        ('key is "a"', "is no operator"),
        ('(key = "a"', "parenthesis is not closed"),
        ('key = "a" key = "b"', "join tests by and, or"),
        ("key = 'a'", "is not understood"),
        ("__import__('os')", "is not understood"),
        ("(" * 30 + 'key = "a"', "within each other"),
        (" or ".join(['key = "a"'] * (TESTS_MAX + 1)), "more than"),
    ],
)
def test_what_is_refused_and_why(text, reason):
    with pytest.raises(FilterError, match=reason):
        parse_filter(text)


def test_records_that_are_no_json_have_no_paths():
    for value in (None, b"", b"plain", b"[1", b"\xff", b"[" * 100_000):
        assert not parse_filter("value.a.b = 1")(0, Record(0, 0, None, value))


@given(st.text(max_size=60), st.binary(max_size=40))
def test_no_text_does_anything_but_choose_or_refuse(text, value):
    try:
        test = parse_filter(text)
    except FilterError:
        return
    assert test(0, Record(0, 0, value, value)) in (True, False)
